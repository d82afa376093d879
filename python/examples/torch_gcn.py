#!/usr/bin/env python3
"""Trains PyG's own GCN, SAGE, GAT or GATv2, unchanged, with and without windrow.torch.patch_pyg(), and compares.

    python python/examples/torch_gcn.py [GRAPH] [--model gcn] [--device cuda] [--dtype f16] [--epochs 100] [--json]

GRAPH is a file with an adjacency matrix (.mtx, .mtx.gz, .npz, or .txt with a pair of nodes a line), or the name of a
dataset of torch_geometric.datasets.Planetoid that lies under --root (Cora, CiteSeer, PubMed); made up if none is given.
Where there are no features and labels, features are random and labels those of a random teacher, so that losses fall.
Prints losses and times of epochs of both, and the largest difference of losses. Exit code 1 if that is above
--tolerance.
"""

import argparse
import gzip
import importlib.util
import json
import sys
import time

import torch
import torch.nn.functional as F

import windrow.torch as wt

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def edges_of(path):
    """`(edge_index, nodes)` of a file; edges once each, both ways, none from a node to itself."""
    import numpy
    import scipy.io
    import scipy.sparse

    if path.endswith(".npz"):
        matrix = scipy.sparse.load_npz(path).tocoo()
    elif path.endswith((".mtx", ".mtx.gz")):
        matrix = scipy.io.mmread(path).tocoo()
    else:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt") as file:
            pairs = numpy.loadtxt(file, comments=("#", "%"), dtype=numpy.int64, usecols=(0, 1), ndmin=2)
        _, pairs = numpy.unique(pairs, return_inverse=True)
        pairs = pairs.reshape(-1, 2)
        size = int(pairs.max()) + 1
        matrix = scipy.sparse.coo_matrix((numpy.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), (size, size))
    if matrix.shape[0] != matrix.shape[1]:
        sys.exit(f"{path} is {matrix.shape[0]} x {matrix.shape[1]}; a graph is square")
    return undirected(torch.from_numpy(numpy.vstack([matrix.row, matrix.col]).astype(numpy.int64)), matrix.shape[0])


def undirected(index, nodes):
    index = index[:, index[0] != index[1]]
    return torch.unique(torch.cat([index, index.flip(0)], 1), dim=1), nodes


def data(given):
    """Features, labels, edges, and which nodes are learned from."""
    torch.manual_seed(0)
    if given.graph in ("Cora", "CiteSeer", "PubMed"):
        from torch_geometric.datasets import Planetoid

        graph = Planetoid(given.root, given.graph)[0]
        return graph.x, graph.y, graph.edge_index, graph.train_mask
    if given.graph is None:
        index, nodes = undirected(torch.randint(given.nodes, (2, 10 * given.nodes)), given.nodes)
    else:
        index, nodes = edges_of(given.graph)
    x = torch.randn(nodes, given.features)
    mean = torch.zeros_like(x).index_add_(0, index[1], x[index[0]])
    y = ((x + mean / (1 + index.shape[1] / nodes)) @ torch.randn(given.features, given.classes)).argmax(1)
    return x, y, index, torch.rand(nodes) < 0.5


class Net(torch.nn.Module):
    def __init__(self, name, features, hidden, classes):
        super().__init__()
        from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, SAGEConv

        conv = {"gcn": GCNConv, "sage": SAGEConv, "gat": GATConv, "gatv2": GATv2Conv}[name]
        if name in ("gat", "gatv2"):
            self.one, self.two = conv(features, hidden // 4, heads=4), conv(hidden, classes, heads=1)
        else:
            self.one, self.two = conv(features, hidden), conv(hidden, classes)

    def forward(self, x, index):
        return self.two(self.one(x, index).relu(), index)


def train(given, x, y, index, mask):
    """Losses and seconds of each epoch."""
    device, dtype = torch.device(given.device), DTYPES[given.dtype]
    torch.manual_seed(1)
    net = Net(given.model, x.shape[1], given.hidden, int(y.max()) + 1).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    losses, times = [], []
    for _ in range(given.epochs):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            out = net(x, index)
        loss = F.cross_entropy(out[mask].float(), y[mask])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    return losses, times


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("graph", nargs="?")
    arguments.add_argument("--model", choices=("gcn", "sage", "gat", "gatv2"), default="gcn")
    arguments.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments.add_argument("--dtype", choices=tuple(DTYPES), default="f32", help="of autocast, but for f32")
    arguments.add_argument("--epochs", type=int, default=20)
    arguments.add_argument("--nodes", type=int, default=2000, help="of a graph that is made up")
    arguments.add_argument("--features", type=int, default=64)
    arguments.add_argument("--hidden", type=int, default=64)
    arguments.add_argument("--classes", type=int, default=16)
    arguments.add_argument("--root", default="data", help="where datasets are")
    arguments.add_argument("--tolerance", type=float, default=1e-2)
    arguments.add_argument("--json", action="store_true", help="one line of JSON instead of text")
    given = arguments.parse_args()
    if importlib.util.find_spec("torch_geometric") is None:
        print("PyTorch Geometric is not installed: there is nothing to compare with")
        return

    of_graph = [tensor.to(given.device) for tensor in data(given)]
    runs = {}
    runs["torch_geometric"] = train(given, *of_graph)
    wt.patch_pyg()
    runs["windrow"] = train(given, *of_graph)
    planned = len(wt.cache)
    wt.unpatch_pyg()

    apart = max(abs(one - other) for one, other in zip(runs["torch_geometric"][0], runs["windrow"][0]))
    usual = {name: sorted(times)[len(times) // 2] for name, (_, times) in runs.items()}
    record = {
        "graph": given.graph,
        "nodes": of_graph[0].shape[0],
        "edges": of_graph[2].shape[1],
        "model": given.model,
        "dtype": given.dtype,
        "device": given.device,
        "epochs": given.epochs,
        "median_epoch_s": usual,
        "first_epoch_s": {name: times[0] for name, (_, times) in runs.items()},
        "last_loss": {name: losses[-1] for name, (losses, _) in runs.items()},
        "losses_apart": apart,
        "times_torch_geometric": usual["torch_geometric"] / usual["windrow"],
        "patterns_planned": planned,
    }
    if given.json:
        print(json.dumps(record))
    else:
        print(f"{given.model} in {given.dtype} on {given.device}: {record['nodes']} nodes, {record['edges']} edges")
        for epoch in sorted({0, given.epochs // 4, given.epochs // 2, given.epochs - 1}):
            line = "  ".join(
                f"{name} {losses[epoch]:.5f} in {times[epoch] * 1e3:8.3f} ms" for name, (losses, times) in runs.items()
            )
            print(f"epoch {epoch:4}  {line}")
        print(f"median epoch: {record['times_torch_geometric']:.2f} times torch_geometric's; losses apart by {apart:.1e}")
    if planned == 0:
        sys.exit("nothing ran on windrow")
    if apart > given.tolerance:
        sys.exit(1)


if __name__ == "__main__":
    main()
