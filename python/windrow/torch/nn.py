"""Layers of graph networks with the signatures and parameters of torch_geometric's, and linear layers with N:M weights.

`state_dict`s load both ways. Edges are a tensor `edge_index` of shape (2, E), an `EdgeIndex`, a `torch.sparse_csr`
tensor or a `windrow.torch.Csr` whose rows are targets. What is derived of them, rows in order, self-loops,
normalisation, is kept as long as the tensors and made anew when they were written to.

Two equal edges are an error (`windrow.errors.FormatError`): coalesce them first.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from windrow import errors
from windrow._windrow import raw
from windrow.torch._cache import NAMES, device_of, operand, stream_of
from windrow.torch._csr import ByTensor, Csr, edges_of, graph_of, plain
from windrow.torch._ops import (
    _dense,
    _on,
    _Operator,
    _rows,
    _same_device,
    edge_softmax_op,
    sddmm_op,
    spmm_op,
)

__all__ = ["GATConv", "GCNConv", "NmLinear", "SAGEConv", "TransformerConv"]

_of_weights = ByTensor()


def _edges(edge_index, edge_weight=None):
    """`(edge_index, edge_weight)`, whatever edges are given as."""
    if isinstance(edge_index, torch.Tensor) and edge_index.layout is torch.strided:
        return plain(edge_index), edge_weight
    index, weight = edges_of(edge_index)
    return index, weight if edge_weight is None else edge_weight


def _wide(dtype):
    """The type of weights beside features of some type."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _times(graph, value, x):
    csr = graph.csr
    return spmm_op(csr.rowptr, csr.col, value, _dense(x))


@torch.compiler.disable
def _kept(weight, made_of, make):
    """What is made of weights, kept with them unless it has a gradient."""
    if weight.requires_grad and torch.is_grad_enabled():
        return make(weight)
    return _of_weights.get(weight, made_of, lambda: make(weight.detach()))


# What follows serves torch_geometric's modules, too: they have the same attributes.


def _gcn_values(graph, weight, fill, nodes, dtype):
    csr = graph.csr
    if weight is None:
        # A loop that is added to edges without weights has none either.
        value = torch.ones(csr.col.numel(), dtype=dtype, device=csr.col.device)
        degree = csr.rowptr.diff().to(dtype)
    else:
        value = weight.to(dtype)
        if graph.kept is not None:
            loops = value.new_full((nodes,), fill)
            loops = loops.index_put((graph.loops,), value[graph.dropped])
            value = torch.cat([value[graph.kept], loops])
        value = value[graph.perm]
        ones = torch.ones((csr.num_cols, 1), dtype=dtype, device=value.device)
        degree = spmm_op(csr.rowptr, csr.col, value, ones).squeeze(1)
    scale = degree.pow(-0.5)
    scale = scale.masked_fill(scale == float("inf"), 0)
    return scale[graph.row] * value * scale[csr.col]


def gcn_forward(self, x, edge_index, edge_weight=None):
    if not isinstance(x, torch.Tensor):
        raise errors.ShapeError("GCNConv takes one matrix of features; SAGEConv takes pairs")
    index, weight = _edges(edge_index, edge_weight)
    nodes, dtype = x.shape[-2], _wide(x.dtype)
    weight = weight if weight is None else weight.view(-1)
    if weight is not None and weight.numel() != index.shape[1]:
        raise errors.ShapeError(f"there are {weight.numel()} edge weights for {index.shape[1]} edges")
    graph = graph_of(index, (nodes, nodes), self.normalize and self.add_self_loops, self.flow)
    if not self.normalize:
        value = None
        if weight is not None:
            value = _kept(weight, (graph, "as they are"), lambda w: w.to(dtype)[graph.perm])
    else:
        fill = 2.0 if self.improved else 1.0
        if weight is None:
            value = graph.once(("gcn", dtype), lambda: _gcn_values(graph, None, fill, nodes, dtype))
        else:
            make = lambda w: _gcn_values(graph, w, fill, nodes, dtype)  # noqa: E731
            value = _kept(weight, (graph, "gcn", fill, dtype), make)
    out = _times(graph, value, self.lin(x))
    return out if self.bias is None else out + self.bias


def sage_forward(self, x, edge_index, size=None):
    pair = (x, x) if isinstance(x, torch.Tensor) else tuple(x)
    if getattr(self, "project", False) and hasattr(self, "lin"):
        pair = (self.lin(pair[0]).relu(), pair[1])
    index, _ = _edges(edge_index)
    targets = pair[1].shape[0] if pair[1] is not None else size[1] if size is not None else pair[0].shape[0]
    if pair[0] is not pair[1] and not isinstance(x, torch.Tensor) and self.flow != "source_to_target":
        raise errors.OptionError("pairs of features go from source to target")
    graph = graph_of(index, (targets, pair[0].shape[0]), False, self.flow)
    value = None
    if self.aggr == "mean":
        dtype = _wide(pair[0].dtype)
        value = graph.once(("mean", dtype), lambda: graph.csr.rowptr.diff().to(dtype).reciprocal()[graph.row])
    elif self.aggr not in ("sum", "add"):
        raise errors.OptionError(f"{self.aggr!r} is no aggregation that windrow.torch has; there are mean, sum and add")
    out = self.lin_l(_times(graph, value, pair[0]))
    if self.root_weight and pair[1] is not None:
        out = out + self.lin_r(pair[1])
    return F.normalize(out, p=2.0, dim=-1) if self.normalize else out


def _attention_weights(graph, alpha):
    """Edges and weights `(edges, heads)` as torch_geometric orders them."""
    in_order = torch.empty_like(alpha).index_copy(1, graph.perm, alpha)
    return graph.edges, in_order.t()


def gat_forward(self, x, edge_index, edge_attr=None, size=None, return_attention_weights=None):
    heads, channels = self.heads, self.out_channels
    pair = (x, x) if isinstance(x, torch.Tensor) else tuple(x)
    if edge_attr is not None and self.lin_edge is not None:
        raise errors.OptionError("windrow.torch has no attention to attributes of edges; use torch_geometric's GATConv")
    if pair[1] is None:
        raise errors.OptionError("windrow.torch has no attention without features of targets; give (x_source, x_target)")
    res = self.res(pair[1]) if self.res is not None else None
    shared = self.lin is not None
    source = (self.lin if shared else self.lin_src)(pair[0]).view(-1, heads, channels)
    if shared and pair[0] is pair[1]:
        target = source
    else:
        target = (self.lin if shared else self.lin_dst)(pair[1]).view(-1, heads, channels)
    index, _ = _edges(edge_index)
    if pair[0] is not pair[1] and self.flow != "source_to_target":
        raise errors.OptionError("pairs of features go from source to target")
    graph = graph_of(index, (target.shape[0], source.shape[0]), self.add_self_loops, self.flow)
    csr = graph.csr
    # alpha_target[i] + alpha_source[j] for each entry: a product of (alpha_target, 1) and (1, alpha_source).
    of_source = (source * self.att_src).sum(-1).float()
    of_target = (target * self.att_dst).sum(-1).float()
    left = torch.stack([of_target, torch.ones_like(of_target)], -1)
    right = torch.stack([torch.ones_like(of_source), of_source], -1)
    with torch.autocast(source.device.type, enabled=False):
        scores = F.leaky_relu(sddmm_op(csr.rowptr, csr.col, left, right, None), self.negative_slope)
        alpha = edge_softmax_op(csr.rowptr, csr.col, scores, csr.num_cols, 1.0)
    alpha = F.dropout(alpha, p=self.dropout, training=self.training)
    out = _times(graph, alpha, source)
    out = out.reshape(-1, heads * channels) if self.concat else out.mean(dim=1)
    if res is not None:
        out = out + res
    if self.bias is not None:
        out = out + self.bias
    if return_attention_weights:
        return out, _attention_weights(graph, alpha)
    return out


def transformer_forward(self, x, edge_index, edge_attr=None, return_attention_weights=None):
    heads, channels = self.heads, self.out_channels
    pair = (x, x) if isinstance(x, torch.Tensor) else tuple(x)
    if edge_attr is not None or self.lin_edge is not None:
        raise errors.OptionError(
            "windrow.torch has no attention to attributes of edges; use torch_geometric's TransformerConv"
        )
    query = self.lin_query(pair[1]).view(-1, heads, channels)
    key = self.lin_key(pair[0]).view(-1, heads, channels)
    value = self.lin_value(pair[0]).view(-1, heads, channels)
    index, _ = _edges(edge_index)
    if pair[0] is not pair[1] and self.flow != "source_to_target":
        raise errors.OptionError("pairs of features go from source to target")
    graph = graph_of(index, (query.shape[0], key.shape[0]), False, self.flow)
    csr = graph.csr
    with torch.autocast(query.device.type, enabled=False):
        scores = sddmm_op(csr.rowptr, csr.col, query, key, torch.float32)
        weights = edge_softmax_op(csr.rowptr, csr.col, scores, csr.num_cols, 1 / math.sqrt(channels))
    alpha = F.dropout(weights, p=self.dropout, training=self.training)
    out = _times(graph, alpha, value)
    out = out.reshape(-1, heads * channels) if self.concat else out.mean(dim=1)
    if self.root_weight:
        root = self.lin_skip(pair[1])
        if self.lin_beta is not None:
            beta = self.lin_beta(torch.cat([out, root, out - root], dim=-1)).sigmoid()
            out = beta * root + (1 - beta) * out
        else:
            out = out + root
    if isinstance(return_attention_weights, bool):
        return out, _attention_weights(graph, weights)
    return out


def _glorot(weight):
    bound = math.sqrt(6.0 / (weight.size(-2) + weight.size(-1)))
    nn.init.uniform_(weight, -bound, bound)


class _Glorot(nn.Linear):
    def reset_parameters(self):
        _glorot(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class _Conv(nn.Module):
    def __init__(self, aggr="add", *, flow="source_to_target", node_dim=-2, **kwargs):
        super().__init__()
        if kwargs:
            raise errors.OptionError(f"{', '.join(map(repr, kwargs))} is no option of a layer of windrow.torch.nn")
        if node_dim not in (-2, 0):
            raise errors.OptionError(f"nodes are the rows of the features; node_dim is {node_dim}")
        if flow not in ("source_to_target", "target_to_source"):
            raise errors.OptionError(f"{flow!r} is no flow; there are source_to_target and target_to_source")
        self.aggr, self.flow = aggr, flow


def _channels(in_channels):
    pair = (in_channels, in_channels) if isinstance(in_channels, int) else tuple(in_channels)
    if min(pair) <= 0:
        raise errors.OptionError(f"in_channels is {in_channels}; give the number of features, it is not found out later")
    return pair


class GCNConv(_Conv):
    """`X' = D^(-1/2)·(A + I)·D^(-1/2)·X·Θ`, Kipf and Welling 2017: `torch_geometric.nn.GCNConv`.

    `cached` is taken and disregarded: normalised graphs are kept as long as `edge_index` (and weights) in any case.
    """

    def __init__(
        self,
        in_channels,
        out_channels,
        improved=False,
        cached=False,
        add_self_loops=None,
        normalize=True,
        bias=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if self.aggr not in ("add", "sum"):
            raise errors.OptionError(f"GCNConv adds; {self.aggr!r} is not taken")
        add_self_loops = normalize if add_self_loops is None else add_self_loops
        if add_self_loops and not normalize:
            raise errors.OptionError("GCNConv adds self-loops where it normalizes; give add_self_loops=False")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.improved, self.cached = improved, cached
        self.add_self_loops, self.normalize = add_self_loops, normalize
        self.lin = _Glorot(_channels(in_channels)[0], out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def reset_parameters(self):
        self.lin.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    forward = gcn_forward

    def extra_repr(self):
        return f"{self.in_channels}, {self.out_channels}"


class SAGEConv(_Conv):
    """`X' = mean of neighbours·W₁ + X·W₂`, Hamilton et al. 2017: `torch_geometric.nn.SAGEConv`, aggr "mean" or "sum"."""

    def __init__(
        self,
        in_channels,
        out_channels,
        aggr="mean",
        normalize=False,
        root_weight=True,
        project=False,
        bias=True,
        **kwargs,
    ):
        super().__init__(aggr, **kwargs)
        if aggr not in ("mean", "sum", "add"):
            raise errors.OptionError(f"{aggr!r} is no aggregation that windrow.torch has; there are mean, sum and add")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.normalize, self.root_weight, self.project = normalize, root_weight, project
        source, target = _channels(in_channels)
        if project:
            self.lin = nn.Linear(source, source)
        self.lin_l = nn.Linear(source, out_channels, bias=bias)
        if root_weight:
            self.lin_r = nn.Linear(target, out_channels, bias=False)

    def reset_parameters(self):
        for layer in self.children():
            layer.reset_parameters()

    forward = sage_forward

    def extra_repr(self):
        return f"{self.in_channels}, {self.out_channels}, aggr={self.aggr}"


class GATConv(_Conv):
    """Attention by additive scores, Veličković et al. 2018: `torch_geometric.nn.GATConv` without attributes of edges.

    Scores are a sampled product, weights a softmax over rows, both in f32; sums a product. No message is stored.
    """

    def __init__(
        self,
        in_channels,
        out_channels,
        heads=1,
        concat=True,
        negative_slope=0.2,
        dropout=0.0,
        add_self_loops=True,
        edge_dim=None,
        fill_value="mean",
        bias=True,
        residual=False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if edge_dim is not None:
            raise errors.OptionError("windrow.torch has no attention to attributes of edges; use torch_geometric's")
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.negative_slope, self.dropout = concat, negative_slope, dropout
        self.add_self_loops, self.edge_dim, self.fill_value, self.residual = add_self_loops, None, fill_value, residual
        source, target = _channels(in_channels)
        self.lin = self.lin_src = self.lin_dst = self.lin_edge = None
        if isinstance(in_channels, int):
            self.lin = _Glorot(source, heads * out_channels, bias=False)
        else:
            self.lin_src = _Glorot(source, heads * out_channels, bias=False)
            self.lin_dst = _Glorot(target, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.register_parameter("att_edge", None)
        total = out_channels * (heads if concat else 1)
        self.res = _Glorot(target, total, bias=False) if residual else None
        self.bias = nn.Parameter(torch.zeros(total)) if bias else None
        self.reset_parameters()

    def reset_parameters(self):
        for layer in self.children():
            layer.reset_parameters()
        _glorot(self.att_src)
        _glorot(self.att_dst)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    forward = gat_forward

    def extra_repr(self):
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"


class TransformerConv(_Conv):
    """Attention by products of keys and queries, Shi et al. 2021: `torch_geometric.nn.TransformerConv` without
    attributes of edges."""

    def __init__(
        self,
        in_channels,
        out_channels,
        heads=1,
        concat=True,
        beta=False,
        dropout=0.0,
        edge_dim=None,
        bias=True,
        root_weight=True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if edge_dim is not None:
            raise errors.OptionError("windrow.torch has no attention to attributes of edges; use torch_geometric's")
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.beta, self.dropout = concat, beta and root_weight, dropout
        self.edge_dim, self.root_weight = None, root_weight
        source, target = _channels(in_channels)
        total = heads * out_channels if concat else out_channels
        self.lin_key = nn.Linear(source, heads * out_channels, bias=bias)
        self.lin_query = nn.Linear(target, heads * out_channels, bias=bias)
        self.lin_value = nn.Linear(source, heads * out_channels, bias=bias)
        self.lin_edge = None
        self.lin_skip = nn.Linear(target, total, bias=bias)
        self.lin_beta = nn.Linear(3 * total, 1, bias=False) if self.beta else None

    def reset_parameters(self):
        for layer in self.children():
            layer.reset_parameters()

    forward = transformer_forward

    def extra_repr(self):
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"


# Linear layers with N:M weights.

_nm_plans = ByTensor()


def _weights_of(weight, pattern):
    """The weights as (inputs, outputs), and what is kept of them, dense and packed."""
    dense = weight.detach().float().cpu().t().contiguous()
    packed = raw.NmWeights(dense.data_ptr(), tuple(dense.shape), pattern)
    kept = torch.empty_like(dense)
    packed.write(kept.data_ptr())
    return dense, kept, packed


def _nm_plan(weight, pattern, dtype):
    def make():
        dense, kept, packed = _weights_of(weight, pattern)
        if not torch.equal(kept, dense):
            most, of, columns = pattern
            raise errors.FormatError(
                f"more than {most} of {of} weights are not zero somewhere, in vectors of {columns}; "
                "make them so with NmLinear.from_linear"
            )
        return raw.NmSpmm(device_of(weight.device), packed, NAMES[dtype])

    return _nm_plans.get(weight, (pattern, dtype), make)


def _nm_linear(x, weight, bias, n, m, l):  # noqa: E741
    if x.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise errors.ShapeError(f"the input has shape {tuple(x.shape)} but must have {weight.shape[1]} columns")
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise errors.DtypeError(f"the input holds {x.dtype}; N:M products are in f32, f16 and bf16")
    _same_device(weight.device, bias=bias, **{"the input": x})
    out = x.new_empty((x.shape[0], weight.shape[0]))
    if out.numel() == 0:
        return out
    with _on(weight.device):
        stream = stream_of(weight.device)
        plan = _nm_plan(weight, (n, m, l), x.dtype)
        if bias is not None:
            bias = bias.detach().float().contiguous()
        at = None if bias is None else bias.data_ptr()
        plan.run(stream, operand(_rows("the input", x)), operand(out), at)
    return out


def _nm_setup(ctx, inputs, output):
    ctx.save_for_backward(inputs[1])
    ctx.of_bias = None if inputs[2] is None else inputs[2].dtype


def _nm_backward(ctx, dy):
    (weight,) = ctx.saved_tensors
    dx = dy @ weight.to(dy.dtype) if ctx.needs_input_grad[0] else None
    dbias = dy.sum(0, dtype=ctx.of_bias) if ctx.of_bias is not None and ctx.needs_input_grad[2] else None
    return dx, None, dbias, None, None, None


_nm_linear_op = _Operator(
    "nm_linear(Tensor x, Tensor weight, Tensor? bias, int n, int m, int l) -> Tensor",
    _nm_linear,
    lambda x, weight, bias, n, m, l: x.new_empty((x.shape[0], weight.shape[0])),  # noqa: E741
    _nm_setup,
    _nm_backward,
    (0, 2),
)


class NmLinear(nn.Module):
    """A linear layer whose weights are pruned: of `M` inputs `N` are kept, for `L` outputs at a time.

    Made from an `nn.Linear` by `from_linear`. The weights are a buffer and do not learn; inputs and the bias get
    gradients, that of the inputs by a dense product. The state dict is that of the `nn.Linear`, with zeros in it.
    Inputs are f32, f16 or bf16.
    """

    def __init__(self, in_features, out_features, pattern, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.pattern = tuple(int(number) for number in pattern)
        if len(self.pattern) != 3:
            raise errors.OptionError(f"the pattern {pattern} must be three numbers, (N, M, L)")
        self.register_buffer("weight", torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    @classmethod
    def from_linear(cls, linear, pattern):
        """The layer with the largest weights of an `nn.Linear`; `pattern` is `(N, M, L)`, for example (2, 8, 32)."""
        made = cls(linear.in_features, linear.out_features, pattern, bias=linear.bias is not None)
        _, kept, _ = _weights_of(linear.weight, made.pattern)
        made.weight = kept.t().contiguous().to(linear.weight.device, linear.weight.dtype)
        if linear.bias is not None:
            made.bias = nn.Parameter(linear.bias.detach().clone())
        return made.train(linear.training)

    def forward(self, x):
        flat = _dense(x).reshape(-1, self.in_features) if x.dim() != 2 else _dense(x)
        out = _nm_linear_op(flat, self.weight, self.bias, *self.pattern)
        return out if x.dim() == 2 else out.view(*x.shape[:-1], self.out_features)

    def extra_repr(self):
        kept, of, columns = self.pattern
        return f"{self.in_features}, {self.out_features}, {kept}:{of} in vectors of {columns}"
