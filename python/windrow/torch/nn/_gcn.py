"""Graph convolution."""

from typing import Any, Optional

import torch
from torch import nn

from windrow import errors
from windrow.torch._csr import Matrix
from windrow.torch._graph import gcn_weights, wide
from windrow.torch.nn._conv import Conv, Glorot, channels_of, edges_in, graph_for, kept


def gcn_forward(
    self: Any, x: torch.Tensor, edge_index: Matrix, edge_weight: Optional[torch.Tensor] = None
) -> torch.Tensor:
    """The features of the next layer; `edge_weight` is `(edges,)`."""
    if not isinstance(x, torch.Tensor):
        raise errors.ShapeError("GCNConv takes one matrix of features; SAGEConv takes pairs")
    index, rowptr, weight = edges_in(edge_index, edge_weight)
    nodes, dtype = x.shape[-2], wide(x.dtype)
    if weight is not None:
        weight = weight.view(-1)
        if weight.numel() != index.shape[-1]:
            raise errors.ShapeError(f"there are {weight.numel()} edge weights for {index.shape[-1]} edges")
    graph = graph_for((index, rowptr), (nodes, nodes), self.normalize and self.add_self_loops, self.flow)
    if weight is None:
        out = graph.spmm(None, self.lin(x), "gcn" if self.normalize else "")
    elif self.normalize:
        fill = 2.0 if self.improved else 1.0

        def normalized(weight):
            weight = weight.to(dtype)
            return gcn_weights(graph, graph.arrange(weight, weight.new_full((nodes,), fill), True))

        out = graph.spmm(kept(weight, (graph, "gcn", fill, dtype), normalized), self.lin(x))
    else:
        value = kept(weight, (graph, "as they are", dtype), lambda weight: graph.arrange(weight.to(dtype)))
        out = graph.spmm(value, self.lin(x))
    return out if self.bias is None else out + self.bias


class GCNConv(Conv):
    """`X' = D^(-1/2)·(A + I)·D^(-1/2)·X·Θ`, Kipf and Welling 2017: `torch_geometric.nn.GCNConv`.

    `cached` is taken and disregarded: normalised graphs are kept as long as `edge_index` (and weights) in any case.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        improved: bool = False,
        cached: bool = False,
        add_self_loops: Optional[bool] = None,
        normalize: bool = True,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if self.aggr not in ("add", "sum"):
            raise errors.OptionError(f"GCNConv adds; {self.aggr!r} is not taken")
        add_self_loops = normalize if add_self_loops is None else add_self_loops
        if add_self_loops and not normalize:
            raise errors.OptionError("GCNConv adds self-loops where it normalizes; give add_self_loops=False")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.improved, self.cached = improved, cached
        self.add_self_loops, self.normalize = add_self_loops, normalize
        self.lin = Glorot(channels_of(in_channels)[0], out_channels, bias=False)
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        self.lin.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    forward = gcn_forward

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}"
