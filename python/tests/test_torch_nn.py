"""Layers against torch_geometric's own, torch_geometric on windrow, and pruned linear layers."""

import copy
import io
import pickle

import pytest
from torch_support import DEVICES, agree, randn, torch

import windrow.torch as wt
from windrow import errors

pyg = pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed: its layers are not compared")
from torch_geometric.nn import GATConv, GCNConv, MessagePassing, SAGEConv, TransformerConv  # noqa: E402

NODES = 40


@pytest.fixture(autouse=True)
def their_own():
    yield
    wt.unpatch_pyg()


def edges(device, loops=True, nodes=NODES, seed=0):
    """Edges in no order, none twice, some nodes without any."""
    generator = torch.Generator().manual_seed(seed)
    there = (torch.rand(nodes, nodes, generator=generator) < 0.12).float()
    there[:, 3] = there[5] = 0
    if not loops:
        there.fill_diagonal_(0)
    index = there.nonzero().t()
    return index[:, torch.randperm(index.shape[1], generator=generator)].contiguous().to(device)


def same(ours, theirs, *inputs, atol=1e-5, **kwargs):
    """Outputs and gradients of two layers with the same parameters."""
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    results = []
    for layer in (ours, theirs):
        given = [
            tensor.detach().clone().requires_grad_() if torch.is_tensor(tensor) and tensor.is_floating_point() else tensor
            for tensor in inputs
        ]
        layer.zero_grad()
        out = layer(*given, **kwargs)
        (out * torch.linspace(-1, 1, out.numel(), device=out.device, dtype=out.dtype).view_as(out)).sum().backward()
        of_inputs = [tensor.grad for tensor in given if torch.is_tensor(tensor) and tensor.is_floating_point()]
        results.append([out, *of_inputs, *(parameter.grad for parameter in layer.parameters())])
    for one, other in zip(*results, strict=True):
        if other is None:
            assert one is None
            continue
        torch.testing.assert_close(one, other, rtol=1e-5, atol=atol * max(1, other.abs().max().item()))


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
    same(wt.nn.SAGEConv(7, 5, flow=flow, **options).to(device), SAGEConv(7, 5, flow=flow, **options).to(device), x, index)


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
    for layer in (wt.nn.GCNConv(7, 5), wt.nn.SAGEConv(7, 5), wt.nn.GATConv(7, 5), wt.nn.TransformerConv(7, 5)):
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
    for layer in (wt.nn.GCNConv(7, 5), wt.nn.SAGEConv(7, 5), wt.nn.GATConv(7, 5, heads=2), wt.nn.TransformerConv(7, 5)):
        layer = layer.to(device)
        with torch.autocast(device, dtype=dtype):
            out = layer(x, index)
        agree(out.detach().float(), layer(x, index).detach().double(), dtype, scale=4)
        out.float().sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())


@DEVICES
def test_layers_are_copied_and_pickled(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    for layer in (wt.nn.GCNConv(7, 5), wt.nn.SAGEConv(7, 5), wt.nn.GATConv(7, 5), wt.nn.TransformerConv(7, 5)):
        layer = layer.to(device)
        expected = layer(x, index)
        for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            torch.testing.assert_close(other(x, index), expected)


@DEVICES
def test_layers_are_compiled_around_their_graphs(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    for layer in (wt.nn.GCNConv(7, 5), wt.nn.SAGEConv(7, 5), wt.nn.GATConv(7, 5, heads=2)):
        layer = layer.to(device)
        compiled = torch.compile(layer, backend="aot_eager")
        for _ in range(2):
            torch.testing.assert_close(compiled(x, index), layer(x, index), rtol=1e-5, atol=1e-5)


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
        lambda: wt.nn.GATConv(7, 5, edge_dim=2),
        lambda: wt.nn.GCNConv(-1, 5),
        lambda: wt.nn.GCNConv(7, 5, flow="up"),
        lambda: wt.nn.GCNConv(7, 5, normalize=False, add_self_loops=True),
        lambda: wt.nn.GCNConv(7, 5, depth=2),
    ):
        with pytest.raises(errors.OptionError):
            wrong()


class Net(torch.nn.Module):
    def __init__(self, conv, **options):
        super().__init__()
        self.one, self.two = conv(7, 8, **options), conv(8, 3, **options)

    def forward(self, x, index):
        return self.two(self.one(x, index).relu(), index)


def train(device, conv, index, steps=5, **options):
    torch.manual_seed(0)
    net, x = Net(conv, **options).to(device), randn(NODES, 7, device=device)
    optimizer, losses = torch.optim.Adam(net.parameters(), lr=0.05), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = net(x, index).log_softmax(1)[:, 0].neg().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@DEVICES
@pytest.mark.parametrize("conv", [GCNConv, SAGEConv, GATConv, TransformerConv])
def test_unchanged_models_learn_the_same(device, conv):
    index = edges(device)
    expected, own = train(device, conv, index), conv.forward
    wt.patch_pyg()
    wt.patch_pyg()
    assert conv.forward is not own
    misses = wt.cache.misses
    found = train(device, conv, index)
    assert wt.cache.misses > misses, "nothing ran on windrow"
    assert found == pytest.approx(expected, rel=1e-4)
    wt.unpatch_pyg()
    assert conv.forward is own
    wt.unpatch_pyg()


class Plain(MessagePassing):
    """A layer of a user's, by message_and_aggregate."""

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)

    def message_and_aggregate(self, adj_t, x):
        from torch_geometric.utils import spmm

        return spmm(adj_t, x, reduce=self.aggr)


@DEVICES
@pytest.mark.parametrize("aggr", ["sum", "mean"])
def test_sparse_products_of_pyg(device, aggr):
    index = edges(device, loops=False)
    index = index[:, (index[1] * NODES + index[0]).argsort()].contiguous()
    of_edges = pyg.EdgeIndex(index, sparse_size=(NODES, NODES), sort_order="col")
    ones = torch.ones(index.shape[1], device=device)
    adj = torch.sparse_coo_tensor(index.flip(0), ones, (NODES, NODES)).coalesce().to_sparse_csr()
    x, layer = randn(NODES, 7, device=device), Plain(aggr)
    expected = [layer(x, of_edges), of_edges.matmul(x, transpose=True, reduce=aggr)]
    if device == "cpu" or aggr == "sum":
        expected.append(layer(x, adj))
    wt.patch_pyg()
    wt.cache.clear()
    found = [layer(x, of_edges), of_edges.matmul(x, transpose=True, reduce=aggr), layer(x, adj)]
    assert len(wt.cache) == 2, "nothing ran on windrow"
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@DEVICES
def test_values_of_an_edge_index_get_gradients(device):
    index = edges(device, loops=False)
    index = index[:, (index[0] * NODES + index[1]).argsort()].contiguous()
    of_edges = pyg.EdgeIndex(index, sparse_size=(NODES, NODES), sort_order="row")
    value = randn(index.shape[1], device=device).requires_grad_()
    x = randn(NODES, 7, device=device)
    wt.patch_pyg()
    of_edges.matmul(x, value).sum().backward()
    torch.testing.assert_close(value.grad, x[index[1]].sum(1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(wt.spmm(of_edges, x), of_edges.matmul(x))


class Squared(GCNConv):
    def message(self, x_j, edge_weight):
        return super().message(x_j, edge_weight).square()


@DEVICES
def test_what_is_not_taken_is_left_to_pyg(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    twice = torch.cat([index, index[:, :3]], 1)
    attributes = randn(index.shape[1], 2, device=device)
    torch.manual_seed(1)
    hooked = GCNConv(7, 5)
    hooked.register_message_forward_hook(lambda module, inputs, output: 2 * output)
    calls = [
        (GCNConv(7, 5), (x, twice)),
        (GATConv(7, 5), (x, twice)),
        (SAGEConv(7, 5, aggr="max"), (x, index)),
        (Squared(7, 5), (x, index)),
        (GATConv(7, 5, edge_dim=2), (x, index, attributes)),
        (GATConv(7, 5).double(), (x.double(), index)),
        (TransformerConv(7, 5, edge_dim=2), (x, index, attributes)),
        (hooked, (x, index)),
    ]
    calls = [(layer.to(device), inputs) for layer, inputs in calls]
    expected = [layer(*inputs) for layer, inputs in calls]
    wt.patch_pyg()
    for (layer, inputs), other in zip(calls, expected):
        assert torch.equal(layer(*inputs), other), layer


# Pruned linear layers.


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_pruned_layers(device, dtype, bias):
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48, bias=bias).to(device, dtype)
    pruned = wt.nn.NmLinear.from_linear(linear, (2, 8, 16))
    kept = pruned.weight != 0
    assert kept.float().mean().item() == pytest.approx(0.25)
    assert torch.equal(pruned.weight[kept], linear.weight[kept])
    x = randn(5, 7, 64, device=device, dtype=dtype).requires_grad_()
    out = pruned(x)
    wide = x.detach().double().requires_grad_()
    of_bias = linear.bias.detach().double() if bias else None
    expected = torch.nn.functional.linear(wide, pruned.weight.double(), of_bias)
    agree(out, expected.detach(), scale=2)
    out.sum().backward()
    expected.sum().backward()
    agree(x.grad, wide.grad, scale=4)
    if bias:
        agree(pruned.bias.grad, torch.full((48,), 35.0, device=device), dtype)


@DEVICES
def test_pruned_layers_are_saved_and_loaded(device):
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48).to(device)
    pruned, x = wt.nn.NmLinear.from_linear(linear, (2, 8, 16)), randn(3, 64, device=device)
    expected = pruned(x)
    linear.load_state_dict(pruned.state_dict())
    torch.testing.assert_close(linear(x), expected, rtol=1e-5, atol=1e-5)
    other = wt.nn.NmLinear(64, 48, (2, 8, 16)).to(device)
    assert not other(x).any()
    other.load_state_dict(linear.state_dict())
    torch.testing.assert_close(other(x), expected)
    file = io.BytesIO()
    torch.save(pruned, file)
    file.seek(0)
    for copied in (copy.deepcopy(pruned), pickle.loads(pickle.dumps(pruned)), torch.load(file, weights_only=False)):
        torch.testing.assert_close(copied(x), expected)
    compiled = torch.compile(pruned, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    with torch.no_grad():
        other.weight.add_(1)
    with pytest.raises(errors.FormatError, match="more than 2 of 8"):
        other(x)


def test_what_pruned_layers_refuse():
    linear = torch.nn.Linear(64, 48)
    with pytest.raises(errors.OptionError):
        wt.nn.NmLinear.from_linear(linear, (9, 8, 16))
    with pytest.raises(errors.OptionError, match="three numbers"):
        wt.nn.NmLinear.from_linear(linear, (2, 8))
    pruned = wt.nn.NmLinear.from_linear(linear, (2, 8, 16))
    with pytest.raises(errors.ShapeError, match="64 columns"):
        pruned(torch.ones(3, 63))
    with pytest.raises(errors.DtypeError, match="f16"):
        pruned(torch.ones(3, 64, dtype=torch.float64))
