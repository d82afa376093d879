"""Matrices that the ranks of a process group have together, against those of one rank."""

import datetime
import os
import socket
import traceback

import pytest
from torch_support import agree, random_csr, randn, torch

import windrow.torch as wt
import windrow.torch.distributed as wd
from windrow import errors

dist = pytest.importorskip("torch.distributed")
pytestmark = pytest.mark.skipif(not dist.is_available(), reason="this PyTorch has no torch.distributed")

SHAPES = [(30, 30), (3, 3), (25, 40), (40, 9), (1, 5)]


def gpus_for(ranks):
    return torch.cuda.device_count() >= ranks


def run(ranks, work, device="cpu"):
    """Has each of so many processes do some work; what fails in one fails here."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_rank, (ranks, port, work, device), ranks)


def _rank(rank, ranks, port, work, device):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=60))
    try:
        work(device)
    except BaseException:
        traceback.print_exc()  # another rank's error may be told instead, which is but this one's consequence
        raise
    finally:
        dist.destroy_process_group()


def of_rank(a, whole, columns=False):
    """Rows of this rank, of all."""
    start, counts = (a.first_column, a.columns) if columns else (a.start, a.rows)
    return whole[start : start + counts[a.rank]]


def _products(device):
    for rows, cols in SHAPES:
        for dtype in (torch.float32, torch.float64, torch.float16):
            rowptr, col, value, dense = random_csr(rows, cols, 0.3, device, dtype)
            a = wd.DistCsr.of(rowptr, col, value.requires_grad_(), cols)
            assert sum(a.rows) == rows and sum(a.columns) == cols and a.report().ranks == dist.get_world_size()
            x, dy = randn(cols, 6, device=device, dtype=dtype), randn(rows, 6, device=device, dtype=dtype, seed=2)
            own = of_rank(a, x, True).clone().requires_grad_()
            y = a @ own
            agree(y.detach(), of_rank(a, dense.double() @ x.double()), dtype, 2)
            y.backward(of_rank(a, dy))
            agree(own.grad, of_rank(a, dense.double().t() @ dy.double(), True), dtype, 2)
            # Each rank has the gradients of its entries.
            begin, end = int(rowptr[a.start]), int(rowptr[a.start + a.rows[a.rank]])
            at = (dense != 0).nonzero()[begin:end]
            agree(value.grad[begin:end], (dy.double()[at[:, 0]] * x.double()[at[:, 1]]).sum(1), dtype, 4)
            value.requires_grad_(False)


def _others(device):
    rowptr, col, value, dense = random_csr(40, 40, 0.2, device)
    a = wd.DistCsr.of(rowptr, col)
    begin, end = int(rowptr[a.start]), int(rowptr[a.start + a.rows[a.rank]])
    x, y = randn(40, 5, device=device), randn(40, 5, device=device, seed=3)
    own_x, own_y = of_rank(a, x).clone().requires_grad_(), of_rank(a, y, True).clone().requires_grad_()
    scores = wd.sddmm(a, own_x, own_y)
    whole = wt.sddmm((rowptr, col), x.requires_grad_(), y.requires_grad_())
    torch.testing.assert_close(scores, whole[begin:end])
    shares = wd.edge_softmax(a, scores)
    torch.testing.assert_close(shares, wt.edge_softmax((rowptr, col), whole, num_cols=40)[begin:end])
    shares.square().sum().backward()
    wt.edge_softmax((rowptr, col), whole, num_cols=40).square().sum().backward()
    torch.testing.assert_close(own_x.grad, of_rank(a, x.grad), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(own_y.grad, of_rank(a, y.grad, True), rtol=1e-4, atol=1e-5)
    # Heads, and values that come later.
    heads, of_heads = randn(40, 2, 3, device=device), randn(2, col.numel(), device=device)
    found = a.with_values(of_heads[:, begin:end]) @ of_rank(a, heads, True)
    torch.testing.assert_close(found, of_rank(a, wt.spmm((rowptr, col, of_heads), heads)), rtol=1e-4, atol=1e-5)
    # The same bits every time.
    assert torch.equal(found, a.with_values(of_heads[:, begin:end]) @ of_rank(a, heads, True))


def _blocks(device):
    """Of a matrix in blocks nothing goes to others, of a band only the rows next to it."""
    ranks = dist.get_world_size()
    a = wd.DistCsr.of(torch.arange(13, device=device), torch.arange(12, device=device))
    assert a.report()[5:] == (0, 0)
    x = randn(12 // ranks, 3, device=device)
    torch.testing.assert_close(a @ x, x)
    torch.testing.assert_close(wd.sddmm(a, x, x), x.square().sum(1))
    near = [[j for j in (i - 1, i, i + 1) if 0 <= j < 60] for i in range(60)]
    rowptr = torch.tensor([0] + [len(row) for row in near], device=device).cumsum(0)
    a = wd.DistCsr.of(rowptr, torch.tensor(sum(near, []), device=device))
    assert a.report().received_rows == a.report().sent_rows == (a.rank > 0) + (a.rank < ranks - 1)
    x = randn(60, 4, device=device)
    own = of_rank(a, x).clone().requires_grad_()
    y = a @ own
    agree(y.detach(), of_rank(a, torch.stack([x.double()[row].sum(0) for row in near])))
    y.square().sum().backward()
    once = torch.stack([x.double()[row].sum(0) for row in near])
    agree(own.grad, of_rank(a, 2 * torch.stack([once[row].sum(0) for row in near])))


def _mistakes(device):
    rank = dist.get_rank()
    rowptr, col, _, _ = random_csr(10, 10, 0.5, device)
    with pytest.raises(errors.ShapeError, match=rf"ranks disagree on num_cols.*rank {1 - rank} has \({11 - rank},"):
        wd.DistCsr(rowptr, col, None, 10 + rank)
    with pytest.raises(errors.ShapeError, match=r"columns are \[3, 3\]: not 20"):
        wd.DistCsr(rowptr, col, None, 20, [3, 3])
    a = wd.DistCsr.of(rowptr.cpu(), col.cpu(), device=device)
    if device == "cuda":
        with pytest.raises(errors.DeviceError, match="the matrix is on the CPU; give DistCsr.of a device"):
            wd.DistCsr.of(rowptr.cpu(), col.cpu())
    with pytest.raises(errors.ShapeError, match=rf"rank {rank} owns \d+ of its rows"):
        a @ randn(11, 2, device=device)


def _gradients(device):
    rank = dist.get_rank()
    one, two = torch.zeros(3, device=device, requires_grad=True), torch.zeros(2, device=device, requires_grad=True)
    (one * (rank + 1)).sum().backward()
    if rank == 0:
        two.sum().backward()
    wd.reduce_gradients([one, two])
    ranks = dist.get_world_size()
    assert one.grad.tolist() == 3 * [ranks * (ranks + 1) / 2] and two.grad.tolist() == [1, 1]


def _all(device):
    for work in (_products, _others, _blocks, _gradients):
        work(device)
    if dist.get_world_size() == 2:
        _mistakes(device)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_have_what_one_has(ranks):
    run(ranks, _all)


@pytest.mark.skipif(not gpus_for(2), reason="there are no two CUDA devices for PyTorch")
def test_ranks_on_gpus_have_what_one_has():
    run(2, _all, "cuda")


def test_rows_are_divided_evenly():
    assert wd.even(10, 4) == [3, 3, 2, 2] and wd.even(2, 3) == [1, 1, 0]
