"""Attention by scores of sums, with a vector for each head."""

from typing import Any, Optional, Union

import torch
import torch.nn.functional as F
from torch import nn

from windrow import errors
from windrow.torch._attention import MOST_FEATURES, gatv2_attention, gatv2_weights
from windrow.torch._csr import Matrix
from windrow.torch._device import capturing
from windrow.torch._graph import graph_of
from windrow.torch.nn._conv import (
    Attended,
    Conv,
    Features,
    Glorot,
    channels_of,
    edges_in,
    glorot,
    in_single,
    of_heads,
    pair_of,
)


def gatv2_forward(
    self: Any,
    x: Features,
    edge_index: Matrix,
    edge_attr: Optional[torch.Tensor] = None,
    return_attention_weights: Optional[bool] = None,
) -> Attended:
    """The features of the next layer; with `return_attention_weights` also `(edges, weights)`."""
    if edge_attr is not None:
        raise errors.OptionError(_NO_ATTRIBUTES)
    heads, channels = self.heads, self.out_channels
    pair = pair_of(x, self.flow)
    in_single("GATv2Conv", pair[0])
    if pair[1] is None:
        raise errors.OptionError("GATv2Conv has no attention without features of targets; give (x_source, x_target)")
    res = self.res(pair[1]) if self.res is not None else None
    source = self.lin_l(pair[0]).view(-1, heads, channels)
    shares = self.share_weights and pair[0] is pair[1]
    target = source if shares else self.lin_r(pair[1]).view(-1, heads, channels)
    out = _attend(self, edge_index, source, target, bool(return_attention_weights))
    out, attended = out if return_attention_weights else (out, None)
    out = of_heads(self, out, res)
    return (out, attended) if return_attention_weights else out


# What is made of edges is kept with their tensor, which is nothing that could be compiled.
@torch.compiler.disable
def _attend(self, edge_index, source, target, wants_weights):
    graph = graph_of(edges_in(edge_index)[0], (target.shape[0], source.shape[0]), self.add_self_loops, self.flow)
    dropout = self.dropout if self.training else 0.0
    # A graph that is captured with dropout would drop the same weights in each launch.
    if not wants_weights and source.shape[-1] <= MOST_FEATURES and not (dropout and capturing(source.device)):
        vector = self.att.squeeze(0)
        return gatv2_attention(graph.csr, target, source, source, vector, None, self.negative_slope, dropout)
    alpha = gatv2_weights(graph, source, target, self.att, self.negative_slope)
    alpha = F.dropout(alpha, p=dropout)
    out = graph.spmm(alpha, source)
    return (out, graph.attention(alpha)) if wants_weights else out


_NO_ATTRIBUTES = (
    "GATv2Conv takes no attributes of edges: there would be a vector for each edge and head; use "
    "torch_geometric.nn.GATv2Conv for these"
)


class GATv2Conv(Conv):
    """Attention by sums of rows, Brody, Alon and Yahav 2022: `torch_geometric.nn.GATv2Conv`, without `edge_dim`.

    Scores, softmax and sums are one pass over the edges. Only where weights are asked for, heads have more than 256
    features, or a CUDA graph is captured with dropout, there is a vector for each edge and head.
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
        share_weights: bool = False,
        residual: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if self.aggr not in ("add", "sum"):
            raise errors.OptionError(f"GATv2Conv adds; {self.aggr!r} is not taken")
        if edge_dim is not None:
            raise errors.OptionError(_NO_ATTRIBUTES)
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.concat, self.negative_slope, self.dropout = concat, negative_slope, dropout
        self.add_self_loops, self.residual, self.share_weights = add_self_loops, residual, share_weights
        self.edge_dim, self.fill_value = edge_dim, fill_value
        source, target = channels_of(in_channels)
        self.lin_l = Glorot(source, heads * out_channels, bias=bias)
        self.lin_r = self.lin_l if share_weights else Glorot(target, heads * out_channels, bias=bias)
        self.att = nn.Parameter(torch.empty(1, heads, out_channels))
        self.lin_edge = None
        total = out_channels * (heads if concat else 1)
        self.res = Glorot(target, total, bias=False) if residual else None
        self.bias = nn.Parameter(torch.zeros(total)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for layer in self.children():
            layer.reset_parameters()
        glorot(self.att)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    forward = gatv2_forward

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
