"""Operators of windrow.torch: results, gradients, what they refuse, tracing."""

import copy
import pickle
import shutil

import pytest
from torch_support import CUDA, DEVICES, FLOATS, agree, randn, random_csr, torch

import windrow.torch as wt
from windrow import errors


@DEVICES
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
@pytest.mark.parametrize("shape", [(60, 45, 33), (45, 60, 8), (70, 70, 1), (1, 30, 5), (30, 1, 5)])
def test_products_are_those_of_dense_matrices(device, dtype, index, shape):
    rows, cols, width = shape
    rowptr, col, value, dense = random_csr(rows, cols, 0.15, device, dtype, index)
    x, y = randn(cols, width, device=device, dtype=dtype), randn(rows, width, device=device, dtype=dtype)
    agree(wt.spmm((rowptr, col, value), x), dense.double() @ x.double())
    agree(wt.spmm((rowptr, col), x), (dense != 0).double() @ x.double())
    transposed = torch.ops.windrow.spmm_t(rowptr, col, value, y, cols)
    agree(transposed, dense.double().t() @ y.double())
    expected = (y.double() @ x.double().t())[dense != 0]
    agree(wt.sddmm((rowptr, col), y, x), expected, scale=4)


@DEVICES
def test_every_form_of_a_matrix_is_the_same_matrix(device, planned):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device)
    sparse = torch.sparse_csr_tensor(rowptr, col, value, dense.shape)
    expected = wt.spmm((rowptr, col, value), x)
    csr = wt.Csr(rowptr, col, value, 20)
    for a in (sparse, csr, [rowptr, col, value]):
        assert torch.equal(wt.spmm(a, x), expected)
    assert torch.equal(csr @ x, expected)
    assert torch.equal(wt.spmm(csr, x[:, 0]), wt.spmm(csr, x[:, :1]).squeeze(1))


@DEVICES
def test_values_of_f32_go_with_16_bits(device):
    rowptr, col, value, dense = random_csr(40, 30, 0.2, device)
    for dtype in (torch.float16, torch.bfloat16):
        x = randn(30, 9, device=device, dtype=dtype)
        found = wt.spmm((rowptr, col, value), x)
        assert found.dtype == dtype
        agree(found, dense.double() @ x.double(), scale=2)


@DEVICES
def test_the_mean_divides_by_the_entries_of_a_row(device):
    rowptr, col, value, dense = random_csr(40, 30, 0.2, device)
    x = randn(30, 9, device=device)
    count = (dense != 0).sum(1).clamp(min=1).double().view(-1, 1)
    agree(wt.spmm((rowptr, col, value), x, reduce="mean"), dense.double() @ x.double() / count)
    heads = randn(30, 3, 9, device=device)
    ones = (dense != 0).double()
    agree(wt.spmm((rowptr, col), heads, reduce="mean").flatten(1), ones @ heads.flatten(1).double() / count)
    with pytest.raises(errors.OptionError, match="there are sum, mean, max, min"):
        wt.spmm((rowptr, col), x, reduce="median")


@DEVICES
def test_means_of_many_do_not_overflow(device):
    many = 70_000
    rowptr = torch.tensor([0, many, many + 2, many + 2], device=device)
    col = torch.cat([torch.arange(many), torch.tensor([0, 1])]).to(device)
    x = torch.full((many, 4), 3.0, device=device, requires_grad=True)
    for half in (x.half(), x):
        with torch.autocast(device, torch.float16, enabled=half is x):
            out = wt.spmm((rowptr, col), half, reduce="mean")
        assert out.dtype == torch.float16
        agree(out, torch.tensor([[3.0] * 4, [3.0] * 4, [0.0] * 4], device=device, dtype=torch.float64))
        x.grad = None
        out.float().sum().backward()
        # A share of so many is no normal number of f16.
        torch.testing.assert_close(x.grad.sum(0), torch.full((4,), 2.0, device=device), rtol=5e-3, atol=0)


@DEVICES
def test_strides_and_offsets_are_honoured(device):
    rowptr, col, value, dense = random_csr(40, 30, 0.2, device)
    wide = randn(64, 50, device=device)
    views = {
        "columns of a wider matrix": wide[3:33, 7:19],
        "every other row": wide[1:61:2, :12],
        "every other column": wide[:30, ::2],
        "transposed": wide[:12, :30].t(),
        "the same row": wide[:1, :12].expand(30, 12),
        "one column": wide[:30, 5:6],
        "a column again": wide[:30, 5:6].expand(30, 12),
    }
    for what, x in views.items():
        expected = dense.double() @ x.double()
        agree(wt.spmm((rowptr, col, value), x), expected), what
        y = torch.randn(40, x.shape[1], device=device)
        agree(wt.sddmm((rowptr, col), y, x), (y.double() @ x.double().t())[dense != 0], scale=4), what
    spread = torch.stack([value, -value], 1)[:, 0]
    assert not spread.is_contiguous()
    x = randn(30, 4, device=device)
    assert torch.equal(wt.spmm((rowptr, col, spread), x), wt.spmm((rowptr, col, value), x))
    twice = torch.stack([col, col + 1], 1)[:, 0]
    assert torch.equal(wt.spmm((rowptr, twice, value), x), wt.spmm((rowptr, col, value), x))
    # The same address and another stride are another pattern.
    base = torch.tensor([0, 9, 1, 9, 2, 9], device=device)
    ends = torch.tensor([0, 1, 2, 3], device=device)
    ten = torch.eye(10, device=device)
    assert wt.spmm((ends, base[:3]), ten).argmax(1).tolist() == [0, 9, 1]
    assert wt.spmm((ends, base[::2]), ten).argmax(1).tolist() == [0, 1, 2]


@DEVICES
def test_heads_are_products_of_their_own(device):
    rowptr, col, _, dense = random_csr(40, 30, 0.2, device)
    there = dense != 0
    value = randn(3, col.numel(), device=device)
    x, y = randn(30, 3, 5, device=device), randn(40, 3, 5, device=device, seed=2)
    found = wt.spmm((rowptr, col, value), x)
    scores = wt.sddmm((rowptr, col), y, x)
    assert found.shape == (40, 3, 5) and scores.shape == (3, col.numel())
    for head in range(3):
        weights = torch.zeros(40, 30, device=device, dtype=torch.float64)
        weights[there] = value[head].double()
        agree(found[:, head], weights @ x[:, head].double())
        agree(scores[head], (y[:, head].double() @ x[:, head].double().t())[there], scale=4)
    assert torch.equal(wt.spmm((rowptr, col), x)[:, 1], wt.spmm((rowptr, col), x[:, 1]))


@DEVICES
@pytest.mark.parametrize("heads", [None, 3])
def test_the_softmax_is_that_of_each_row(device, heads):
    rowptr, col, _, dense = random_csr(40, 30, 0.2, device)
    scores = randn(*(() if heads is None else (heads,)), col.numel(), device=device)
    found = wt.edge_softmax((rowptr, col), scores, scale=0.7, num_cols=30)
    there = dense != 0
    for p, s in zip(found.reshape(-1, col.numel()), scores.reshape(-1, col.numel())):
        full = torch.full((40, 30), -torch.inf, dtype=torch.float64, device=device)
        full[there] = 0.7 * s.double()
        agree(p, full.softmax(1)[there])
    half = wt.edge_softmax((rowptr, col), scores.half(), num_cols=30)
    assert half.dtype == torch.float16
    with pytest.raises(errors.ShapeError, match="num_cols"):
        wt.edge_softmax((rowptr, col), scores)
    with pytest.raises(errors.DtypeError, match="float"):
        wt.edge_softmax((rowptr, col), scores.double(), num_cols=30)


@DEVICES
def test_gradients_are_those_of_the_formula(device):
    rowptr, col, value, dense = random_csr(12, 9, 0.3, device, torch.float64)
    value.requires_grad_()
    x = randn(9, 4, device=device, dtype=torch.float64).requires_grad_()
    y = randn(12, 4, device=device, dtype=torch.float64, seed=3).requires_grad_()
    check = dict(atol=1e-7, rtol=1e-5)
    for spmm in (lambda v, x: wt.spmm((rowptr, col, v), x), lambda v, x: torch.ops.windrow.spmm(rowptr, col, v, x)):
        assert torch.autograd.gradcheck(spmm, (value, x), **check)
        assert torch.autograd.gradgradcheck(spmm, (value, x), **check)
    sddmm = lambda y, x: wt.sddmm((rowptr, col), y, x)  # noqa: E731
    assert torch.autograd.gradcheck(sddmm, (y, x), **check)
    assert torch.autograd.gradgradcheck(sddmm, (y, x), **check)
    assert torch.autograd.gradcheck(lambda v, y, x: wt.sddmm((rowptr, col, v), y, x, scale=True), (value, y, x), **check)
    transposed = lambda v, y: torch.ops.windrow.spmm_t(rowptr, col, v, y, 9)  # noqa: E731
    assert torch.autograd.gradcheck(transposed, (value, y), **check)
    heads = randn(2, col.numel(), device=device, dtype=torch.float64).requires_grad_()
    parts = randn(9, 2, 3, device=device, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda v, x: wt.spmm((rowptr, col, v), x), (heads, parts), **check)


def dense_softmax(scores, there, scale):
    full = torch.full(there.shape, -torch.inf, dtype=torch.float64, device=scores.device)
    full = full.masked_scatter(there, scale * scores)
    return full.softmax(1)[there]


@DEVICES
def test_gradients_of_the_softmax_are_those_of_f64(device):
    rowptr, col, _, dense = random_csr(20, 15, 0.3, device)
    there = dense != 0
    scores = randn(col.numel(), device=device).requires_grad_()
    wide = scores.detach().double().requires_grad_()
    weights = randn(col.numel(), device=device, seed=5)
    found, expected = wt.edge_softmax((rowptr, col), scores, 0.5, 15), dense_softmax(wide, there, 0.5)
    (first,) = torch.autograd.grad((found * weights).sum(), scores, create_graph=True)
    (wanted,) = torch.autograd.grad((expected * weights.double()).sum(), wide, create_graph=True)
    agree(first, wanted.detach())
    (second,) = torch.autograd.grad((first * weights).sum(), scores)
    (wanted,) = torch.autograd.grad((wanted * weights.double()).sum(), wide)
    agree(second, wanted, scale=4)


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_gradients_agree_with_those_of_f64(device, dtype):
    rowptr, col, value, dense = random_csr(50, 40, 0.15, device, dtype)
    value.requires_grad_()
    x = randn(40, 17, device=device, dtype=dtype).requires_grad_()
    dy = randn(50, 17, device=device, dtype=dtype, seed=3)
    wt.spmm((rowptr, col, value), x).backward(dy)
    agree(x.grad, dense.double().t() @ dy.double())
    agree(value.grad, (dy.double() @ x.detach().double().t())[dense != 0], scale=4)
    x.grad = None
    wt.spmm((rowptr, col, value.detach()), x).sum().backward()  # a gradient whose strides are 0
    agree(x.grad, dense.double().t() @ torch.ones_like(dy).double())


@DEVICES
def test_a_sparse_tensor_gets_gradients_of_its_values(device):
    rowptr, col, value, dense = random_csr(20, 15, 0.3, device, torch.float64)
    a = torch.sparse_csr_tensor(rowptr, col, value, dense.shape).requires_grad_()
    x = randn(15, 4, device=device, dtype=torch.float64)
    wt.spmm(a, x).sum().backward()
    agree(a.grad.values(), (torch.ones(20, 4, device=device).double() @ x.t())[dense != 0])


@DEVICES
def test_backward_has_the_values_of_its_forward(device):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device).requires_grad_()
    first, second = value.clone(), 3 * value
    one, two = wt.spmm((rowptr, col, first), x), wt.spmm((rowptr, col, second), x)
    (of_one,) = torch.autograd.grad(one.sum(), x, retain_graph=True)
    (of_two,) = torch.autograd.grad(two.sum(), x)
    agree(of_one, dense.double().t() @ torch.ones(30, 6, device=device).double())
    agree(of_two, 3 * dense.double().t() @ torch.ones(30, 6, device=device).double())
    first.mul_(2)
    agree(wt.spmm((rowptr, col, first), x), 2 * dense.double() @ x.double())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        one.sum().backward()


@DEVICES
def test_learned_values_may_be_written_in_any_way(device):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device)
    weight = torch.nn.Parameter(value.clone())
    for factor in (1, 2, 4):
        agree(wt.spmm((rowptr, col, weight), x).detach(), factor * dense.double() @ x.double())
        weight.data.mul_(2)


@DEVICES
def test_graphs_without_edges_nodes_or_features(device):
    none = torch.empty(0, dtype=torch.int64, device=device)
    for rows, cols, width in [(5, 4, 3), (0, 4, 3), (5, 0, 3), (0, 0, 3), (5, 4, 0)]:
        rowptr = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        value = torch.empty(0, device=device, requires_grad=True)
        x = torch.ones(cols, width, device=device, requires_grad=True)
        out = wt.spmm((rowptr, none, value), x)
        assert out.shape == (rows, width) and not out.any()
        out.sum().backward()
        assert not x.grad.any() and value.grad.shape == (0,)
        y = torch.ones(rows, width, device=device)
        assert wt.sddmm((rowptr, none), y, x).shape == (0,)
        assert wt.edge_softmax((rowptr, none), value, num_cols=cols).shape == (0,)
    rowptr, col, _, _ = random_csr(6, 5, 0.5, device)
    assert not wt.sddmm((rowptr, col), torch.ones(6, 0, device=device), torch.ones(5, 0, device=device)).any()


def refused():
    """Calls that are wrong, and what is said: by the kind of exception and a part of its text."""
    rowptr, col, value, _ = random_csr(6, 5, 0.5)
    x, a = randn(5, 3), (rowptr, col, value)
    twice = (torch.tensor([0, 2]), torch.tensor([1, 1]))
    far = (torch.tensor([0, 2]), torch.tensor([1, 7]))
    short = (torch.tensor([0, 3]), torch.tensor([1, 2]))
    return {
        "duplicates": (lambda: wt.spmm(twice, x), errors.FormatError, "column 1 follows column 1"),
        "a column too far": (lambda: wt.spmm(far, x), errors.FormatError, "7"),
        "offsets beyond the columns": (lambda: wt.spmm(short, x), errors.FormatError, "3"),
        "rows that do not fit": (lambda: wt.spmm(wt.Csr(rowptr, col, value, 5), randn(6, 3)), errors.ShapeError, "5 columns"),
        "integers": (lambda: wt.spmm(a, x.long()), errors.DtypeError, "int64"),
        "values of another type": (lambda: wt.spmm(a, x.double()), errors.DtypeError, "convert one"),
        "too few values": (lambda: wt.spmm((rowptr, col, value[1:]), x), errors.ShapeError, "must be"),
        "values of too many heads": (lambda: wt.spmm((rowptr, col, value.expand(2, -1)), x), errors.ShapeError, "must be"),
        "offsets of f32": (lambda: wt.spmm((rowptr.float(), col), x), errors.DtypeError, "torch.int64"),
        "a matrix of offsets": (lambda: wt.spmm((rowptr[None], col), x), errors.ShapeError, "one"),
        "no offsets": (lambda: wt.spmm((rowptr[:0], col), x), errors.ShapeError, "rowptr is empty"),
        "a dense matrix": (lambda: wt.spmm(torch.eye(5), x), errors.DtypeError, "to_sparse_csr"),
        "a sparse_coo tensor": (lambda: wt.spmm(torch.eye(5).to_sparse(), x), errors.DtypeError, "to_sparse_csr"),
        "a list of text": (lambda: wt.spmm("A", x), errors.DtypeError, "sparse_csr"),
        "four dimensions": (lambda: wt.spmm(a, x[None, None]), errors.ShapeError, "features"),
        "X and Y that do not fit": (lambda: wt.sddmm(a, randn(6, 3), randn(5, 4)), errors.ShapeError, "must agree"),
        "X of too few rows": (lambda: wt.sddmm(a, randn(5, 3), x), errors.ShapeError, "6"),
        "X and Y of two types": (lambda: wt.sddmm(a, randn(6, 3), x.half()), errors.DtypeError, "convert"),
        "a scale without values": (lambda: wt.sddmm((rowptr, col), randn(6, 3), x, scale=True), errors.OptionError, "none"),
        "scores that do not fit": (lambda: wt.edge_softmax(a, value[1:], num_cols=5), errors.ShapeError, "must be"),
        "meta tensors": (lambda: wt.spmm(a, x.to("meta")), errors.DeviceError, "meta"),
    }


@pytest.mark.parametrize("what", refused())
def test_what_is_wrong_is_said(what):
    call, kind, text = refused()[what]
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("device", [CUDA])
def test_operands_on_two_devices_are_refused(device):
    rowptr, col, value, _ = random_csr(6, 5, 0.5, device)
    for call in (
        lambda: wt.spmm((rowptr, col, value), randn(5, 3)),
        lambda: wt.spmm((rowptr, col, value.cpu()), randn(5, 3, device=device)),
        lambda: wt.spmm((rowptr, col.cpu(), value), randn(5, 3, device=device)),
        lambda: wt.sddmm((rowptr, col), randn(6, 3), randn(5, 3, device=device)),
    ):
        with pytest.raises(errors.DeviceError, match="move one"):
            call()


@DEVICES
def test_operators_pass_the_checks_of_torch_library(device):
    rowptr, col, value, _ = random_csr(12, 9, 0.3, device)
    value.requires_grad_()
    x, y = randn(9, 4, device=device).requires_grad_(), randn(12, 4, device=device).requires_grad_()
    ops = torch.ops.windrow
    calls = [
        (ops.spmm, (rowptr, col, value, x)),
        (ops.spmm, (rowptr, col, None, x)),
        (ops.spmm_t, (rowptr, col, value, y, 9)),
        (ops.sddmm, (rowptr, col, y, x)),
        (ops.edge_softmax, (rowptr, col, value, 9, 0.5)),
        (ops.edge_softmax_backward, (rowptr, col, value.detach(), value.detach(), 9, 0.5)),
    ]
    for op, inputs in calls:
        found = torch.library.opcheck(op.default, inputs)
        assert set(found.values()) == {"SUCCESS"}, (op, found)


@DEVICES
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_functions_are_whole_and_the_same(device, dynamic):
    rowptr, col, value, _ = random_csr(30, 20, 0.2, device)

    def step(rowptr, col, value, x):
        p = wt.edge_softmax((rowptr, col), value, num_cols=x.shape[0])
        return wt.spmm((rowptr, col, p), x).relu() + wt.spmm(wt.Csr(rowptr, col), x, reduce="mean")

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for width in (6, 10):
        ours, theirs = (
            [t.clone().requires_grad_() for t in (value, randn(20, width, device=device))] for _ in range(2)
        )
        found, expected = compiled(rowptr, col, *ours), step(rowptr, col, *theirs)
        torch.testing.assert_close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
        for one, other in zip(ours, theirs):
            torch.testing.assert_close(one.grad, other.grad)


@DEVICES
def test_inductor_compiles_it(device):
    if not any(map(shutil.which, ("g++", "clang++", "cl"))):
        pytest.skip("there is no C++ compiler for PyTorch's inductor")
    rowptr, col, value, _ = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device).requires_grad_()
    function = lambda x: (2 * wt.spmm((rowptr, col, value), x + 1)).relu().sum()  # noqa: E731
    found = torch.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(found, function(x))
    torch.testing.assert_close(torch.autograd.grad(found, x), torch.autograd.grad(function(x), x))


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_converts_operands(device, dtype):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device)
    value.requires_grad_()
    x = randn(20, 6, device=device).requires_grad_()
    for spmm in (lambda: wt.spmm((rowptr, col, value), x), lambda: torch.ops.windrow.spmm(rowptr, col, value, x)):
        with torch.autocast(device, dtype=dtype):
            out = spmm()
            assert out.dtype == dtype
            products = wt.sddmm((rowptr, col), randn(30, 6, device=device), x)
            assert products.dtype == dtype
            assert wt.edge_softmax((rowptr, col), value, num_cols=20).dtype == torch.float32
        agree(out.detach(), dense.double() @ x.detach().double(), scale=2)
        x.grad = value.grad = None
        out.float().sum().backward()
        assert x.grad.dtype == torch.float32 and value.grad.dtype == torch.float32
        agree(x.grad, dense.double().t() @ torch.ones(30, 6, device=device).double(), dtype, scale=2)


@DEVICES
def test_one_call_gives_the_same_bits_again(device):
    rowptr, col, value, _ = random_csr(300, 200, 0.2, device, torch.float16)
    x = randn(200, 64, device=device, dtype=torch.float16)
    torch.use_deterministic_algorithms(True)
    try:
        first = wt.spmm((rowptr, col, value), x)
        for _ in range(40):
            assert torch.equal(wt.spmm((rowptr, col, value), x), first)
    finally:
        torch.use_deterministic_algorithms(False)


@DEVICES
def test_inference_mode_knows_no_versions(device):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device)
    with torch.inference_mode():
        agree(wt.spmm((rowptr, col, value), x), dense.double() @ x.double())
        made = [t.clone() for t in (rowptr, col, value)]
        before = len(wt.cache)
        for factor in (1, 2, 4):
            agree(wt.spmm(tuple(made), x), factor * dense.double() @ x.double())
            made[2].mul_(2)
        assert len(wt.cache) == before


@DEVICES
def test_matrices_are_copied_and_pickled(device):
    rowptr, col, value, _ = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device)
    a = wt.Csr(rowptr, col, value, 20)
    expected = a @ x
    for other in (copy.deepcopy(a), pickle.loads(pickle.dumps(a))):
        assert torch.equal(other @ x, expected)
