#!/usr/bin/env python3
"""Trains a GCN of two layers on a graph that several ranks have together, and on rank 0 alone, and compares.

    torchrun --nproc-per-node 2 python/examples/dist_gcn.py [GRAPH] [--device cuda] [--epochs 20] [--json]

GRAPH is a Matrix Market file with an adjacency matrix; made up if none is given. Features are random and labels those of
a random teacher, so that losses fall. Each rank has a range of nodes: their rows of the normalised adjacency matrix,
their features and their labels. Without torchrun there is one rank. `--memory GB` limits what PyTorch takes of each GPU;
rank 0 alone may then be out of memory, which is told. Exit code 1 if losses are further apart than --tolerance.
"""

import argparse
import json
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

import windrow.torch.distributed as wd


def graph(given):
    """Offsets and columns of a symmetric graph in which each node has an edge to itself, the same for all ranks."""
    torch.manual_seed(0)
    if given.graph is None:
        nodes, edges = given.nodes, given.nodes * given.degree // 2
        # Most edges are short: the ranks' nodes are neighbours of few others.
        row = torch.randint(nodes, (edges,))
        far = torch.rand(edges) < given.far
        near = (row + torch.randint(1, 2 * given.degree, (edges,))).remainder(nodes)
        col = torch.where(far, torch.randint(nodes, (edges,)), near)
    else:
        import scipy.io

        matrix = scipy.io.mmread(given.graph).tocoo()
        nodes = matrix.shape[0]
        row, col = torch.from_numpy(matrix.row).long(), torch.from_numpy(matrix.col).long()
    node = torch.arange(nodes)
    keys = torch.unique(torch.cat([row * nodes + col, col * nodes + row, node * nodes + node]))
    rowptr = torch.zeros(nodes + 1, dtype=torch.int64)
    rowptr[1:] = torch.bincount(keys // nodes, minlength=nodes).cumsum(0)
    return rowptr, keys % nodes


def normalized(a):
    """`D^(-1/2)·A·D^(-1/2)`."""
    scale = a.csr.rowptr.diff().float().rsqrt().unsqueeze(1)
    return a.with_values(wd.sddmm(a, scale, scale))


def train(given, whole, device, group):
    """Losses and seconds of each epoch, and what the matrix is, for the ranks of a group."""
    rowptr, col = whole
    a = normalized(wd.DistCsr.of(rowptr, col, device=device, group=group))
    nodes, first = rowptr.numel() - 1, a.start
    # Of the features of all nodes each rank draws its own: a node's are the same wherever it is.
    own = slice(first, first + a.rows[a.rank])
    torch.manual_seed(1)
    x = torch.empty(a.rows[a.rank], given.features)
    for start in range(0, nodes, 1 << 16):
        drawn = torch.randn(min(1 << 16, nodes - start), given.features)
        low, high = max(start, own.start), min(start + drawn.shape[0], own.stop)
        if low < high:
            x[low - own.start : high - own.start] = drawn[low - start : high - start]
    x = x.to(device)
    torch.manual_seed(2)
    weights = [
        (torch.randn(given.features, given.hidden) / given.features**0.5).to(device).requires_grad_(),
        (torch.randn(given.hidden, given.classes) / given.hidden**0.5).to(device).requires_grad_(),
    ]
    y = (wd.spmm(a, x) @ torch.randn(given.features, given.classes).to(device)).argmax(1)
    optimizer = torch.optim.Adam(weights, lr=0.01)
    losses, times = [], []
    for _ in range(given.epochs):
        if device.type == "cuda":
            torch.cuda.synchronize()
        begun = time.perf_counter()
        optimizer.zero_grad()
        out = wd.spmm(a, wd.spmm(a, x @ weights[0]).relu() @ weights[1])
        loss = F.cross_entropy(out, y, reduction="sum") / nodes
        loss.backward()
        wd.reduce_gradients(weights, group)
        optimizer.step()
        loss = loss.detach().clone()
        dist.all_reduce(loss, group=group)
        losses.append(loss.item())
        times.append(time.perf_counter() - begun)
    return losses, times, a.report()


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("graph", nargs="?")
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    arguments.add_argument("--epochs", type=int, default=20)
    arguments.add_argument("--nodes", type=int, default=4000, help="of a graph that is made up")
    arguments.add_argument("--degree", type=int, default=16, help="of its nodes, about")
    arguments.add_argument("--far", type=float, default=0.02, help="share of its edges that lead anywhere")
    arguments.add_argument("--features", type=int, default=64)
    arguments.add_argument("--hidden", type=int, default=64)
    arguments.add_argument("--classes", type=int, default=16)
    arguments.add_argument("--memory", type=float, help="GB of each GPU that PyTorch may take")
    arguments.add_argument("--tolerance", type=float, default=1e-4)
    arguments.add_argument("--json", action="store_true", help="one line of JSON instead of text")
    given = arguments.parse_args()

    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if given.device == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        if given.memory is not None:
            total = torch.cuda.get_device_properties(device).total_memory
            torch.cuda.set_per_process_memory_fraction(given.memory * 1e9 / total, device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    if "RANK" in os.environ:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)

    whole = graph(given)
    losses, times, report = train(given, whole, device, None)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    alone, alone_times, lacking = None, None, None
    group = dist.new_group([0])
    if rank == 0:
        try:
            alone, alone_times, _ = train(given, whole, device, group)
        except torch.OutOfMemoryError as error:
            lacking = str(error).split(". ")[0]
    reports = [None] * ranks
    dist.all_gather_object(reports, (tuple(report), peak))
    apart = None if alone is None else max(abs(one - other) for one, other in zip(losses, alone))
    if rank == 0:
        usual = sorted(times)[len(times) // 2]
        record = {
            "nodes": whole[0].numel() - 1,
            "entries": whole[1].numel(),
            "ranks": ranks,
            "device": given.device,
            "median_epoch_s": usual,
            "alone_median_epoch_s": None if alone is None else sorted(alone_times)[len(alone_times) // 2],
            "first_loss": losses[0],
            "last_loss": losses[-1],
            "losses_apart": apart,
            "alone": lacking or "as well",
            "received_rows": [one[5] for one, _ in reports],
            "peak_bytes": [peak for _, peak in reports],
        }
        if given.json:
            print(json.dumps(record))
        else:
            print(f"{record['nodes']} nodes, {record['entries']} entries on {ranks} ranks of {given.device}")
            print(f"rows of others that each rank gets: {record['received_rows']}")
            print(f"losses {losses[0]:.5f} to {losses[-1]:.5f}, median epoch {usual * 1e3:.2f} ms")
            if alone is None:
                print(f"rank 0 alone: {lacking}")
            else:
                print(f"rank 0 alone: {record['alone_median_epoch_s'] * 1e3:.2f} ms; losses apart by {apart:.1e}")
    dist.destroy_process_group()
    if apart is not None and apart > given.tolerance:
        sys.exit(1)


if __name__ == "__main__":
    main()
