"""Attention in one pass, and its gradients, against dense f64."""

import math

import pytest
from torch_support import DEVICES, ON_CUDA, agree, capture, on_a_side_stream, randn, random_csr, torch

import windrow.torch as wt
from windrow import errors
from windrow.torch._cache import cache

pytestmark = pytest.mark.usefixtures("empty_cache")

TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])


def dense_attention(rowptr, col, q, k, v, scale, bias=None):
    """The same of dense matrices, for operands with heads, in f64."""
    q, k, v = (of.double() for of in (q, k, v))
    rows = torch.repeat_interleave(torch.arange(q.shape[0], device=q.device), rowptr.long().diff())
    scores = scale * torch.einsum("mhd,nhd->hmn", q, k)
    there = torch.full((q.shape[1], q.shape[0], k.shape[0]), -math.inf, dtype=torch.float64, device=q.device)
    of_entries = scores[:, rows, col.long()]
    if bias is not None:
        of_entries = of_entries + bias.double()
    there = there.index_put((torch.arange(q.shape[1], device=q.device)[:, None], rows, col.long()), of_entries)
    weights = torch.softmax(there, -1).nan_to_num(0.0)  # of rows without entries
    return torch.einsum("hmn,nhe->mhe", weights, v)


@DEVICES
@TYPES
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 24), (2, 5, 7)])
@pytest.mark.parametrize("biased", [None, "all", "each"])
def test_attention_and_gradients_are_those_of_dense_matrices(device, dtype, shape, biased):
    heads, features, values = shape
    rowptr, col, _, _ = random_csr(40, 30, 0.2, device)
    of = {None: None, "all": (col.numel(),), "each": (heads, col.numel())}[biased]
    bias = None if of is None else randn(*of, device=device, seed=5)
    operands = [
        randn(40, heads, features, device=device, dtype=dtype, seed=2),
        randn(30, heads, features, device=device, dtype=dtype, seed=3),
        randn(30, heads, values, device=device, dtype=dtype, seed=4),
    ]
    gradient = randn(40, heads, values, device=device, dtype=dtype, seed=6)
    ours = [of.clone().requires_grad_() for of in (*operands, *([] if bias is None else [bias]))]
    theirs = [of.detach().double().requires_grad_() for of in ours]
    out = wt.graph_attention((rowptr, col), *ours[:3], 0.3, *ours[3:])
    expected = dense_attention(rowptr, col, *theirs[:3], 0.3, *theirs[3:])
    agree(out, expected, dtype)
    out.backward(gradient)
    expected.backward(gradient.double())
    for one, other in zip(ours, theirs):
        agree(one.grad, other.grad, dtype, scale=4)


@DEVICES
def test_one_head_needs_no_dimension_and_scale_is_that_of_the_features(device):
    rowptr, col, _, _ = random_csr(20, 20, 0.3, device)
    q, k, v = (randn(20, 16, device=device, seed=seed) for seed in (1, 2, 3))
    out = wt.graph_attention((rowptr, col), q, k, v)
    assert out.shape == (20, 16)
    together = wt.graph_attention((rowptr, col), *(of.unsqueeze(1) for of in (q, k, v)), scale=0.25)
    assert torch.equal(out, together.squeeze(1))


@DEVICES
def test_dropout_is_as_often_as_asked_and_its_gradient_is_of_the_same_weights(device):
    n = 64
    rowptr = torch.arange(0, n * n + 1, n, device=device)
    col = torch.arange(n, device=device).repeat(n)
    q, v = torch.zeros(n, 8, device=device), torch.eye(n, device=device).requires_grad_()
    torch.manual_seed(3)
    out = wt.graph_attention((rowptr, col), q, q, v, dropout=0.25)
    weights = out.detach()  # those of single entries
    dropped = (weights == 0).float().mean().item()
    assert 0.2 < dropped < 0.3
    kept = weights[weights != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / n / 0.75))
    gradient = randn(n, n, device=device)
    out.backward(gradient)
    torch.testing.assert_close(v.grad, weights.t() @ gradient)
    torch.manual_seed(3)
    assert torch.equal(wt.graph_attention((rowptr, col), q, q, v, dropout=0.25), out)
    assert not torch.equal(wt.graph_attention((rowptr, col), q, q, v, dropout=0.25), out)


@DEVICES
def test_plans_are_kept_with_the_pattern(device):
    rowptr, col, _, _ = random_csr(20, 20, 0.3, device)
    q = randn(20, 16, device=device)
    wt.graph_attention((rowptr, col), q, q, q)
    pattern = next(iter(cache.patterns.values()))
    (plan,) = [plan for key, plan in pattern.plans.items() if key[0] == "attention"]
    wt.graph_attention((rowptr, col), q, q, q)
    assert [plan] == [plan for key, plan in pattern.plans.items() if key[0] == "attention"]
    learned = q.clone().requires_grad_()
    wt.graph_attention((rowptr, col), learned, q, q).sum().backward()
    assert len([key for key in pattern.plans if key[0] == "attention"]) == 2


@DEVICES
def test_empty_matrices_and_rows(device):
    rowptr = torch.zeros(4, dtype=torch.int64, device=device)
    col = torch.zeros(0, dtype=torch.int64, device=device)
    q, k = randn(3, 8, device=device).requires_grad_(), randn(5, 8, device=device)
    out = wt.graph_attention((rowptr, col), q, k, k)
    assert torch.equal(out, torch.zeros_like(out))
    out.sum().backward()
    assert torch.equal(q.grad, torch.zeros_like(q))
    none = wt.graph_attention((rowptr[:1], col), q[:0], k, k)
    assert none.shape == (0, 8)


@DEVICES
def test_what_cannot_be_is_refused(device):
    rowptr, col, _, _ = random_csr(20, 30, 0.3, device)
    q, k = randn(20, 2, 8, device=device), randn(30, 2, 8, device=device)

    def refused(error, match, *operands, **options):
        with pytest.raises(error, match=match):
            wt.graph_attention((rowptr, col), *operands, **options)

    refused(errors.ShapeError, "20 and 30 rows|rows", k, k, k)
    refused(errors.ShapeError, "all be", q, k, k[:, 0])
    refused(errors.ShapeError, "the same heads", q, k, k[:, :1])
    refused(errors.DtypeError, "float64", q.double(), k.double(), k.double())
    refused(errors.DtypeError, "all the same", q.half(), k, k)
    refused(errors.OptionError, "dropout of 1", q, k, k, dropout=1)
    refused(errors.OptionError, "300 columns", *(of.repeat(1, 1, 38)[..., :300] for of in (q, k, k)))
    refused(errors.ShapeError, "bias has shape", q, k, k, bias=torch.zeros(3, device=device))
    refused(errors.DtypeError, "bias.float", q, k, k, bias=torch.zeros(col.numel(), device=device).half())
    learned = q.clone().requires_grad_()
    out = wt.graph_attention((rowptr, col), learned, k, k)
    (first,) = torch.autograd.grad(out.sum(), learned, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives"):
        first.sum().backward()


@DEVICES
def test_autocast_converts_operands(device):
    rowptr, col, _, _ = random_csr(20, 20, 0.3, device)
    q = randn(20, 16, device=device).requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        out = wt.graph_attention((rowptr, col), q, q, q)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert q.grad.dtype == torch.float32


@DEVICES
def test_the_operator_is_one_of_pytorch(device):
    rowptr, col, _, _ = random_csr(12, 12, 0.3, device)
    operands = [randn(12, 2, 8, device=device, seed=seed).requires_grad_() for seed in (1, 2, 3)]
    bias = randn(col.numel(), device=device).requires_grad_()
    given = (rowptr, col, *operands, None, bias, 0.5, None, 0.0, 0)
    torch.library.opcheck(torch.ops.windrow.attention.default, given)


@DEVICES
def test_compiled_attention_is_the_same(device):
    rowptr, col, _, _ = random_csr(20, 20, 0.3, device)
    q = randn(20, 2, 16, device=device).requires_grad_()
    call = lambda q: wt.graph_attention((rowptr, col), q, q * 2, q)  # noqa: E731
    expected = call(q)
    (of_expected,) = torch.autograd.grad(expected.square().sum(), q)
    found = torch.compile(call, fullgraph=True, backend="aot_eager")(q)
    (of_found,) = torch.autograd.grad(found.square().sum(), q)
    assert torch.equal(found, expected)
    torch.testing.assert_close(of_found, of_expected)


@ON_CUDA
@pytest.mark.parametrize("prepared", [False, True])
def test_attention_in_a_cuda_graph(device, prepared):
    rowptr, col, _, _ = random_csr(40, 30, 0.2, device)
    q, k = randn(40, 2, 16, device=device).requires_grad_(), randn(30, 2, 16, device=device).requires_grad_()

    def step():
        q.grad = k.grad = None
        out = wt.graph_attention((rowptr, col), q, k, k)
        out.square().sum().backward()
        return out

    on_a_side_stream(step, 3)
    stream = torch.cuda.Stream() if prepared else None
    if prepared:
        wt.prepare_capture(stream)
    graph, out = capture(step, stream=stream)
    with torch.no_grad():
        q.copy_(randn(40, 2, 16, device=device, seed=9))
    graph.replay()
    torch.cuda.synchronize()
    captured = out.detach().clone(), q.grad.clone(), k.grad.clone()
    expected = step()
    for one, other in zip(captured, (expected.detach(), q.grad, k.grad)):
        assert torch.equal(one, other)


def dense_additive_attention(rowptr, col, of_row, of_column, v, of_entry, slope):
    """The same of dense matrices, for operands with heads, in f64."""
    rows = rows_of_entries(rowptr)
    sums = (of_row[rows] + of_column[col.long()]).t()
    scores = torch.nn.functional.leaky_relu(sums if of_entry is None else sums + of_entry, slope)
    return dense_sums(rowptr, col, scores, v)


def rows_of_entries(rowptr):
    return torch.repeat_interleave(torch.arange(rowptr.numel() - 1, device=rowptr.device), rowptr.long().diff())


def dense_sums(rowptr, col, scores, v):
    """Sums of V by the softmax of scores `(heads, nnz)` over the entries of each row."""
    heads = torch.arange(v.shape[1], device=v.device)[:, None]
    there = torch.full((v.shape[1], rowptr.numel() - 1, v.shape[0]), -math.inf, dtype=torch.float64, device=v.device)
    there = there.index_put((heads, rows_of_entries(rowptr), col.long()), scores)
    weights = torch.softmax(there, -1).nan_to_num(0.0)  # of rows without entries
    return torch.einsum("hmn,nhe->mhe", weights, v)


@DEVICES
@TYPES
@pytest.mark.parametrize("heads, values", [(1, 8), (3, 24), (2, 7)])
@pytest.mark.parametrize("edges", [None, "all", "each"])
def test_additive_attention_and_gradients_are_those_of_dense_matrices(device, dtype, heads, values, edges):
    rowptr, col, _, _ = random_csr(40, 30, 0.2, device)
    of = {None: None, "all": (col.numel(),), "each": (heads, col.numel())}[edges]
    operands = [
        randn(40, heads, device=device, seed=2),
        randn(30, heads, device=device, seed=3),
        randn(30, heads, values, device=device, dtype=dtype, seed=4),
        *([] if of is None else [randn(*of, device=device, seed=5)]),
    ]
    gradient = randn(40, heads, values, device=device, dtype=dtype, seed=6)
    ours = [of.clone().requires_grad_() for of in operands]
    theirs = [of.detach().double().requires_grad_() for of in operands]
    out = wt.additive_attention((rowptr, col), *ours, negative_slope=0.3)
    expected = dense_additive_attention(rowptr, col, *theirs[:3], theirs[3] if of else None, 0.3)
    assert out.dtype == dtype
    agree(out, expected, dtype)
    out.backward(gradient)
    expected.backward(gradient.double())
    for one, other in zip(ours, theirs):
        assert one.grad.dtype == one.dtype
        agree(one.grad, other.grad, dtype, scale=4)


@DEVICES
def test_additive_attention_of_one_head_and_what_it_refuses(device):
    rowptr, col, _, _ = random_csr(20, 30, 0.3, device)
    of_row, of_column, v = randn(20, device=device), randn(30, device=device, seed=1), randn(30, 6, device=device)
    out = wt.additive_attention((rowptr, col), of_row, of_column, v)
    together = wt.additive_attention((rowptr, col), *(of.unsqueeze(1) for of in (of_row, of_column, v)))
    assert out.shape == (20, 6) and torch.equal(out, together.squeeze(1))
    with pytest.raises(errors.ShapeError, match="numbers of rows and columns"):
        wt.additive_attention((rowptr, col), v, of_column, v)
    with pytest.raises(errors.ShapeError, match="20, 30 and 30 rows"):
        wt.additive_attention((rowptr, col), of_column, of_column, v)
    with pytest.raises(errors.OptionError, match="slope of inf"):
        wt.additive_attention((rowptr, col), of_row, of_column, v, negative_slope=math.inf)
    with torch.autocast(device, torch.bfloat16):
        half = wt.additive_attention((rowptr, col), of_row.requires_grad_(), of_column, v)
    assert half.dtype == torch.bfloat16
    half.float().sum().backward()
    assert of_row.grad.dtype == torch.float32
    given = (rowptr, col, of_row[:, None], of_column[:, None], v, None, None, 1.0, 0.2, 0.0, 0)
    torch.library.opcheck(torch.ops.windrow.additive_attention.default, given)


def dense_gatv2_attention(rowptr, col, q, k, v, vector, bias, slope):
    """The same by scores of GATv2."""
    sums = torch.nn.functional.leaky_relu(q[rows_of_entries(rowptr)] + k[col.long()], slope)
    scores = (sums * vector).sum(-1).t()
    return dense_sums(rowptr, col, scores if bias is None else scores + bias, v)


@DEVICES
@TYPES
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 24), (2, 5, 7)])
@pytest.mark.parametrize("biased", [None, "all", "each"])
def test_gatv2_attention_and_gradients_are_those_of_dense_matrices(device, dtype, shape, biased):
    heads, features, values = shape
    rowptr, col, _, _ = random_csr(40, 30, 0.2, device)
    of = {None: None, "all": (col.numel(),), "each": (heads, col.numel())}[biased]
    operands = [
        randn(40, heads, features, device=device, dtype=dtype, seed=2),
        randn(30, heads, features, device=device, dtype=dtype, seed=3),
        randn(30, heads, values, device=device, dtype=dtype, seed=4),
        randn(heads, features, device=device, seed=7),
        *([] if of is None else [randn(*of, device=device, seed=5)]),
    ]
    gradient = randn(40, heads, values, device=device, dtype=dtype, seed=6)
    ours = [of.clone().requires_grad_() for of in operands]
    theirs = [of.detach().double().requires_grad_() for of in operands]
    out = wt.gatv2_attention((rowptr, col), *ours, negative_slope=0.3)
    expected = dense_gatv2_attention(rowptr, col, *theirs[:4], theirs[4] if of else None, 0.3)
    assert out.dtype == dtype
    agree(out, expected, dtype)
    out.backward(gradient)
    expected.backward(gradient.double())
    for one, other in zip(ours, theirs):
        assert one.grad.dtype == one.dtype
        agree(one.grad, other.grad, dtype, scale=8)


@DEVICES
def test_gatv2_attention_of_one_head_and_what_it_refuses(device):
    rowptr, col, _, _ = random_csr(20, 30, 0.3, device)
    q, k = randn(20, 6, device=device), randn(30, 6, device=device, seed=1)
    vector = randn(6, device=device, seed=2)
    out = wt.gatv2_attention((rowptr, col), q, k, k, vector)
    together = wt.gatv2_attention((rowptr, col), *(of.unsqueeze(1) for of in (q, k, k)), vector.unsqueeze(0))
    assert out.shape == (20, 6) and torch.equal(out, together.squeeze(1))
    with pytest.raises(errors.ShapeError, match="the vector has shape"):
        wt.gatv2_attention((rowptr, col), q, k, k, vector[:5])
    with pytest.raises(errors.OptionError, match="slope of inf"):
        wt.gatv2_attention((rowptr, col), q, k, k, vector, negative_slope=math.inf)
    with torch.autocast(device, torch.bfloat16):
        half = wt.gatv2_attention((rowptr, col), q, k, k, vector.requires_grad_())
    assert half.dtype == torch.bfloat16
    half.float().sum().backward()
    assert vector.grad.dtype == torch.float32
    given = (rowptr, col, q, k, k, vector, None, 1.0, 0.2, 0.0, 0)
    torch.library.opcheck(torch.ops.windrow.gatv2_attention.default, given)


@ON_CUDA
@pytest.mark.parametrize("attributes", [False, True])
def test_a_layer_of_gat_takes_one_pass_and_stays_the_same(device, attributes):
    torch.manual_seed(1)
    layer = wt.nn.GATConv(7, 5, heads=2, edge_dim=3 if attributes else None).to(device)
    chosen = torch.randperm(40 * 40, generator=torch.Generator().manual_seed(2))[:300].to(device)
    index = torch.stack([chosen // 40, chosen % 40])
    x, of_edges = randn(40, 7, device=device), randn(300, 3, device=device) if attributes else None

    def step():
        layer.zero_grad()
        out = layer(x, index, of_edges)
        out.square().sum().backward()
        return [out.detach().clone(), *(parameter.grad.clone() for parameter in layer.parameters())]

    def attends():
        return any(key[0] == "attention" for pattern in cache.patterns.values() for key in pattern.plans)

    expected = step()
    assert not attends()
    for _ in range(cache.full_after + 1):
        found = step()
    assert attends()
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
