#!/usr/bin/env python3
"""What a call of windrow.torch costs: on a plan that is kept, and on a new pattern each time, beside torch.sparse.mm.

    python python/examples/torch_overhead.py [--device cuda] [--graph FILE] [--subgraphs 200] [--json]

Prints microseconds from Python until a call returns, of each layer that it goes through, for a matrix without entries:
on a GPU that is until the launch. Then draws subgraphs of a graph, each a pattern that was not seen before, multiplies
each once from tensors on the device, and compares results and total times with torch.sparse.mm. The graph is a file
that scipy reads (.mtx, .mtx.gz, .npz), else one is made up.
"""

import argparse
import json
import time

import torch

import windrow.torch as wt
from windrow.torch._cache import cache
from windrow.torch._device import operand, stream_of


def synchronize(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def microseconds(calls, device, count):
    """Of each call until it returns: of rounds of 50 the quickest, for other work on the machine only adds to it.

    Rounds of all calls take turns, and the device is not fuller than it can keep up with.
    """
    for call in calls.values():
        for _ in range(cache.full_after + 4):
            call()
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(max(count // 50, 3)):
        for what, call in calls.items():
            synchronize(device)
            start = time.perf_counter()
            for _ in range(50):
                call()
            best[what] = min(best[what], (time.perf_counter() - start) / 50 * 1e6)
    synchronize(device)
    return best


def layers(device, calls):
    rowptr = torch.zeros(2, dtype=torch.int64, device=device)
    col, value = torch.empty(0, dtype=torch.int64, device=device), torch.empty(0, device=device)
    x = torch.ones(1, 32, device=device)
    learning, weight = x.clone().requires_grad_(), value.clone().requires_grad_()
    a = (rowptr, col, value)
    sparse = torch.sparse_csr_tensor(rowptr, col, value, (1, 1))
    pattern = (rowptr, col)
    for _ in range(cache.full_after + 2):
        wt.spmm(pattern, x)
    key = (False, False, "f32", False)
    plan = cache.pattern(rowptr, col, 1).plans[key].plan
    out, stream = torch.empty(1, 32, device=device), stream_of(x.device)
    of_x, of_out = operand(x), operand(out)
    found = {
        "the library, by addresses": lambda: plan.run(stream, of_x, of_out),
        "addresses of two tensors": lambda: (operand(x), operand(out)),
        "the current stream": lambda: stream_of(x.device),
        "torch.empty for the result": lambda: x.new_empty((1, 32)),
        "the cache": lambda: cache.pattern(rowptr, col, 1),
        "spmm((rowptr, col), x)": lambda: wt.spmm(pattern, x),
        "spmm((rowptr, col, value), x)": lambda: wt.spmm(a, x),
        "spmm(sparse_csr, x)": lambda: wt.spmm(sparse, x),
        "spmm((rowptr, col), x), x with a gradient": lambda: wt.spmm(pattern, learning),
        "spmm((rowptr, col, value), x), x with a gradient": lambda: wt.spmm(a, learning),
        "spmm((rowptr, col, value), x), both with gradients": lambda: wt.spmm((rowptr, col, weight), learning),
        "torch.ops.windrow.spmm, x with a gradient": lambda: torch.ops.windrow.spmm(rowptr, col, None, learning),
        "torch.ops.windrow.spmm, no gradient": lambda: torch.ops.windrow.spmm(rowptr, col, None, x),
        "torch.sparse.mm(sparse_csr, x)": lambda: torch.sparse.mm(sparse, x),
        "torch.relu(x)": lambda: torch.relu(x),
    }
    return microseconds(found, device, calls)


def graph(path, device):
    import numpy
    import scipy.io
    import scipy.sparse

    if path is None:
        made = scipy.sparse.random(4000, 4000, 5e-3, format="csr", random_state=0, dtype=numpy.float32)
    elif path.endswith(".npz"):
        made = scipy.sparse.load_npz(path)
    else:
        made = scipy.io.mmread(path)
    made = made.tocoo()
    made.sum_duplicates()
    row, col = (torch.from_numpy(index.astype(numpy.int64)).to(device) for index in (made.row, made.col))
    return row, col, made.shape[0], made.shape[1]


def subgraphs(row, col, nodes, count, size, device):
    """Patterns of random sets of rows: `(rowptr, col)` with all columns."""
    order = torch.sort(row * (col.max() + 1) + col).indices
    row, col = row[order], col[order]
    ends = torch.searchsorted(row, torch.arange(nodes + 1, device=device))
    generator = torch.Generator().manual_seed(0)
    made = []
    for _ in range(count):
        chosen = torch.randperm(nodes, generator=generator)[:size].sort().values.to(device)
        lengths = ends[chosen + 1] - ends[chosen]
        rowptr = torch.cat([torch.zeros(1, dtype=torch.int64, device=device), lengths.cumsum(0)])
        entries = torch.repeat_interleave(ends[chosen] - rowptr[:-1], lengths)
        made.append((rowptr, col[entries + torch.arange(entries.numel(), device=device)]))
    return made


def seconds(call, patterns, device, width):
    # The memory of the results is the allocator's already: what it asks of the driver is not what is compared.
    space = [torch.empty(pattern[0].numel() - 1, width, device=device) for pattern in patterns]
    del space
    synchronize(device)
    start, results = time.perf_counter(), []
    for pattern in patterns:
        results.append(call(pattern))
    synchronize(device)
    return time.perf_counter() - start, results


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--graph", help="a file with a matrix; made up if none is given")
    arguments.add_argument("--subgraphs", type=int, default=200)
    arguments.add_argument("--rows", type=int, help="rows of each subgraph; a tenth of the graph's unless given")
    arguments.add_argument("--width", type=int, default=64)
    arguments.add_argument("--calls", type=int, default=2000, help="of each kind")
    arguments.add_argument("--json", action="store_true", help="one line of JSON instead of text")
    given = arguments.parse_args()
    device = torch.device(given.device)
    if device.type == "cuda":
        torch.zeros(1, device=device)
    record = {"device": str(device), "torch": torch.__version__, "microseconds": layers(device, given.calls)}

    row, col, rows, cols = graph(given.graph, device)
    patterns = subgraphs(row, col, rows, given.subgraphs + 5, given.rows or max(rows // 10, 1), device)
    x = torch.randn(cols, given.width, device=device)

    def theirs(pattern):
        rowptr, col = pattern
        a = torch.sparse_csr_tensor(rowptr, col, torch.ones(col.numel(), device=device), (rowptr.numel() - 1, cols))
        return torch.sparse.mm(a, x)

    def ours(pattern):
        return wt.spmm(pattern, x)

    for call in (theirs, ours):  # kernels are loaded
        seconds(call, patterns[-5:], device, given.width)
    patterns = patterns[: given.subgraphs]
    cache.size = max(cache.size, 2 * len(patterns))
    of_theirs, expected = seconds(theirs, patterns, device, given.width)
    of_ours, found = seconds(ours, patterns, device, given.width)
    for _ in range(2):  # plans are made
        again, _ = seconds(ours, patterns, device, given.width)
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    entries = sum(pattern[1].numel() for pattern in patterns) / max(len(patterns), 1)
    record["new patterns"] = {
        "patterns": len(patterns),
        "entries of each": entries,
        "width": given.width,
        "torch.sparse.mm, s": of_theirs,
        "windrow, s": of_ours,
        "windrow, kept plans, s": again,
        "times torch.sparse.mm": of_theirs / of_ours,
    }
    if given.json:
        print(json.dumps(record))
        return
    print(f"PyTorch {record['torch']} on {device}; microseconds of a call until it returns:")
    for what, time_of in record["microseconds"].items():
        print(f"{time_of:9.2f}  {what}")
    print(f"{len(patterns)} new patterns of {entries:.0f} entries, width {given.width}; results agree:")
    for what, figure in list(record["new patterns"].items())[3:]:
        print(f"{figure:9.4f}  {what}")


if __name__ == "__main__":
    main()
