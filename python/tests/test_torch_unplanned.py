"""Products of patterns that were not met before: on a GPU they are made without a plan."""

import pytest
from torch_support import ERRORS, FLOATS, ON_CUDA, agree, capture, randn, random_csr, torch, waiting_for_nothing

import windrow.torch as wt
from windrow import errors
from windrow.torch._cache import cache


pytestmark = pytest.mark.usefixtures("empty_cache")


@ON_CUDA
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("dtype", FLOATS)
def test_the_first_product_has_no_plan(device, dtype, index):
    rowptr, col, value, dense = random_csr(300, 200, 0.1, device, dtype, index)
    for width in (1, 6, 64, 200):
        x = randn(200, width, device=device, dtype=dtype)
        for a, expected in (((rowptr, col, value), dense), ((rowptr, col), dense != 0)):
            cache.clear()
            misses = cache.misses
            found = wt.spmm(a, x)
            assert len(cache) == 0 and cache.misses == misses + 1
            agree(found, expected.double() @ x.double())
            torch.testing.assert_close(wt.spmm(a, x), found, rtol=ERRORS[dtype], atol=10 * ERRORS[dtype])
            assert len(cache) == 1 and cache.misses == misses + 1


@ON_CUDA
def test_it_waits_for_nothing(device):
    patterns = [random_csr(400, 300, 0.1, device, seed=seed)[:3] for seed in range(12)]
    x = randn(300, 64, device=device)
    for pattern in patterns[:2]:
        wt.spmm(pattern, x)
    with waiting_for_nothing("a product without a plan"):
        for pattern in patterns[2:]:
            wt.spmm(pattern, x)
    assert len(cache) == 0


@ON_CUDA
def test_a_wrong_pattern_gives_nan_and_then_an_exception(device):
    x = randn(5, 3, device=device)
    far = (torch.tensor([0, 2], device=device), torch.tensor([1, 7], device=device))
    short = (torch.tensor([0, 3], device=device), torch.tensor([1, 2], device=device))
    for wrong, text in ((far, "column 7"), (short, "3")):
        assert wt.spmm(wrong, x).isnan().all()
        with pytest.raises(errors.FormatError, match=text):
            wt.spmm(wrong, x)
    with pytest.raises(errors.FormatError, match="column 7"):
        wt.check(far, num_cols=5)
    cache.clear()
    cache.unplanned = False
    with pytest.raises(errors.FormatError, match="column 7"):
        wt.spmm(far, x)


@ON_CUDA
def test_two_steps_are_enough_for_a_capture(device):
    rowptr, col, value, dense = random_csr(300, 200, 0.1, device)
    x = randn(200, 32, device=device).requires_grad_()

    def step():
        out = wt.spmm((rowptr, col, value), x)
        return out, torch.autograd.grad(out.square().sum(), x)[0]

    graph, captured = capture(step, steps_before=2)
    graph.replay()
    expected = dense.double() @ x.detach().double()
    agree(captured[0].detach(), expected)
    agree(captured[1], 2 * dense.double().t() @ expected, scale=4)


@ON_CUDA
def test_determinism_has_one_plan_from_the_first(device):
    rowptr, col, value, _ = random_csr(300, 200, 0.1, device)
    x = randn(200, 32, device=device)
    torch.use_deterministic_algorithms(True)
    try:
        results = [wt.spmm((rowptr, col, value), x) for _ in range(cache.full_after + 2)]
    finally:
        torch.use_deterministic_algorithms(False)
    assert len(cache) == 1
    assert all(torch.equal(result, results[0]) for result in results)


@ON_CUDA
def test_memory_that_comes_back_is_not_taken_for_a_pattern_met_before(device):
    ends, x = torch.tensor([0, 1, 2], device=device), torch.eye(4, device=device)
    for at in range(20):
        col = torch.full((2,), at % 4, device=device)
        assert wt.spmm((ends, col), x).argmax(1).tolist() == [at % 4] * 2
        del col
    assert len(cache) == 0
    with torch.inference_mode():
        ends, col = torch.tensor([0, 1, 2], device=device), torch.tensor([0, 1], device=device)
        for _ in range(3):
            assert wt.spmm((ends, col), x).argmax(1).tolist() == [0, 1]


def test_on_a_cpu_there_is_a_plan_from_the_first():
    rowptr, col, value, dense = random_csr(30, 20, 0.2)
    x = randn(20, 6)
    agree(wt.spmm((rowptr, col, value), x), dense.double() @ x.double())
    assert len(cache) == 1
