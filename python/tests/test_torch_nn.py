"""Layers against torch_geometric's own."""

import copy
import pickle

import pytest
from torch_support import DEVICES, NODES, agree, edges, randn, same, torch

import windrow.torch as wt
from windrow import errors

pyg = pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed: its layers are not compared")
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, SAGEConv, TransformerConv  # noqa: E402

LAYERS = [wt.nn.GCNConv, wt.nn.SAGEConv, wt.nn.GATConv, wt.nn.GATv2Conv, wt.nn.TransformerConv]


@DEVICES
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize(
    "options",
    [{}, {"improved": True}, {"add_self_loops": False}, {"normalize": False}, {"bias": False, "cached": True}],
    ids=str,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_gcn(device, flow, options, weighted):
    index, x = edges(device), randn(NODES, 7, device=device)
    ours = wt.nn.GCNConv(7, 5, flow=flow, **options).to(device)
    theirs = GCNConv(7, 5, flow=flow, **options).to(device)
    weight = [randn(index.shape[1], device=device).abs() + 0.1] if weighted else []
    same(ours, theirs, x, index, *weight)


@DEVICES
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize(
    "options",
    [{}, {"aggr": "sum"}, {"normalize": True}, {"project": True}, {"root_weight": False, "bias": False}],
    ids=str,
)
def test_sage(device, flow, options):
    index, x = edges(device), randn(NODES, 7, device=device)
    same(
        wt.nn.SAGEConv(7, 5, flow=flow, **options).to(device), SAGEConv(7, 5, flow=flow, **options).to(device), x, index
    )


@DEVICES
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize(
    "options",
    [{}, {"heads": 3}, {"heads": 2, "concat": False}, {"add_self_loops": False}, {"residual": True, "bias": False}],
    ids=str,
)
def test_gat(device, flow, options):
    index, x = edges(device), randn(NODES, 7, device=device)
    same(wt.nn.GATConv(7, 5, flow=flow, **options).to(device), GATConv(7, 5, flow=flow, **options).to(device), x, index)


@DEVICES
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"heads": 3, "share_weights": True},
        {"heads": 2, "concat": False, "negative_slope": 0.5},
        {"add_self_loops": False},
        {"residual": True, "bias": False},
    ],
    ids=str,
)
def test_gatv2(device, flow, options):
    index, x = edges(device), randn(NODES, 7, device=device)
    ours, theirs = wt.nn.GATv2Conv(7, 5, flow=flow, **options), GATv2Conv(7, 5, flow=flow, **options)
    same(ours.to(device), theirs.to(device), x, index)


@DEVICES
@pytest.mark.parametrize(
    "options", [{}, {"heads": 3}, {"heads": 2, "concat": False, "beta": True}, {"root_weight": False}], ids=str
)
def test_transformer(device, options):
    index, x = edges(device), randn(NODES, 7, device=device)
    ours, theirs = wt.nn.TransformerConv(7, 5, **options).to(device), TransformerConv(7, 5, **options).to(device)
    same(ours, theirs, x, index)


@DEVICES
def test_pairs_of_features(device):
    index = edges(device)[:, :60]
    index = torch.stack([index[0] % 30, index[1] % 20])
    index = torch.unique(index, dim=1)
    pair = (randn(30, 7, device=device), randn(20, 4, device=device))
    for ours, theirs in [
        (wt.nn.SAGEConv((7, 4), 5), SAGEConv((7, 4), 5)),
        (wt.nn.GATConv((7, 4), 5, heads=2), GATConv((7, 4), 5, heads=2)),
        (wt.nn.GATConv((7, 4), 5, add_self_loops=False), GATConv((7, 4), 5, add_self_loops=False)),
        (wt.nn.GATv2Conv((7, 4), 5, heads=2), GATv2Conv((7, 4), 5, heads=2)),
        (wt.nn.TransformerConv((7, 4), 5), TransformerConv((7, 4), 5)),
    ]:
        ours, theirs = ours.to(device), theirs.to(device)
        ours.load_state_dict(theirs.state_dict())
        torch.testing.assert_close(ours(pair, index), theirs(pair, index), rtol=1e-5, atol=1e-5)


@DEVICES
def test_attention_weights_come_in_their_order(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    for ours, theirs in [
        (wt.nn.GATConv(7, 5, heads=2), GATConv(7, 5, heads=2)),
        (wt.nn.GATv2Conv(7, 5, heads=2), GATv2Conv(7, 5, heads=2)),
        (wt.nn.TransformerConv(7, 5, heads=2), TransformerConv(7, 5, heads=2)),
    ]:
        ours, theirs = ours.to(device), theirs.to(device)
        ours.load_state_dict(theirs.state_dict())
        out, (of, alpha) = ours(x, index, return_attention_weights=True)
        expected, (of_theirs, theirs_alpha) = theirs(x, index, return_attention_weights=True)
        assert torch.equal(of, of_theirs)
        torch.testing.assert_close((out, alpha), (expected, theirs_alpha), rtol=1e-5, atol=1e-5)


@DEVICES
def test_edges_in_every_form(device):
    index, x = edges(device, loops=False), randn(NODES, 7, device=device)
    order = (index[1] * NODES + index[0]).argsort()
    index = index[:, order].contiguous()
    sorted_index = pyg.EdgeIndex(index, sparse_size=(NODES, NODES), sort_order="col")
    ones = torch.ones(index.shape[1], device=device)
    adj = torch.sparse_coo_tensor(index.flip(0), ones, (NODES, NODES)).coalesce().to_sparse_csr()
    csr = wt.Csr(adj.crow_indices(), adj.col_indices())
    for layer in (make(7, 5) for make in LAYERS):
        layer = layer.to(device)
        expected = layer(x, index)
        for other in (sorted_index, adj, csr):
            torch.testing.assert_close(layer(x, other), expected, rtol=1e-5, atol=1e-5)


@DEVICES
def test_normalised_graphs_follow_their_tensors(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    weight = randn(index.shape[1], device=device).abs() + 0.1
    ours, theirs = wt.nn.GCNConv(7, 5).to(device), GCNConv(7, 5).to(device)
    ours.load_state_dict(theirs.state_dict())
    for change in (lambda: None, lambda: weight.mul_(torch.rand_like(weight)), lambda: index.copy_(index.flip(0))):
        change()
        torch.testing.assert_close(ours(x, index, weight), theirs(x, index, weight), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(ours(x, index), theirs(x, index), rtol=1e-5, atol=1e-5)


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_layers_under_autocast(device, dtype):
    index, x = edges(device), randn(NODES, 7, device=device)
    for layer in (*(make(7, 5) for make in LAYERS), wt.nn.GATConv(7, 5, heads=2)):
        layer = layer.to(device)
        with torch.autocast(device, dtype=dtype):
            out = layer(x, index)
        agree(out.detach().float(), layer(x, index).detach().double(), dtype, scale=4)
        out.float().sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())


@DEVICES
def test_layers_are_copied_and_pickled(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    for layer in (make(7, 5) for make in LAYERS):
        layer = layer.to(device)
        expected = layer(x, index)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            torch.testing.assert_close(other(x, index), expected)


@DEVICES
def test_what_layers_refuse(device):
    x = randn(4, 7, device=device)
    twice = torch.tensor([[0, 0], [1, 1]], device=device)
    far = torch.tensor([[0, 5], [1, 1]], device=device)
    below = torch.tensor([[0, 1], [1, -1]], device=device)
    layer = wt.nn.SAGEConv(7, 5).to(device)
    for index, text in ((twice, "column 0 follows column 0"), (far, "column 5"), (below, "")):
        for _ in range(2):
            with pytest.raises(errors.FormatError, match=text):
                layer(x, index)
    with pytest.raises(errors.ShapeError, match="number of edges"):
        layer(x, twice[:1])
    with pytest.raises(errors.ShapeError, match="edge weights"):
        wt.nn.GCNConv(7, 5).to(device)(x, far, torch.ones(3, device=device))
    for wrong in (
        lambda: wt.nn.SAGEConv(7, 5, aggr="max"),
        lambda: wt.nn.GATConv(7, 5, edge_dim=-1),
        lambda: wt.nn.GATConv(7, 5, aggr="mean"),
        lambda: wt.nn.GATv2Conv(7, 5, edge_dim=2),
        lambda: wt.nn.GATv2Conv(7, 5, aggr="max"),
        lambda: wt.nn.TransformerConv(7, 5, edge_dim=0),
        lambda: wt.nn.GCNConv(-1, 5),
        lambda: wt.nn.GCNConv(7, 5, flow="up"),
        lambda: wt.nn.GCNConv(7, 5, normalize=False, add_self_loops=True),
        lambda: wt.nn.GCNConv(7, 5, depth=2),
    ):
        with pytest.raises(errors.OptionError):
            wrong()
