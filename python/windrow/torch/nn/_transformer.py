"""Attention by products of keys and queries."""

import math
from typing import Any, Optional, Union

import torch
import torch.nn.functional as F
from torch import nn

from windrow import errors
from windrow.torch._csr import Matrix
from windrow.torch.nn._conv import Attended, Conv, Features, channels_of, edges_in, graph_for, in_single, pair_of


def transformer_forward(
    self: Any,
    x: Features,
    edge_index: Matrix,
    edge_attr: Optional[torch.Tensor] = None,
    return_attention_weights: Optional[bool] = None,
) -> Attended:
    """The features of the next layer; with `return_attention_weights` also `(edges, weights)`."""
    heads, channels = self.heads, self.out_channels
    if (edge_attr is None) != (self.lin_edge is None):
        raise errors.OptionError("TransformerConv takes attributes of edges if and only if it has an edge_dim")
    pair = pair_of(x, self.flow)
    in_single("TransformerConv", pair[0])
    query = self.lin_query(pair[1]).view(-1, heads, channels)
    key = self.lin_key(pair[0]).view(-1, heads, channels)
    value = self.lin_value(pair[0]).view(-1, heads, channels)
    edges = edges_in(edge_index)
    graph = graph_for(edges, (query.shape[0], key.shape[0]), False, self.flow)
    attributes = products = None
    if edge_attr is not None:
        attributes, products = _attributes_of_entries(self, graph, edges, edge_attr, query)
    scale = 1 / math.sqrt(channels)
    wants_weights = isinstance(return_attention_weights, bool)
    if attributes is None and not wants_weights:
        out = graph.attend(query, key, value, scale, self.dropout if self.training else 0.0)
    else:
        with torch.autocast(query.device.type, enabled=False):
            scores = graph.sddmm(query, key, torch.float32)
            if attributes is not None:
                scores = scores + graph.attribute_products(products, attributes, torch.float32)
            weights = graph.softmax(scores, scale)
        alpha = F.dropout(weights, p=self.dropout, training=self.training)
        out = graph.spmm(alpha, value)
    if attributes is not None:
        out = out + torch.einsum("nhd,hcd->nhc", graph.attribute_sums(alpha, attributes), _weight_of_edges(self))
    out = out.reshape(-1, heads * channels) if self.concat else out.mean(dim=1)
    if self.root_weight:
        root = self.lin_skip(pair[1])
        if self.lin_beta is not None:
            beta = self.lin_beta(torch.cat([out, root, out - root], dim=-1)).sigmoid()
            out = beta * root + (1 - beta) * out
        else:
            out = out + root
    if wants_weights:
        return out, graph.attention(weights)
    return out


def _weight_of_edges(self):
    return self.lin_edge.weight.view(self.heads, self.out_channels, -1)


def _attributes_of_entries(self, graph, edges, attributes, query):
    """Attributes `(entries, heads, features)`, the same for each head, and what they are multiplied with for scores.

    `q·(k + W·a)` is `q·k + (Wᵀ·q)·a`, and `Σ α·(v + W·a)` is `Σ α·v + W·(Σ α·a)`: no vector of an edge has more than
    `edge_dim` elements.
    """
    attributes = attributes.view(-1, 1) if attributes.dim() == 1 else attributes
    if attributes.shape[0] != edges[0].shape[-1]:
        raise errors.ShapeError(f"there are attributes of {attributes.shape[0]} edges for {edges[0].shape[-1]} edges")
    products = torch.einsum("nhc,hcd->nhd", query, _weight_of_edges(self))
    in_order = graph.arrange(attributes.t()).t().contiguous().to(products.dtype)
    return in_order.unsqueeze(1).expand(-1, self.heads, -1), products


class TransformerConv(Conv):
    """Attention by products of keys and queries, Shi et al. 2021: `torch_geometric.nn.TransformerConv`.

    Attributes of edges (`edge_dim`) are multiplied with what is a node's, before and after: no message is stored.
    """

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        beta: bool = False,
        dropout: float = 0.0,
        edge_dim: Optional[int] = None,
        bias: bool = True,
        root_weight: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if self.aggr not in ("add", "sum"):
            raise errors.OptionError(f"TransformerConv adds; {self.aggr!r} is not taken")
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.beta, self.dropout = concat, beta and root_weight, dropout
        self.edge_dim, self.root_weight = edge_dim, root_weight
        source, target = channels_of(in_channels)
        total = heads * out_channels if concat else out_channels
        self.lin_key = nn.Linear(source, heads * out_channels, bias=bias)
        self.lin_query = nn.Linear(target, heads * out_channels, bias=bias)
        self.lin_value = nn.Linear(source, heads * out_channels, bias=bias)
        self.lin_edge = None
        if edge_dim is not None:
            self.lin_edge = nn.Linear(channels_of(edge_dim, "edge_dim")[0], heads * out_channels, bias=False)
        self.lin_skip = nn.Linear(target, total, bias=bias)
        self.lin_beta = nn.Linear(3 * total, 1, bias=False) if self.beta else None

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for layer in self.children():
            layer.reset_parameters()

    forward = transformer_forward

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
