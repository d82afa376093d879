#!/usr/bin/env python3
"""Five-layer GCN and AGNN in PyTorch with PyTorch Geometric: the peers of windrow's examples `gcn` and `agnn`.

The same graph (undirected, with loops), features, classes, sizes, initialisation, loss and optimiser; prints one line of
JSON with the keys of the examples' `--json`. README.md beside this file says how to run both.

Layouts, `--layout`:
  edge_index     GCNConv(cached=True) or AGNNConv on a 2 x E tensor of edges: gather, then scatter
  sparse_tensor  the same on torch_sparse.SparseTensor, which GCNConv multiplies without messages for each edge
  csr            GCN only, without PyG: a torch.sparse CSR matrix (cuSPARSE), forward and, as it is symmetric, backward;
                 the one layout for --precision f16, in which operands of the sparse product are f16 as in windrow
"""

import argparse
import gzip
import json
import statistics
import sys
import time

import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)


def mix(state):
    """The output function of SplitMix64, for an array of states."""
    z = state
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream(seed, count):
    """The first numbers of SplitMix64's stream for a seed."""
    with np.errstate(over="ignore"):
        return mix(np.uint64(seed % 2**64) + GAMMA * np.arange(1, count + 1, dtype=np.uint64))


def seeded_values(count, seed):
    """Multiples of 2^-23 in [-1, 1), as windrow's `seeded_values` draws them."""
    bits = (stream(seed, count) >> np.uint64(40)).astype(np.float64)
    return (bits / 2.0**23 - 1.0).astype(np.float32)


def read_matrix_market(path):
    """Rows and columns of the entries, and the numbers of rows and columns."""
    try:
        from scipy.io import mmread

        coo = mmread(path).tocoo()
        return np.asarray(coo.row, np.int64), np.asarray(coo.col, np.int64), coo.shape
    except ImportError:
        pass
    opened = gzip.open(path, "rt") if path.endswith(".gz") else open(path)
    with opened as file:
        header = file.readline().lower().split()
        if len(header) < 5 or header[0] != "%%matrixmarket" or header[2] != "coordinate":
            sys.exit(f"{path}: not a coordinate matrix of Matrix Market")
        line = file.readline()
        while line.startswith("%") or not line.strip():
            line = file.readline()
        rows, cols, _ = (int(word) for word in line.split())
        table = np.loadtxt(file, usecols=(0, 1), dtype=np.int64, ndmin=2) - 1
    # Which of two symmetric entries is listed does not matter: the graph becomes undirected anyway.
    return table[:, 0], table[:, 1], (rows, cols)


def undirected(path):
    """Targets, sources and number of nodes of the graph with every edge in both directions and a loop at every node,
    ordered by target."""
    row, col, (n, m) = read_matrix_market(path)
    if n != m:
        sys.exit(f"{path}: {n} x {m}: the adjacency of a graph is square")
    loops = np.arange(n, dtype=np.int64)
    keys = np.unique(np.concatenate([row * n + col, col * n + row, loops * n + loops]))
    return keys // n, keys % n, n


def task(n, options):
    """Features, labels and which nodes are learned from."""
    if options.labels:
        table = np.loadtxt(options.labels, dtype=np.int64, ndmin=2)
        if table.shape != (n, 2):
            sys.exit(f"{options.labels}: {table.shape[0]} lines for {n} nodes: write it for this graph, with --write-labels")
        labels, trained = table[:, 0], table[:, 1] != 0
    else:
        print("no --labels: classes do not follow communities; times are right, accuracies are not", file=sys.stderr)
        labels = np.arange(n, dtype=np.int64) * options.classes // max(n, 1)
        bits = stream(options.seed + (2 << 32), n) >> np.uint64(32)
        trained = (bits * np.uint64(5) >> np.uint64(32)) < 3
    if labels.max(initial=0) >= options.classes:
        sys.exit(f"{options.labels}: label {labels.max()}, but --classes {options.classes}")
    width = options.features
    centres = seeded_values(options.classes * width, options.seed).reshape(-1, width)
    noise = seeded_values(n * width, options.seed + (1 << 32)).reshape(-1, width)
    return centres[labels] + np.float32(options.noise) * noise, labels, trained


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["gcn", "agnn"])
    parser.add_argument("graph", help="a Matrix Market file, .gz or not")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--classes", type=int, default=16)
    parser.add_argument("--noise", type=float, default=2.0)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layout", choices=["edge_index", "sparse_tensor", "csr"], default="edge_index")
    parser.add_argument("--precision", choices=["f32", "f16"], default="f32", help="of the operands of sparse products")
    parser.add_argument("--dense", choices=["f32", "tf32"], default="f32", help="how dense products multiply f32")
    parser.add_argument("--labels", help="what the example wrote with --write-labels")
    options = parser.parse_args()
    if options.layers < 1:
        parser.error("--layers must be at least 1")
    if options.model == "agnn" and options.layout == "csr":
        parser.error("--layout csr is for gcn: AGNN needs products at edges, which PyG has")
    if options.precision == "f16" and options.layout != "csr":
        parser.error("--precision f16 needs --layout csr: PyG's layers compute messages in the type of the model")
    return options


def build(options, target, source, n, scale):
    """The model, and what its layers take as edges."""
    import torch
    from torch import nn
    from torch.nn import functional

    widths = [options.features] + [options.hidden] * (options.layers - 1) + [options.classes]
    device = torch.device(options.device)

    def edges():
        if options.layout == "edge_index":
            return torch.from_numpy(np.stack([source, target])).to(device)
        from torch_sparse import SparseTensor

        row, col = (torch.from_numpy(ends).to(device) for ends in (target, source))
        return SparseTensor(row=row, col=col, sparse_sizes=(n, n), is_sorted=True)

    def normalized():
        degrees = np.bincount(target, minlength=n).astype(np.float32)
        roots = 1.0 / np.sqrt(degrees)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=n))])
        kind = torch.float16 if options.precision == "f16" else torch.float32
        values = torch.from_numpy(roots[target] * roots[source]).to(device, kind)
        arrays = (torch.from_numpy(array).to(device, torch.int32) for array in (offsets, source))
        return torch.sparse_csr_tensor(*arrays, values, size=(n, n))

    class Product(torch.autograd.Function):
        """A times x, for a symmetric A; gradients are scaled while they are f16."""

        @staticmethod
        def forward(context, a, x):
            context.a = a
            return torch.sparse.mm(a, x.to(a.dtype)).float()

        @staticmethod
        def backward(context, gradient):
            a = context.a
            return None, torch.sparse.mm(a, (gradient * scale).to(a.dtype)).float() / scale

    class CsrConv(nn.Module):
        """GCNConv's formula on a CSR matrix."""

        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(torch.empty(inputs, outputs))
            self.bias = nn.Parameter(torch.zeros(outputs))
            nn.init.xavier_uniform_(self.weight)

        def forward(self, x, a):
            return Product.apply(a, x @ self.weight) + self.bias

    class AttentionConv(nn.Module):
        """A weight, then AGNN's propagation with a factor that is learned."""

        def __init__(self, inputs, outputs):
            super().__init__()
            from torch_geometric.nn import AGNNConv

            self.weight = nn.Parameter(torch.empty(inputs, outputs))
            nn.init.xavier_uniform_(self.weight)
            # The edges have the loops already.
            self.propagation = AGNNConv(requires_grad=True, add_self_loops=False)

        def forward(self, x, edges):
            return self.propagation(x @ self.weight, edges)

    def layer(inputs, outputs):
        if options.model == "agnn":
            return AttentionConv(inputs, outputs)
        if options.layout == "csr":
            return CsrConv(inputs, outputs)
        from torch_geometric.nn import GCNConv

        # Loops that are there are not added again.
        return GCNConv(inputs, outputs, cached=True)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layer(*ends) for ends in zip(widths, widths[1:]))

        def forward(self, x, edges):
            for conv in self.layers[:-1]:
                x = functional.relu(conv(x, edges))
            return self.layers[-1](x, edges)

    return Model().to(device), normalized() if options.layout == "csr" else edges()


def main():
    options = arguments()
    import torch
    from torch.nn import functional

    torch.manual_seed(options.seed)
    torch.backends.cuda.matmul.allow_tf32 = options.dense == "tf32"
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"

    def wait():
        if on_gpu:
            torch.cuda.synchronize(device)

    target, source, n = undirected(options.graph)
    features, labels, trained = task(n, options)
    start = time.perf_counter()
    # As in windrow's examples: gradients of a mean over many nodes are below the range of f16.
    scale = max(2.0 ** int(np.ceil(np.log2(max(trained.sum(), 1)))) / 16, 1.0) if options.precision == "f16" else 1.0
    model, edges = build(options, target, source, n, scale)
    wait()
    preprocessing_s = time.perf_counter() - start
    x = torch.from_numpy(features).to(device)
    y = torch.from_numpy(labels).to(device)
    chosen = torch.from_numpy(np.flatnonzero(trained)).to(device)
    others = torch.from_numpy(np.flatnonzero(~trained)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)

    times = []
    for _ in range(options.epochs):
        wait()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = model(x, edges)
        loss = functional.cross_entropy(logits[chosen], y[chosen])
        loss.backward()
        optimizer.step()
        wait()
        times.append((time.perf_counter() - start) * 1e3)

    with torch.no_grad():
        logits = model(x, edges)
        loss = functional.cross_entropy(logits[chosen], y[chosen]).item()
        right = logits.argmax(dim=1) == y

        def share(which):
            return right[which].float().mean().item() if len(which) else 0.0

        train, test = share(chosen), share(others)

    versions = {"torch": torch.__version__, "cuda": torch.version.cuda}
    if options.layout != "csr":
        import torch_geometric

        versions["torch_geometric"] = torch_geometric.__version__
    counted = times[min(options.warm_up, max(len(times) - 1, 0)):]
    print(json.dumps({
        "schema": 1,
        "model": options.model,
        "program": f"pytorch, {options.layout}",
        "versions": versions,
        "graph": options.graph,
        "nodes": n,
        "entries": len(target),
        "layers": options.layers,
        "features": options.features,
        "hidden": options.hidden,
        "classes": options.classes,
        "precision": options.precision,
        "dense": options.dense,
        "seed": options.seed,
        "learning_rate": options.learning_rate,
        "device": torch.cuda.get_device_name(device) if on_gpu else str(device),
        "epochs": len(times),
        "epoch_ms": statistics.median(counted) if counted else None,
        "total_s": sum(times) / 1e3,
        "preprocessing_s": preprocessing_s,
        "peak_bytes": torch.cuda.max_memory_allocated(device) if on_gpu else None,
        "loss": loss,
        "train_accuracy": train,
        "test_accuracy": test,
    }))


if __name__ == "__main__":
    main()
