"""Heads of small patterns, which are products of one pattern."""

import pytest
from torch_support import DEVICES, FLOATS, ON_CUDA, agree, capture, randn, random_csr, torch

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
