"""Layers, and products of values that are computed beside them, in functions that torch.compile makes whole."""

import shutil

import pytest
from torch_support import CUDA, DEVICES, LAYOUTS, NODES, edges, layouts, randn, random_csr, torch

import windrow.torch as wt
from windrow import errors

COMPILER = any(map(shutil.which, ("g++", "clang++", "cl")))
INDUCTOR = pytest.param(
    "inductor", marks=pytest.mark.skipif(not COMPILER, reason="there is no C++ compiler for PyTorch's inductor")
)
BACKENDS = pytest.mark.parametrize("backend", ["aot_eager", INDUCTOR])


@pytest.fixture(autouse=True)
def compiled_anew():
    yield
    torch.compiler.reset()


def gradients(layer, call, *inputs):
    """The result of a call, and what it gives to inputs and parameters."""
    inputs = [tensor.detach().clone().requires_grad_() for tensor in inputs]
    layer.zero_grad()
    out = call(*inputs)
    (out * torch.linspace(-1, 1, out.numel(), device=out.device).view_as(out)).sum().backward()
    return [out, *(tensor.grad for tensor in inputs), *(parameter.grad for parameter in layer.parameters())]


def whole(layer, call, *inputs, backend="aot_eager", **options):
    """Compares a call of a layer with the same call compiled, without a break, backward too, and once more."""
    expected = gradients(layer, call, *inputs)
    compiled = torch.compile(call, fullgraph=True, backend=backend, **options)
    for _ in range(2):
        for one, other in zip(gradients(layer, compiled, *inputs), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    return compiled


LAYERS = {
    "GCNConv": lambda: wt.nn.GCNConv(7, 5),
    "GCNConv improved": lambda: wt.nn.GCNConv(7, 5, improved=True, bias=False),
    "GCNConv not normalized": lambda: wt.nn.GCNConv(7, 5, normalize=False),
    "GCNConv backwards": lambda: wt.nn.GCNConv(7, 5, flow="target_to_source"),
    "SAGEConv": lambda: wt.nn.SAGEConv(7, 5),
    "SAGEConv sums": lambda: wt.nn.SAGEConv(7, 5, aggr="sum", project=True, normalize=True),
    "GATConv": lambda: wt.nn.GATConv(7, 5, heads=2),
    "GATConv means": lambda: wt.nn.GATConv(7, 5, heads=2, concat=False, add_self_loops=False, residual=True),
    "TransformerConv": lambda: wt.nn.TransformerConv(7, 5, heads=2, beta=True),
}


@DEVICES
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_whole(device, loops, name):
    index, layer = edges(device, loops), LAYERS[name]().to(device)
    whole(layer, lambda x: layer(x, index), randn(NODES, 7, device=device))


@DEVICES
@pytest.mark.parametrize("backend", [INDUCTOR])
@pytest.mark.parametrize("name", ["GCNConv", "SAGEConv", "GATConv", "TransformerConv"])
def test_inductor_compiles_layers(device, backend, name):
    index, layer = edges(device), LAYERS[name]().to(device)
    whole(layer, lambda x: layer(x, index), randn(NODES, 7, device=device), backend=backend)


@DEVICES
@pytest.mark.parametrize("improved", [False, True])
@pytest.mark.parametrize("loops", [True, False])
def test_weights_of_edges_are_whole(device, improved, loops):
    index = edges(device, loops)
    x, weight = randn(NODES, 7, device=device), randn(index.shape[1], device=device).abs() + 0.1
    for layer in (wt.nn.GCNConv(7, 5, improved=improved), wt.nn.GCNConv(7, 5, normalize=False)):
        layer = layer.to(device)
        whole(layer, lambda x, weight: layer(x, index, weight), x, weight)
        whole(layer, lambda x: layer(x, index, weight), x)


@DEVICES
@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("fill", ["mean", "add", "max", 0.5])
@pytest.mark.parametrize("flow", ["source_to_target", "target_to_source"])
def test_attributes_of_edges_are_whole(device, loops, fill, flow):
    index = edges(device, loops)
    x, attributes = randn(NODES, 7, device=device), randn(index.shape[1], 3, device=device)
    layer = wt.nn.GATConv(7, 5, heads=2, edge_dim=3, fill_value=fill, flow=flow).to(device)
    whole(layer, lambda x, attributes: layer(x, index, attributes), x, attributes)
    layer = wt.nn.TransformerConv(7, 5, heads=2, edge_dim=3, flow=flow).to(device)
    whole(layer, lambda x, attributes: layer(x, index, attributes), x, attributes)


@DEVICES
def test_sizes_may_change(device):
    for make in (LAYERS["GCNConv"], LAYERS["SAGEConv"], LAYERS["GATConv"], LAYERS["TransformerConv"]):
        layer = make().to(device)
        compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
        for nodes in (NODES, 30, 55):
            index, x = edges(device, nodes=nodes), randn(nodes, 7, device=device)
            torch.testing.assert_close(compiled(x, index), layer(x, index), rtol=1e-4, atol=1e-5)


@DEVICES
def test_graphs_that_change_are_noticed(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    for make in LAYERS.values():
        layer = make().to(device)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        for _ in range(3):
            torch.testing.assert_close(compiled(x, index), layer(x, index), rtol=1e-4, atol=1e-5)
            index.copy_(index.flip(0))
        other = edges(device, seed=5)[:, : index.shape[1]].contiguous()
        torch.testing.assert_close(compiled(x, other), layer(x, other), rtol=1e-4, atol=1e-5)


@DEVICES
def test_matrices_in_rows_are_whole(device):
    rowptr, col, _, _ = random_csr(NODES, NODES, 0.1, device)
    for make in LAYERS.values():
        layer = make().to(device)
        if layer.flow == "source_to_target":
            whole(layer, lambda x: layer(x, wt.Csr(rowptr, col)), randn(NODES, 7, device=device))


@DEVICES
def test_attention_weights_are_whole(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    for layer in (wt.nn.GATConv(7, 5, heads=2, add_self_loops=False), wt.nn.TransformerConv(7, 5, heads=2)):
        layer = layer.to(device)
        call = lambda x: layer(x, index, return_attention_weights=True)  # noqa: E731
        compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(x), call(x), rtol=1e-4, atol=1e-5)
        weigh = lambda x, layer=layer: layer(x, index, return_attention_weights=True)[1][1].square()  # noqa: E731
        whole(layer.float(), lambda x, weigh=weigh: weigh(x) + 0 * sum(p.sum() for p in layer.parameters()), x)
    layer = wt.nn.GATConv(7, 5).to(device)
    with pytest.raises(Exception, match="call it uncompiled"):
        torch.compile(lambda x: layer(x, index, return_attention_weights=True), fullgraph=True)(x)


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_is_whole(device, dtype):
    index, x = edges(device), randn(NODES, 7, device=device)
    for make in LAYERS.values():
        layer = make().to(device)
        compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
        with torch.autocast(device, dtype=dtype):
            found, expected = compiled(x, index), layer(x, index)
        assert found.dtype == expected.dtype
        torch.testing.assert_close(found, expected, rtol=5e-2, atol=5e-2)


@DEVICES
def test_several_layers_are_whole(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    one, two = wt.nn.GATConv(7, 4, heads=2).to(device), wt.nn.GCNConv(8, 3).to(device)
    net = torch.nn.ModuleList([one, two])
    whole(net, lambda x: two(one(x, index).relu(), index).log_softmax(1), x)


@DEVICES
@BACKENDS
def test_values_of_memory_that_is_used_again_are_seen(device, backend):
    rowptr, col, value, _ = random_csr(30, 20, 0.2, device)
    x = randn(20, 6, device=device)

    def products(value, x):
        # Values that are no longer needed leave their memory to the next ones, of which no version tells.
        out, value = x, value * 2
        for _ in range(4):
            value = value * (2 + out.mean())
            out = wt.spmm((rowptr, col, value), x)
        return out

    with torch.no_grad():
        found = torch.compile(products, fullgraph=True, backend=backend)(value, x)
        torch.testing.assert_close(found, products(value, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", [CUDA])
def test_graphs_that_pytorch_makes_go_around_products(device):
    index, x = edges(device), randn(NODES, 7, device=device)
    layer = wt.nn.GATConv(7, 5, heads=2).to(device)
    compiled = torch.compile(lambda x: layer(x, index).relu(), fullgraph=True, mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(compiled(x).clone(), layer(x, index).relu(), rtol=1e-4, atol=1e-4)


@DEVICES
def test_operators_of_graphs_pass_the_checks_of_torch_library(device):
    index = edges(device)
    count, ops = index.shape[1], torch.ops.windrow
    for loops in (False, True):
        given = (index, None, NODES, NODES, loops, "source_to_target", False)
        entries = count + (NODES if loops else 0)
        value, of_edges = randn(2, entries, device=device), randn(2, count, device=device)
        x, p = randn(NODES, 2, 4, device=device), randn(2, entries, device=device).softmax(1)
        calls = [
            (ops.graph_spmm, (*given, value.requires_grad_(), x.requires_grad_(), "")),
            (ops.graph_spmm, (*given, None, x[:, 0], "mean")),
            (ops.graph_spmm_t, (*given, value, x, "")),
            (ops.graph_sddmm, (*given, x, x, None)),
            (ops.graph_softmax, (*given, value, 0.5)),
            (ops.graph_softmax_backward, (*given, p, value.detach(), 0.5)),
            (ops.graph_arrange, (*given, of_edges.requires_grad_(), randn(2, NODES, device=device), True)),
            (ops.graph_give_back, (*given, value.detach(), True)),
        ]
        for op, inputs in calls:
            found = torch.library.opcheck(op.default, inputs)
            assert set(found.values()) == {"SUCCESS"}, (op, found)


def as_told(op, *inputs):
    """Whether what an operator returns lies as compiled code is told, and in memory of its own."""
    mode = torch._subclasses.FakeTensorMode()
    told = op(*(mode.from_tensor(given) if torch.is_tensor(given) else given for given in inputs))
    found = op(*inputs)
    pairs = zip(found, told, strict=True) if isinstance(found, tuple) else [(found, told)]
    theirs = {given.untyped_storage().data_ptr() for given in inputs if torch.is_tensor(given)}
    for one, other in pairs:
        assert (one.shape, one.dtype) == (other.shape, other.dtype), op
        if one.numel():
            assert one.stride() == other.stride(), op
            assert one.untyped_storage().data_ptr() not in theirs, op


@DEVICES
@pytest.mark.parametrize("heads", [(), (1,), (2,)])
@pytest.mark.parametrize("lying", LAYOUTS)
def test_results_lie_as_compiled_code_is_told(device, lying, heads):
    def given(*shape):
        return layouts(randn(*shape, device=device))[lying]

    ops = torch.ops.windrow
    rowptr, col, _, _ = random_csr(30, 25, 0.2, device)
    x, y, value = given(25, *heads, 4), given(30, *heads, 4), given(*heads, col.numel())
    as_told(ops.spmm, rowptr, col, value, x)
    as_told(ops.spmm_t, rowptr, col, value, y, 25)
    as_told(ops.sddmm, rowptr, col, y, x)
    as_told(ops.edge_softmax, rowptr, col, value, 25, 0.5)
    as_told(ops.edge_softmax_backward, rowptr, col, value, value, 25, 0.5)
    as_told(ops.nm_linear, given(33, 64), torch.zeros(48, 64, device=device), given(48), 2, 8, 16)
    index = edges(device)
    for loops in (False, True):
        graph = (index, None, NODES, NODES, loops, "source_to_target", False)
        x, value = given(NODES, *heads, 4), given(*heads, index.shape[1] + (NODES if loops else 0))
        as_told(ops.graph_spmm, *graph, value, x, "")
        as_told(ops.graph_spmm_t, *graph, value, x, "")
        as_told(ops.graph_sddmm, *graph, x, x, None)
        as_told(ops.graph_softmax, *graph, value, 0.5)
        as_told(ops.graph_softmax_backward, *graph, value, value, 0.5)
        for keep in (False, True):
            as_told(ops.graph_arrange, *graph, given(*heads, index.shape[1]), given(*heads, NODES), keep)
            as_told(ops.graph_give_back, *graph, value, keep)


@DEVICES
@pytest.mark.parametrize("backend", [INDUCTOR])
def test_inductor_compiles_operators_of_values_by_columns(device, backend):
    index, ops = edges(device), torch.ops.windrow
    graph = (index, None, NODES, NODES, False, "source_to_target", False)

    def step(scores):
        values = scores.t()
        of_edges, _ = ops.graph_give_back(*graph, values, True)
        p = ops.graph_softmax(*graph, values, 0.5)
        return of_edges.cos(), p.cos(), ops.graph_softmax_backward(*graph, p, values, 0.5).cos()

    scores = randn(index.shape[1], 2, device=device)
    found = torch.compile(step, fullgraph=True, backend=backend)(scores)
    torch.testing.assert_close(found, step(scores))


@DEVICES
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_values_of_edges_come_and_go_in_order(device, keep, loops):
    index = edges(device)
    given = (index, None, NODES, NODES, loops, "source_to_target", False)
    graph = wt.graph_of(index, (NODES, NODES), loops)
    count = graph.csr.col.numel()
    assert not loops or count < index.shape[1] + NODES, "there were to be loops"
    results = []
    for arrange in (graph.arrange, lambda *rest: torch.ops.windrow.graph_arrange(*given, *rest)):
        values = randn(2, index.shape[1], device=device).requires_grad_()
        fill = randn(2, NODES, device=device, seed=3).requires_grad_()
        entries = arrange(values, fill, keep)
        assert not entries[:, count:].any()
        of = torch.autograd.grad(
            (entries[:, :count] * randn(2, count, device=device, seed=5)).sum(), (values, fill), allow_unused=True
        )
        results.append((entries[:, :count], of[0], of[1] if loops else None))
    torch.testing.assert_close(*results)
    g = randn(2, index.shape[1] + (NODES if loops else 0), device=device).double()
    given_back = torch.ops.windrow.graph_give_back
    assert torch.autograd.gradcheck(lambda g: given_back(*given, g, keep), g.requires_grad_(), fast_mode=True)


@DEVICES
def test_what_a_compiled_layer_refuses(device):
    twice = torch.tensor([[0, 0], [1, 1]], device=device)
    layer = wt.nn.SAGEConv(7, 5).to(device)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with pytest.raises(errors.FormatError, match="column 0 follows column 0"):
        compiled(randn(4, 7, device=device), twice)
