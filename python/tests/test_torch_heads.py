"""Heads of small patterns, which are products of one pattern."""

import pytest
from torch_support import DEVICES, FLOATS, LAYOUTS, ON_CUDA, agree, capture, layouts, randn, random_csr, torch

import windrow.torch as wt
from windrow import errors
from windrow.torch import _pattern
from windrow.torch._cache import cache


pytestmark = pytest.mark.usefixtures("empty_cache")


def attention(a, x, y, values):
    """Products of every family and their gradients."""
    rowptr, col = a
    given = [tensor.detach().clone().requires_grad_() for tensor in (x, y, values)]
    x, y, values = given
    scores = wt.sddmm((rowptr, col), y, x).float() + values
    p = wt.edge_softmax((rowptr, col), scores, num_cols=x.shape[0])
    out = wt.spmm((rowptr, col, p.to(x.dtype)), x) + wt.spmm((rowptr, col), x)
    ramp = torch.linspace(-1, 1, out.numel(), device=out.device, dtype=torch.float64).view_as(out)
    (out.double() * ramp).sum().backward()
    return [out.detach(), *(tensor.grad for tensor in given)]


@DEVICES
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", [kind for kind in FLOATS if kind != torch.float64])
def test_together_they_are_what_they_are_alone(device, dtype, index, monkeypatch):
    rowptr, col, _, _ = random_csr(40, 30, 0.2, device, index=index)
    x, y = randn(30, 3, 5, device=device, dtype=dtype), randn(40, 3, 5, device=device, dtype=dtype, seed=2)
    values = randn(3, col.numel(), device=device)
    for x in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
        together = attention((rowptr, col), x, y, values)
        of_heads = next(iter(cache.patterns.values())).by_heads
        assert list(of_heads) == [3] and of_heads[3].plans
        cache.clear()
        with monkeypatch.context() as patch:
            patch.setattr(_pattern, "HEADS_TOGETHER", 0)
            alone = attention((rowptr, col), x, y, values)
        assert not next(iter(cache.patterns.values())).by_heads
        cache.clear()
        for one, other in zip(together, alone):
            assert one.shape == other.shape and one.stride() == other.stride()
            agree(one, other.double(), dtype, scale=4)


@DEVICES
def test_operands_may_repeat_one_element(device):
    rowptr, col, value, dense = random_csr(40, 30, 0.2, device)
    x = randn(30, 3, 5, device=device).requires_grad_()
    weights = value.expand(3, -1).clone().requires_grad_()
    wt.spmm((rowptr, col, weights), x).sum().backward()  # the gradient is one element, expanded
    agree(x.grad, dense.double().sum(0)[:, None, None].expand(30, 3, 5))
    agree(weights.grad, x.detach().double().sum(2).t().index_select(1, col.long()), scale=4)
    one = torch.ones((), device=device)
    agree(wt.sddmm((rowptr, col), one.expand(40, 3, 5), one.expand(30, 3, 5)), torch.full((3, col.numel()), 5.0, device=device))


@DEVICES
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("lying", LAYOUTS)
def test_values_may_lie_in_any_way(device, lying, dtype, together, monkeypatch):
    if not together:
        monkeypatch.setattr(_pattern, "HEADS_TOGETHER", 0)
    rowptr, col, _, dense = random_csr(40, 30, 0.2, device)
    x, y = randn(30, 3, 5, device=device, dtype=dtype), randn(40, 3, 5, device=device, dtype=dtype, seed=2)
    values = layouts(randn(3, col.numel(), device=device, dtype=dtype))[lying]
    weights = torch.zeros(3, 40, 30, dtype=torch.float64, device=device)
    weights[:, dense != 0] = values.double()
    of_x = torch.einsum("hmn,nhd->mhd", weights, x.double())
    of_y = torch.einsum("hmn,mhd->nhd", weights, y.double())
    for _ in range(2):
        agree(wt.spmm((rowptr, col, values), x), of_x)
        agree(torch.ops.windrow.spmm_t(rowptr, col, values, y, 30), of_y)
    # Gradients of sampled products are values, too: of a sum they are one element.
    given = [tensor.clone().requires_grad_() for tensor in (y, x)]
    wt.sddmm((rowptr, col), *given).backward(values)
    agree(given[0].grad, of_x)
    agree(given[1].grad, of_y)


@DEVICES
def test_values_at_one_address_are_told_apart_by_how_they_lie(device, planned):
    rowptr, col, _, _ = random_csr(40, 30, 0.2, device)
    nnz, x, y = col.numel(), randn(30, 3, 5, device=device), randn(40, 3, 5, device=device)
    wide = randn(3, 2 * nnz, device=device)
    for _ in range(2):
        for values in (wide[:, ::2], wide[:, :nnz], wide.flatten()[: 3 * nnz].view(3, nnz)):
            assert values.data_ptr() == wide.data_ptr()
            copy = values.clone(memory_format=torch.contiguous_format)
            agree(wt.spmm((rowptr, col, values), x), wt.spmm((rowptr, col, copy), x).double())
            products = [torch.ops.windrow.spmm_t(rowptr, col, given, y, 30) for given in (values, copy)]
            agree(products[0], products[1].double())


@DEVICES
def test_a_wrong_pattern_is_told_by_its_own_rows(device):
    far = (torch.tensor([0, 1, 3], device=device), torch.tensor([0, 1, 7], device=device))
    for _ in range(2):
        with pytest.raises(errors.FormatError, match="row 1, entry 2: column 7"):
            wt.spmm(far, randn(5, 3, 4, device=device))


@ON_CUDA
def test_two_steps_are_enough_for_a_capture(device):
    rowptr, col, _, _ = random_csr(300, 200, 0.1, device)
    x, y = randn(200, 4, 8, device=device), randn(300, 4, 8, device=device, seed=2)
    values = randn(4, col.numel(), device=device)
    # Gradients are tensors of each call, so what is captured are the products.

    def step():
        p = wt.edge_softmax((rowptr, col), wt.sddmm((rowptr, col), y, x) + values, num_cols=200)
        return wt.spmm((rowptr, col, p), x)

    graph, captured = capture(step, steps_before=2)
    graph.replay()
    expected = step()
    graph.replay()
    agree(captured, expected.double())


@ON_CUDA
def test_streams_share_the_pattern(device):
    rowptr, col, _, dense = random_csr(300, 200, 0.1, device)
    x = randn(200, 4, 8, device=device)
    expected = torch.einsum("mn,nhd->mhd", (dense != 0).double(), x.double())
    torch.cuda.synchronize()
    results = []
    for _ in range(6):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            results.append(wt.spmm((rowptr, col), x))
    torch.cuda.synchronize()
    for result in results:
        agree(result, expected)
