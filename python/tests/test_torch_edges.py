"""Attributes of edges, in attention of either kind, against torch_geometric's layers."""

import pytest
from torch_support import DEVICES, NODES, agree, edges, randn, same, torch

import windrow.torch as wt
from windrow import errors

pyg = pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed: its layers are not compared")
from torch_geometric.nn import GATConv, TransformerConv  # noqa: E402

FILLS = ["mean", "add", "min", "max", "mul", 0.5, torch.tensor([0.3, -2.0, 1.0]), torch.ones(NODES, 3)]


def both(ours, theirs, device, *args, **options):
    return ours(*args, **options).to(device), theirs(*args, **options).to(device)


@DEVICES
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
@pytest.mark.parametrize("fill", FILLS, ids=lambda fill: str(fill)[:12])
@pytest.mark.parametrize("loops", [True, False])
def test_gat_fills_loops(device, flow, fill, loops):
    index, x = edges(device, loops), randn(NODES, 7, device=device)
    attributes = randn(index.shape[1], 3, device=device, seed=4)
    ours, theirs = both(wt.nn.GATConv, GATConv, device, 7, 5, heads=2, edge_dim=3, fill_value=fill, flow=flow)
    same(ours, theirs, x, index, attributes)


@DEVICES
@pytest.mark.parametrize(
    "options",
    [
        {"add_self_loops": False},
        {"heads": 3, "concat": False},
        {"residual": True, "bias": False, "negative_slope": 0.5},
    ],
    ids=str,
)
def test_gat_has_attributes(device, options):
    index, x = edges(device), randn(NODES, 7, device=device)
    for wide in (1, 4):
        attributes = randn(index.shape[1], wide, device=device, seed=4)
        ours, theirs = both(wt.nn.GATConv, GATConv, device, 7, 5, edge_dim=wide, **options)
        same(ours, theirs, x, index, attributes)
        same(ours, theirs, x, index)  # those of no edge
    same(*both(wt.nn.GATConv, GATConv, device, 7, 5, edge_dim=1), x, index, attributes[:, 0])
    same(*both(wt.nn.GATConv, GATConv, device, 7, 5), x, index, attributes)  # of a layer that has none for them


@DEVICES
@pytest.mark.parametrize("options", [{}, {"heads": 3}, {"heads": 2, "concat": False, "beta": True}], ids=str)
def test_transformer_has_attributes(device, options):
    index, x = edges(device), randn(NODES, 7, device=device)
    attributes = randn(index.shape[1], 3, device=device, seed=4)
    same(*both(wt.nn.TransformerConv, TransformerConv, device, 7, 5, edge_dim=3, **options), x, index, attributes)


@DEVICES
def test_pairs_and_weights_have_attributes(device):
    index = edges(device)[:, :60]
    index = torch.unique(torch.stack([index[0] % 20, index[1] % 20]), dim=1)
    attributes = randn(index.shape[1], 3, device=device, seed=4)
    for sources, targets in ((20, 20), (30, 20)):
        pair = (randn(sources, 7, device=device), randn(targets, 4, device=device))
        for ours, theirs in (
            both(wt.nn.GATConv, GATConv, device, (7, 4), 5, heads=2, edge_dim=3),
            both(wt.nn.TransformerConv, TransformerConv, device, (7, 4), 5, heads=2, edge_dim=3),
        ):
            ours.load_state_dict(theirs.state_dict())
            out, (of, alpha) = ours(pair, index, attributes, return_attention_weights=True)
            expected, (of_theirs, theirs_alpha) = theirs(pair, index, attributes, return_attention_weights=True)
            assert torch.equal(of, of_theirs)
            torch.testing.assert_close((out, alpha), (expected, theirs_alpha), rtol=1e-5, atol=1e-5)


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attributes_under_autocast(device, dtype):
    index, x = edges(device), randn(NODES, 7, device=device)
    attributes = randn(index.shape[1], 3, device=device, seed=4)
    for layer in (wt.nn.GATConv(7, 5, heads=2, edge_dim=3), wt.nn.TransformerConv(7, 5, heads=2, edge_dim=3)):
        layer = layer.to(device)
        with torch.autocast(device, dtype=dtype):
            out = layer(x, index, attributes)
        agree(out.detach().float(), layer(x, index, attributes).detach().double(), dtype, scale=4)
        out.float().sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())


@DEVICES
def test_attributes_that_are_wrong_are_refused(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    few = randn(index.shape[1] - 1, 3, device=device)
    attributes = randn(index.shape[1], 3, device=device)
    for layer in (wt.nn.GATConv(7, 5, edge_dim=3).to(device), wt.nn.TransformerConv(7, 5, edge_dim=3).to(device)):
        with pytest.raises(errors.ShapeError, match="attributes of"):
            layer(x, index, few)
    with pytest.raises(errors.OptionError, match="median"):
        wt.nn.GATConv(7, 5, edge_dim=3, fill_value="median").to(device)(x, index, attributes)
    for layer, given in ((wt.nn.TransformerConv(7, 5), (attributes,)), (wt.nn.TransformerConv(7, 5, edge_dim=3), ())):
        with pytest.raises(errors.OptionError, match="edge_dim"):
            layer.to(device)(x, index, *given)
