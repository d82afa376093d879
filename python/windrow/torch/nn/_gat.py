"""Attention by additive scores."""

from typing import Any, Optional, Union

import torch
import torch.nn.functional as F
from torch import nn

from windrow import errors
from windrow.torch._attention import additive_weights
from windrow.torch._csr import Matrix
from windrow.torch.nn._conv import (
    Attended,
    Conv,
    Features,
    Glorot,
    channels_of,
    edges_in,
    glorot,
    graph_for,
    in_single,
    of_heads,
    pair_of,
)


def gat_forward(
    self: Any,
    x: Features,
    edge_index: Matrix,
    edge_attr: Optional[torch.Tensor] = None,
    size: Optional[tuple[int, int]] = None,
    return_attention_weights: Optional[bool] = None,
) -> Attended:
    """The features of the next layer; with `return_attention_weights` also `(edges, weights)`."""
    heads, channels = self.heads, self.out_channels
    pair = pair_of(x, self.flow)
    in_single("GATConv", pair[0])
    if pair[1] is None:
        raise errors.OptionError(
            "windrow.torch has no attention without features of targets; give (x_source, x_target)"
        )
    res = self.res(pair[1]) if self.res is not None else None
    shared = self.lin is not None
    source = (self.lin if shared else self.lin_src)(pair[0]).view(-1, heads, channels)
    if shared and pair[0] is pair[1]:
        target = source
    else:
        target = (self.lin if shared else self.lin_dst)(pair[1]).view(-1, heads, channels)
    edges = edges_in(edge_index)
    graph = graph_for(edges, (target.shape[0], source.shape[0]), self.add_self_loops, self.flow)
    numbers = (target * self.att_dst).sum(-1).float(), (source * self.att_src).sum(-1).float()
    of_edges = None
    if edge_attr is not None and self.lin_edge is not None:
        of_edges = _scores_of_edges(self, graph, edges, edge_attr)
    if return_attention_weights:
        alpha = additive_weights(graph, numbers, of_edges, self.negative_slope)
        alpha = F.dropout(alpha, p=self.dropout, training=self.training)
        out = graph.spmm(alpha, source)
    else:
        dropout = self.dropout if self.training else 0.0
        out = graph.attend_additively(numbers, source, of_edges, self.negative_slope, dropout)
    out = of_heads(self, out, res)
    if return_attention_weights:
        return out, graph.attention(alpha)
    return out


def _scores_of_edges(self, graph, edges, attributes):
    """What attributes of edges add to the scores of entries, `(heads, entries)`.

    `Σ_c (W·a)[c]·att[c]` is `a·(Wᵀ·att)` for each head: no vector of an edge has more than `edge_dim` elements.
    """
    attributes = attributes.view(-1, 1) if attributes.dim() == 1 else attributes
    if attributes.shape[0] != edges[0].shape[-1]:
        raise errors.ShapeError(f"there are attributes of {attributes.shape[0]} edges for {edges[0].shape[-1]} edges")
    weight = self.lin_edge.weight.view(self.heads, self.out_channels, -1)
    attention = (weight * self.att_edge.view(self.heads, self.out_channels, 1)).sum(1)
    scores = F.linear(attributes, attention).t().float()
    if not self.add_self_loops:
        return graph.arrange(scores)
    fill = self.fill_value
    with torch.autocast(attributes.device.type, enabled=False):
        if isinstance(fill, str) and fill in ("mean", "add", "sum"):
            fill = _sums_of_edges(graph, scores, self.flow, fill == "mean")[:, : graph.nodes]
        else:
            loops = _loop_attributes(graph, edges, attributes, fill)
            fill = F.linear(loops.to(attention.dtype), attention).t().float()
        return graph.arrange(scores, fill)


def _sums_of_edges(graph, scores, flow, mean):
    """Sums or means of scores `(heads, edges)` over the edges to each node other than its own, `(heads, nodes)`.

    These are the nodes of `edge_index[1]` in either flow, as torch_geometric has it.
    """
    without_loops = graph.arrange(scores)
    if flow == "source_to_target":
        product, others = graph.spmm, graph.cols
    else:
        product, others = graph.spmm_t, graph.rows
    sums = product(without_loops, scores.new_ones((others, scores.shape[0], 1))).squeeze(-1)
    if mean:
        # Each of these nodes has one loop; those beyond the loops are cut off.
        sums = sums / (product(None, scores.new_ones((others, 1))) - 1).clamp(min=1)
    return sums.t()


_REDUCTIONS = {"min": "amin", "max": "amax", "mul": "prod"}


def _loop_attributes(graph, edges, attributes, fill):
    """Attributes of the loops that are added, `(nodes, features)`."""
    shape = (graph.nodes, attributes.shape[1])
    if isinstance(fill, torch.Tensor):
        fill = fill.to(attributes.device, attributes.dtype)
        return (fill if fill.dim() == 2 else fill.unsqueeze(0)).expand(shape)
    if isinstance(fill, (int, float)):
        return attributes.new_full(shape, fill)
    if fill not in _REDUCTIONS:
        raise errors.OptionError(
            f"{fill!r} is no fill_value; there are numbers, tensors, 'add', 'mean', 'min', 'max' and 'mul'"
        )
    if edges[1] is not None:
        raise errors.OptionError(f"with fill_value={fill!r} torch.compile takes edge_index as a tensor of shape (2, E)")
    source, target = edges[0].long()
    nodes = max(graph.rows, graph.cols)
    # Loops that were given are no edges: what they reduce to is cut off.
    target = torch.where(source == target, nodes, target).unsqueeze(1).expand_as(attributes)
    start = attributes.new_ones if fill == "mul" else attributes.new_zeros
    reduced = start((nodes + 1, shape[1])).scatter_reduce(
        0, target, attributes, _REDUCTIONS[fill], include_self=fill == "mul"
    )
    return reduced[: graph.nodes]


class GATConv(Conv):
    """Attention by additive scores, Veličković et al. 2018: `torch_geometric.nn.GATConv`.

    Scores, softmax and sums are one pass over the edges on a GPU, without dropout and where nobody asks for weights;
    else a sampled product, a softmax over rows, both in f32, and a product. No message is stored, and of attributes of
    edges (`edge_dim`) only what they add to the scores of each head.
    """

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        negative_slope: float = 0.2,
        dropout: float = 0.0,
        add_self_loops: bool = True,
        edge_dim: Optional[int] = None,
        fill_value: Union[float, torch.Tensor, str] = "mean",
        bias: bool = True,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if self.aggr not in ("add", "sum"):
            raise errors.OptionError(f"GATConv adds; {self.aggr!r} is not taken")
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.negative_slope, self.dropout = concat, negative_slope, dropout
        self.add_self_loops, self.residual = add_self_loops, residual
        self.edge_dim, self.fill_value = edge_dim, fill_value
        source, target = channels_of(in_channels)
        self.lin = self.lin_src = self.lin_dst = self.lin_edge = None
        if isinstance(in_channels, int):
            self.lin = Glorot(source, heads * out_channels, bias=False)
        else:
            self.lin_src = Glorot(source, heads * out_channels, bias=False)
            self.lin_dst = Glorot(target, heads * out_channels, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, out_channels))
        self.att_dst = nn.Parameter(torch.empty(1, heads, out_channels))
        self.register_parameter("att_edge", None)
        if edge_dim is not None:
            self.lin_edge = Glorot(channels_of(edge_dim, "edge_dim")[0], heads * out_channels, bias=False)
            self.att_edge = nn.Parameter(torch.empty(1, heads, out_channels))
        total = out_channels * (heads if concat else 1)
        self.res = Glorot(target, total, bias=False) if residual else None
        self.bias = nn.Parameter(torch.zeros(total)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for layer in self.children():
            layer.reset_parameters()
        for attention in (self.att_src, self.att_dst, self.att_edge):
            if attention is not None:
                glorot(attention)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    forward = gat_forward

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
