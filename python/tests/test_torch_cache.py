"""Plans that are kept: by which tensors, how many, for how long; threads, streams, graphs and processes."""

import concurrent.futures
import gc
import multiprocessing
import os
import threading

import numpy
import pytest
from torch_support import (
    DEVICES,
    ON_CUDA,
    agree,
    capture,
    on_a_side_stream,
    randn,
    random_csr,
    torch,
    waiting_for_nothing,
)

import windrow.torch as wt
from windrow import errors
from windrow.torch import _kept
from windrow.torch._cache import Cache, cache

# Enough to see a leak of a kilobyte a pattern; WINDROW_TEST_PLANS=10000 is the whole test.
PATTERNS = int(os.environ.get("WINDROW_TEST_PLANS", "500"))


pytestmark = pytest.mark.usefixtures("empty_cache")


@DEVICES
def test_a_pattern_is_planned_once(device):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device).requires_grad_()
    misses = cache.misses
    sparse = torch.sparse_csr_tensor(rowptr, col, value, dense.shape)
    for a in ((rowptr, col, value), (rowptr, col), sparse, wt.Csr(rowptr.view(-1), col.detach(), value)):
        wt.spmm(a, x).sum().backward()
    assert len(cache) == 1 and cache.misses == misses + 1, cache


@DEVICES
def test_plans_die_with_their_tensors(device, planned):
    rowptr, col, value, _ = random_csr(30, 20, 0.2, device)
    wt.spmm((rowptr, col, value), randn(20, 6, device=device))
    view = col.view(-1)
    assert len(cache) == 1
    del col
    gc.collect()
    assert len(cache) == 1, "a view keeps the memory"
    del view
    gc.collect()
    assert len(cache) == 0
    assert not cache.of_storage.keys() - {id(rowptr.untyped_storage())}


@DEVICES
def test_indices_that_change_are_another_pattern(device, planned):
    ends, col = torch.tensor([0, 1, 2], device=device), torch.tensor([0, 1], device=device)
    x = torch.eye(4, device=device)
    assert wt.spmm((ends, col), x).argmax(1).tolist() == [0, 1]
    col.add_(2)
    assert wt.spmm((ends, col), x).argmax(1).tolist() == [2, 3]
    assert wt.spmm((ends, col), x[:4]).argmax(1).tolist() == [2, 3]
    col.fill_(7)
    with pytest.raises(errors.FormatError, match="column 7"):
        wt.spmm((ends, col), x)
    assert len(cache) == 1, "a version takes the place of the one before"


@DEVICES
def test_memory_that_comes_back_is_another_pattern(device):
    ends, x = torch.tensor([0, 1, 2], device=device), torch.eye(4, device=device)
    seen, again, at = set(), 0, 0
    while again < 10:
        col = torch.full((2,), at % 4, device=device)
        again += col.data_ptr() in seen
        seen.add(col.data_ptr())
        assert wt.spmm((ends, col), x).argmax(1).tolist() == [at % 4] * 2
        del col
        at += 1
        assert at < 10_000, "the allocator was to give memory back"


def test_layers_see_other_offsets_in_memory_that_comes_back():
    memory, col, x = numpy.array([0, 2, 3, 4]), torch.tensor([0, 1, 2, 0]), torch.eye(3)
    layer = wt.nn.SAGEConv(3, 2, aggr="sum")
    for offsets in ([0, 2, 3, 4], [0, 1, 2, 4], [0, 1, 3, 4], [0, 2, 3, 4]):
        memory[:] = offsets
        rowptr = torch.from_numpy(memory)
        assert rowptr.data_ptr() == memory.ctypes.data and rowptr._version == 0
        found = layer(x, wt.Csr(rowptr, col))
        del rowptr
        assert torch.equal(found, layer(x, wt.Csr(torch.tensor(offsets), col.clone()))), offsets
    # The same address and another stride are other offsets.
    base = torch.tensor([0, 1, 2, 4, 3, 9, 4])
    for rowptr in (base[:4], base[::2]):
        found = layer(x, wt.Csr(rowptr, col))
        assert torch.equal(found, layer(x, wt.Csr(rowptr.clone(), col.clone())))


def test_what_is_kept_by_tensors_that_are_gone_is_none():
    kept = len(_kept._of_processes)
    col, x, layer = torch.tensor([0, 1, 2, 0]), torch.eye(3), wt.nn.SAGEConv(3, 2)
    for _ in range(5):
        rowptr = torch.tensor([0, 2, 3, 4])
        layer(x, wt.Csr(rowptr, col))
        del rowptr
    gc.collect()
    assert len(_kept._of_processes) == kept


@DEVICES
def test_values_that_change_are_put_into_the_plan(device):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device)
    for factor in (1, 2, 4):
        agree(wt.spmm((rowptr, col, value), x), factor * dense.double() @ x.double())
        value.mul_(2)
    seen, again, factor = set(), 0, 1
    while again < 10:  # memory that comes back, written as often as before
        mine = factor * dense[dense != 0]
        again += mine.data_ptr() in seen
        seen.add(mine.data_ptr())
        agree(wt.spmm((rowptr, col, mine), x), factor * dense.double() @ x.double())
        del mine
        factor += 1
        assert factor < 10_000, "the allocator was to give memory back"


@DEVICES
def test_the_cache_is_bounded_by_use(device, planned):
    cache.size = 3
    x = randn(20, 6, device=device)
    patterns = [random_csr(30, 20, 0.2, device, seed=seed)[:3] for seed in range(5)]
    for pattern in patterns:
        wt.spmm(pattern, x)
        wt.spmm(patterns[0], x)
    assert len(cache) == 3
    misses = cache.misses
    for at in (0, 3, 4):
        wt.spmm(patterns[at], x)
    assert cache.misses == misses
    wt.spmm(patterns[1], x)
    assert cache.misses == misses + 1
    cache.size = 0
    assert len(cache) == 0
    wt.spmm(patterns[0], x)
    assert len(cache) == 0
    with pytest.raises(errors.OptionError, match="-1"):
        cache.size = -1


@DEVICES
def test_what_is_pinned_stays(device, planned):
    cache.size = 1
    x = randn(20, 6, device=device)
    first, second = (random_csr(30, 20, 0.2, device, seed=seed)[:3] for seed in range(2))
    with wt.pin(first, num_cols=20):
        wt.spmm(first, x)
        wt.spmm(second, x)
        misses = cache.misses
        wt.spmm(first, x)
        assert cache.misses == misses
    assert len(cache) == 1
    with pytest.raises(errors.ShapeError, match="num_cols"):
        wt.pin(first)


@DEVICES
def test_plans_are_exchanged_without_a_change_of_results(device):
    rowptr, col, value, dense = random_csr(300, 200, 0.1, device, torch.float16)
    x = randn(200, 32, device=device, dtype=torch.float16)
    for _ in range(cache.full_after + 3):
        agree(wt.spmm((rowptr, col, value), x), dense.double() @ x.double())
        agree(wt.spmm((rowptr, col), x), (dense != 0).double() @ x.double())
    plans = next(iter(cache.patterns.values())).plans
    assert all(product.full for product in plans.values())


@DEVICES
def test_memory_is_flat_over_many_patterns(device):
    def once(seed):
        rowptr, col, value, _ = random_csr(20, 15, 0.2, device, seed=seed % 7)
        value.requires_grad_()
        x = torch.ones(15, 4, device=device, requires_grad=True)
        wt.edge_softmax((rowptr, col), wt.spmm((rowptr, col, value), x).sum() * value, num_cols=15).sum().backward()

    def resident():
        gc.collect()
        if device == "cuda":
            torch.cuda.synchronize()
            free, total = torch.cuda.mem_get_info()
            return total - free
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    if device == "cpu" and not os.path.exists("/proc/self/statm"):
        pytest.skip("the memory of a process is read from /proc")
    for seed in range(PATTERNS // 3):
        once(seed)
    before = resident()
    for seed in range(PATTERNS):
        once(seed)
    assert len(cache) == 0
    # Memory of a GPU comes in large pieces, whoever asks for it.
    assert resident() - before < 1024 * PATTERNS + ((64 if device == "cuda" else 2) << 20)


@DEVICES
def test_threads_share_plans(device):
    rowptr, col, value, dense = random_csr(60, 50, 0.2, device)
    x = randn(50, 8, device=device)
    together = threading.Barrier(4)

    def work(factor):
        mine = factor * value
        together.wait()
        for _ in range(50):
            agree(wt.spmm((rowptr, col, mine), x), factor * dense.double() @ x.double())

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, factor) for factor in (1, 2, 3, 4)]:
            done.result()
    assert len(cache) == 1


@ON_CUDA
def test_streams_keep_their_order(device):
    rowptr, col, value, dense = random_csr(400, 300, 0.1, device)
    x = randn(300, 64, device=device).requires_grad_()
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results = []
    for at in range(20):
        stream = streams[at % 2]
        with torch.cuda.stream(stream):
            torch.cuda._sleep(1_000_000)
            mine = (at + 1) * value
            out = wt.spmm((rowptr, col, mine), x)
            (grad,) = torch.autograd.grad(out.sum(), x)
            results.append((at + 1, out, grad))
    torch.cuda.synchronize()
    for factor, out, grad in results:
        agree(out.detach(), factor * dense.double() @ x.detach().double())
        agree(grad, factor * dense.double().sum(0)[:, None].expand(300, 64))


@ON_CUDA
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_graphs_capture_and_replay(device, dtype):
    rowptr, col, value, dense = random_csr(400, 300, 0.1, device, dtype)
    value.requires_grad_()
    x = randn(300, 64, device=device, dtype=dtype).requires_grad_()
    weight = value.detach().clone()

    def step():
        p = wt.edge_softmax((rowptr, col), value, num_cols=300)
        out = wt.spmm((rowptr, col, value), x) + wt.spmm((rowptr, col), x) + wt.spmm((rowptr, col, weight), x)
        return (out, *torch.autograd.grad(out.float().sum() + p.float().square().sum(), (x, value)))

    on_a_side_stream(step, 3)
    graph, captured = capture(step)
    for factor in (1, 2, -1):
        with torch.no_grad():
            value.copy_(factor * dense[dense != 0])
            weight.copy_(2 * factor * dense[dense != 0])
        graph.replay()
        expected = step()  # plans of their own, beside those of the graph
        graph.replay()
        for one, other in zip(captured, expected):
            agree(one.detach(), other.detach().double(), dtype, scale=2)


@ON_CUDA
def test_a_capture_of_what_was_not_planned_is_refused(device):
    rowptr, col, value, _ = random_csr(40, 30, 0.2, device)
    x = randn(30, 8, device=device)

    def step():
        return wt.spmm((rowptr, col, value), x)

    with pytest.raises(errors.DeviceError, match="twice before the capture"):
        capture(step)
    torch.cuda.synchronize()
    expected = step()
    stream = torch.cuda.Stream()
    step()
    wt.prepare_capture(stream)
    torch.cuda.synchronize()
    graph, captured = capture(step, stream=stream)
    graph.replay()
    torch.testing.assert_close(captured, expected)


@ON_CUDA
def test_a_call_copies_nothing_and_waits_for_nothing(device):
    rowptr, col, value, _ = random_csr(400, 300, 0.1, device)
    x = randn(300, 64, device=device)
    for _ in range(cache.full_after + 3):
        wt.spmm((rowptr, col, value), x)
    with waiting_for_nothing("a call"):
        for _ in range(10):
            wt.spmm((rowptr, col, value), x)


class Subgraphs(torch.utils.data.Dataset):
    """A product for each number, by the worker."""

    def __init__(self, shared):
        self.shared = shared

    def __len__(self):
        return 6

    def __getitem__(self, at):
        rowptr, col, value, _ = random_csr(40, 30, 0.2, seed=at)
        own = wt.spmm((rowptr, col, value), torch.ones(30, 4))
        return own.sum(), wt.spmm(self.shared, torch.ones(30, 4)).sum()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_make_products(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method} here")
    shared = random_csr(40, 30, 0.2, seed=9)[:3]
    of_shared = wt.spmm(shared, torch.ones(30, 4)).sum()
    data = Subgraphs(shared)
    expected = [data[at][0] for at in range(len(data))]
    loader = torch.utils.data.DataLoader(data, num_workers=2, multiprocessing_context=method, timeout=120)
    found = list(loader)
    torch.testing.assert_close(torch.cat([own for own, _ in found]), torch.stack(expected))
    torch.testing.assert_close(torch.cat([of for _, of in found]), of_shared.expand(6))


def test_a_cache_tells_what_it_holds():
    assert repr(Cache()) == "<plans of 0 patterns, at most 64; 0 hits, 0 misses>"
