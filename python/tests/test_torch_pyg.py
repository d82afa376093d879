"""torch_geometric on windrow."""

import pytest
from torch_support import DEVICES, NODES, edges, randn, torch

import windrow.torch as wt

pyg = pytest.importorskip("torch_geometric", reason="PyTorch Geometric is not installed: nothing of it is replaced")
from torch_geometric.nn import (  # noqa: E402
    GATConv,
    GATv2Conv,
    GCNConv,
    MessagePassing,
    SAGEConv,
    TransformerConv,
)


@pytest.fixture(autouse=True)
def their_own():
    yield
    wt.unpatch_pyg()


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
@pytest.mark.parametrize("conv", [GCNConv, SAGEConv, GATConv, GATv2Conv, TransformerConv])
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
def test_sparse_products_of_pyg(device, aggr, planned):
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
    linear_with_a_hook = GATConv(7, 5, edge_dim=2)
    linear_with_a_hook.lin_edge.register_forward_hook(lambda module, inputs, output: 2 * output)
    calls = [
        (GCNConv(7, 5), (x, twice)),
        (GATConv(7, 5), (x, twice)),
        (GATv2Conv(7, 5, edge_dim=2), (x, index, randn(index.shape[1], 2, device=device))),
        (SAGEConv(7, 5, aggr="max"), (x, index)),
        (Squared(7, 5), (x, index)),
        (GATConv(7, 5).double(), (x.double(), index)),
        (TransformerConv(7, 2), (x, index, attributes.unsqueeze(1))),
        (linear_with_a_hook, (x, index, attributes)),
        (hooked, (x, index)),
    ]
    calls = [(layer.to(device), inputs) for layer, inputs in calls]
    expected = [layer(*inputs) for layer, inputs in calls]
    wt.patch_pyg()
    for (layer, inputs), other in zip(calls, expected):
        # PyG's own sums on a GPU are in any order.
        of_layer = layer(*inputs)
        same = torch.equal if device == "cpu" else torch.allclose
        assert same(of_layer, other), layer


@DEVICES
@pytest.mark.parametrize("conv", [GATConv, TransformerConv])
def test_attributes_of_edges_are_taken(device, conv):
    index, x = edges(device), randn(NODES, 7, device=device)
    attributes = randn(index.shape[1], 2, device=device)
    layer = conv(7, 5, heads=2, edge_dim=2).to(device)
    expected = layer(x, index, attributes)
    wt.patch_pyg()
    wt.cache.clear()
    torch.testing.assert_close(layer(x, index, attributes), expected, rtol=1e-5, atol=1e-5)
    assert len(wt.cache) > 0, "nothing ran on windrow"
