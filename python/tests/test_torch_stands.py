"""What layers and operators must stand: streams, graphs, workers, other memory, other types, nothing at all."""

import concurrent.futures
import copy
import gc
import multiprocessing
import os
import pickle
import threading

import pytest
from torch_support import (
    CUDA,
    DEVICES,
    NODES,
    ON_CUDA,
    agree,
    capture,
    edges,
    on_a_side_stream,
    randn,
    random_csr,
    torch,
)

import windrow.torch as wt
from windrow import errors
from windrow.torch import _csr
from windrow.torch._cache import cache

LAYERS = {
    "GCNConv": lambda: wt.nn.GCNConv(7, 5),
    "SAGEConv": lambda: wt.nn.SAGEConv(7, 5),
    "GATConv": lambda: wt.nn.GATConv(7, 5, heads=2, edge_dim=3),
    "TransformerConv": lambda: wt.nn.TransformerConv(7, 5, heads=2, edge_dim=3),
}
EACH = pytest.mark.parametrize("name", LAYERS)


def made(name, device, seed=0):
    torch.manual_seed(seed)
    return LAYERS[name]().to(device)


def of_edges(name, index, seed=4):
    """What a layer takes beside features and edges."""
    if name == "GCNConv":
        return (randn(index.shape[1], device=index.device, seed=seed).abs() + 0.1,)
    return () if name == "SAGEConv" else (randn(index.shape[1], 3, device=index.device, seed=seed),)


# Tensors of torch.sparse_csr, whose parts are kept.


@DEVICES
def test_parts_of_a_sparse_tensor_follow_it(device):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device)
    a, x = torch.sparse_csr_tensor(rowptr, col, value.clone(), dense.shape), randn(20, 6, device=device)
    before = len(_csr._sparse)
    changes = [
        lambda: None,
        lambda: a.values().mul_(2),
        lambda: a.mul_(-1),
        lambda: a.copy_(torch.sparse_csr_tensor(rowptr, col, 3 * value, dense.shape)),
        lambda: a.zero_(),
        lambda: a.values().fill_(1),
        lambda: a.col_indices().copy_(a.col_indices()),
        lambda: a.requires_grad_(),
    ]
    for change in changes:
        change()
        for _ in range(2):
            out = wt.spmm(a, x)
            agree(out.detach(), a.detach().to_dense().double() @ x.double())
    out.sum().backward()
    assert a.grad is not None
    assert len(_csr._sparse) == before + 1
    del a, out, change, changes
    gc.collect()
    assert len(_csr._sparse) == before


@DEVICES
def test_sparse_tensors_that_come_and_go_are_told_apart(device):
    x = torch.eye(4, device=device)
    seen = set()
    for at in range(40):
        col = torch.full((2,), at % 4, device=device)
        a = torch.sparse_csr_tensor(torch.tensor([0, 1, 2], device=device), col, torch.ones(2, device=device), (2, 4))
        seen.add(id(a))
        assert wt.spmm(a, x).argmax(1).tolist() == [at % 4] * 2
        del a
    assert len(seen) < 40, "the interpreter was to give addresses back"


@DEVICES
def test_threads_share_tensors(device):
    rowptr, col, value, dense = random_csr(60, 50, 0.2, device)
    shared, together = torch.sparse_csr_tensor(rowptr, col, value, dense.shape), threading.Barrier(4)

    def work(factor):
        mine = torch.sparse_csr_tensor(rowptr, col, factor * value, dense.shape)
        x = randn(50, 8, device=device, seed=factor).requires_grad_()
        together.wait()
        for _ in range(30):
            for a, times in ((mine, factor), (shared, 1)):
                out = wt.spmm(a, x)
                agree(out.detach(), times * dense.double() @ x.detach().double())
                (grad,) = torch.autograd.grad(out.sum(), x)
                agree(grad, times * dense.double().sum(0)[:, None].expand(50, 8))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, factor) for factor in (1, 2, 3, 4)]:
            done.result()


@DEVICES
def test_indices_that_are_written_before_the_backward_pass_are_noticed(device):
    rowptr, col, value, _ = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device).requires_grad_()
    for index in (rowptr, col):
        out = wt.spmm((rowptr, col, value), x)
        index.add_(0)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.sum().backward()


# Streams and graphs.


def steps(device, count=12):
    """For each layer a step of training with other weights each time, and what it gives."""
    index = edges(device)
    for name in LAYERS:
        layer, x = made(name, device), randn(NODES, 7, device=device).requires_grad_()

        def step(at, name=name, layer=layer, x=x):
            out = layer(x, index, *of_edges(name, index, seed=at))
            return (out, *torch.autograd.grad(out.square().sum(), (x, *layer.parameters())))

        yield name, step, [step(at) for at in range(count)]


@ON_CUDA
def test_layers_run_on_two_streams(device):
    for name, step, expected in steps(device):
        cache.clear()
        streams, found = [torch.cuda.Stream() for _ in range(2)], []
        torch.cuda.synchronize()
        for at in range(len(expected)):
            with torch.cuda.stream(streams[at % 2]):
                torch.cuda._sleep(1_000_000)
                found.append(step(at))
        torch.cuda.synchronize()
        for ours, theirs in zip(found, expected):
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@ON_CUDA
def test_what_one_stream_derives_another_may_use(device):
    x, streams = randn(NODES, 7, device=device), [torch.cuda.Stream() for _ in range(2)]
    for seed in range(10):
        index, weight = edges(device, seed=seed), None
        layer = made("GCNConv", device)
        weight = of_edges("GCNConv", index)[0]
        torch.cuda.synchronize()
        found = []
        for stream in streams:
            with torch.cuda.stream(stream):
                torch.cuda._sleep(2_000_000)
                found.append(layer(x, index, weight))
        torch.cuda.synchronize()
        torch.testing.assert_close(found[1], found[0])


@ON_CUDA
@EACH
def test_a_step_of_training_is_captured(device, name):
    index, layer = edges(device), made(name, device)
    x, given = randn(NODES, 7, device=device), of_edges(name, index)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        loss = layer(x, index, *given).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    on_a_side_stream(step, 3)
    start = copy.deepcopy(layer.state_dict())
    graph, captured = capture(step)
    losses = []
    for _ in range(4):
        graph.replay()
        losses.append(captured.clone())
    with torch.no_grad():
        for parameter, first in zip(layer.parameters(), start.values()):
            parameter.copy_(first)
    for loss in losses:
        torch.testing.assert_close(step(), loss, rtol=1e-4, atol=1e-5)


# Processes.


class Samples(torch.utils.data.Dataset):
    """A layer's result for each number, by the worker: of a graph of its own, and of one that is shared."""

    def __init__(self, layer, shared):
        self.layer, self.shared = layer, shared

    def __len__(self):
        return 4

    def __getitem__(self, at):
        x = torch.ones(NODES, 7)
        with torch.no_grad():
            return self.layer(x, edges("cpu", seed=at)).sum(), self.layer(x, self.shared).sum()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_have_layers(method):
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {method} here")
    data = Samples(made("GCNConv", "cpu"), edges("cpu", seed=9))
    expected = [data[at] for at in range(len(data))]
    found = list(torch.utils.data.DataLoader(data, num_workers=2, multiprocessing_context=method, timeout=120))
    for one, other in zip(found, expected):
        torch.testing.assert_close(torch.cat(one), torch.stack(other))


@ON_CUDA
def test_cuda_does_not_survive_a_fork(device):
    rowptr, col, value, _ = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device)
    expected = wt.spmm((rowptr, col, value), x).cpu()
    child = os.fork()
    if child == 0:
        try:
            wt.spmm((rowptr, col, value), x)
        except RuntimeError as error:  # PyTorch's, or windrow's DeviceError, which is one
            os._exit(0 if "CUDA" in str(error) or "spawn" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    torch.testing.assert_close(wt.spmm((rowptr, col, value), x).cpu(), expected)


@DEVICES
@EACH
def test_copies_of_layers_are_layers(device, name):
    index, x = edges(device), randn(NODES, 7, device=device)
    layer, given = made(name, device), of_edges(name, index)
    expected = layer(x, index, *given)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(other(x, index, *given), expected)
        torch.testing.assert_close(other(x, copy.deepcopy(index), *given), expected)


# Bits.


@DEVICES
@EACH
def test_training_gives_the_same_bits_again(device, name, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    index, x = edges(device, nodes=300), randn(300, 7, device=device)

    def train():
        cache.clear()
        layer, given = made(name, device), of_edges(name, index)
        given = tuple(one.detach().requires_grad_() for one in given)
        losses = []
        for _ in range(5):
            layer.zero_grad()
            loss = layer(x, index.clone(), *given).square().mean()
            loss.backward()
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter -= 0.1 * parameter.grad
            losses.append(loss.detach())
        return torch.stack(losses), *(parameter.detach() for parameter in layer.parameters())

    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        for one, other in zip(train(), train()):
            assert torch.equal(one, other)
    finally:
        torch.use_deterministic_algorithms(False)


# Other memory.


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_may_begin_anywhere(device, dtype):
    rowptr, col, value, dense = random_csr(30, 20, 0.2, device, dtype)

    def moved(tensor):
        room = torch.cat([tensor.new_zeros(1), tensor.reshape(-1), tensor.new_zeros(1)])
        return room[1:-1].view(tensor.shape)

    def spread(tensor):
        return torch.stack([tensor, torch.zeros_like(tensor)], -1)[..., 0]

    x, y, scores = (randn(*shape, device=device, dtype=dtype) for shape in ((20, 7), (30, 7), (col.numel(),)))
    there = dense != 0
    expected = (
        dense.double() @ x.double(),
        (y.double() @ x.double().t())[there],
        wt.edge_softmax((rowptr, col), scores, num_cols=20).double(),
    )
    for change in (moved, spread, lambda tensor: moved(spread(tensor))):
        a = tuple(change(tensor) for tensor in (rowptr, col, value))
        for _ in range(2):
            agree(wt.spmm(a, change(x)), expected[0])
            agree(wt.sddmm(a, change(y), change(x)), expected[1], scale=4)
            agree(wt.edge_softmax(a, change(scores), num_cols=20), expected[2])
    learned, weights = moved(x).detach().requires_grad_(), spread(value).detach().requires_grad_()
    wt.spmm((rowptr, col, weights), learned).backward(spread(y))
    agree(learned.grad, dense.double().t() @ y.double())
    agree(weights.grad, expected[1], scale=4)


@DEVICES
@EACH
def test_layers_take_any_strides(device, name):
    index, x = edges(device), randn(NODES, 7, device=device)
    layer, given = made(name, device), of_edges(name, index)
    expected = layer(x, index, *given)
    turned = index.t().contiguous().t()
    inner = torch.cat([index.new_zeros(2, 1), index, index.new_zeros(2, 1)], 1)[:, 1:-1]
    wide = torch.cat([x, x], 1)[:, 7:]
    for edge_index in (turned, inner, index.int()):
        torch.testing.assert_close(layer(wide, edge_index, *given), expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(layer(x.t().contiguous().t(), edge_index, *given), expected, rtol=1e-5, atol=1e-5)


@DEVICES
@EACH
def test_layers_of_graphs_without_edges(device, name):
    layer = made(name, device)
    none = torch.empty(2, 0, dtype=torch.int64, device=device)
    for nodes in (6, 1, 0):
        x = randn(nodes, 7, device=device).requires_grad_()
        out = layer(x, none, *of_edges(name, none))
        assert out.shape == (nodes, 10 if name in ("GATConv", "TransformerConv") else 5)
        out.sum().backward()
        assert x.grad.shape == (nodes, 7) and torch.isfinite(x.grad).all()


# What is wrong.


@DEVICES
@EACH
def test_layers_refuse_what_they_cannot_take(device, name):
    index, layer = edges(device), made(name, device)
    given = of_edges(name, index)
    x = randn(NODES, 7, device=device)
    with pytest.raises(errors.DtypeError, match="torch.int64"):
        layer(x, index.float(), *given)
    with pytest.raises(errors.ShapeError, match="number of edges"):
        layer(x, index.t(), *of_edges(name, index.t()))
    with pytest.raises(errors.DtypeError, match="sparse_csr"):
        layer(x, "edges", *given)
    if name in ("GATConv", "TransformerConv"):
        with pytest.raises(errors.DtypeError, match="computes attention in f32"):
            layer.double()(x.double(), index, *(one.double() for one in given))


@pytest.mark.parametrize("device", [CUDA])
@EACH
def test_layers_refuse_edges_elsewhere(device, name):
    index, layer = edges("cpu"), made(name, device)
    with pytest.raises((RuntimeError, errors.DeviceError)):
        layer(randn(NODES, 7, device=device), index, *of_edges(name, index.to(device)))
