"""Means or sums of neighbours beside a node's own features."""

from typing import Any, Optional, Union

import torch
import torch.nn.functional as F
from torch import nn

from windrow import errors
from windrow.torch._csr import Matrix
from windrow.torch.nn._conv import Conv, Features, channels_of, edges_in, graph_for


def sage_forward(self: Any, x: Features, edge_index: Matrix, size: Optional[tuple[int, int]] = None) -> torch.Tensor:
    """The features of the next layer, of a matrix or a pair `(x_source, x_target)`; `size` is (sources, targets)."""
    pair = (x, x) if isinstance(x, torch.Tensor) else tuple(x)
    if getattr(self, "project", False) and hasattr(self, "lin"):
        pair = (self.lin(pair[0]).relu(), pair[1])
    edges = edges_in(edge_index)
    targets = pair[1].shape[0] if pair[1] is not None else size[1] if size is not None else pair[0].shape[0]
    if not isinstance(x, torch.Tensor) and x[0] is not x[1] and self.flow != "source_to_target":
        raise errors.OptionError("pairs of features go from source to target")
    if self.aggr not in ("mean", "sum", "add"):
        raise errors.OptionError(f"{self.aggr!r} is no aggregation that windrow.torch has; there are mean, sum and add")
    graph = graph_for(edges, (targets, pair[0].shape[0]), False, self.flow)
    out = self.lin_l(graph.spmm(None, pair[0], "mean" if self.aggr == "mean" else ""))
    if self.root_weight and pair[1] is not None:
        out = out + self.lin_r(pair[1])
    return F.normalize(out, p=2.0, dim=-1) if self.normalize else out


class SAGEConv(Conv):
    """`X' = mean of neighbours·W₁ + X·W₂`, Hamilton et al. 2017: `torch_geometric.nn.SAGEConv`, aggr "mean" or "sum"."""

    def __init__(
        self,
        in_channels: Union[int, tuple[int, int]],
        out_channels: int,
        aggr: str = "mean",
        normalize: bool = False,
        root_weight: bool = True,
        project: bool = False,
        bias: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(aggr, **kwargs)
        if aggr not in ("mean", "sum", "add"):
            raise errors.OptionError(f"{aggr!r} is no aggregation that windrow.torch has; there are mean, sum and add")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.normalize, self.root_weight, self.project = normalize, root_weight, project
        source, target = channels_of(in_channels)
        if project:
            self.lin = nn.Linear(source, source)
        self.lin_l = nn.Linear(source, out_channels, bias=bias)
        if root_weight:
            self.lin_r = nn.Linear(target, out_channels, bias=False)

    def reset_parameters(self) -> None:
        """Draws all parameters anew."""
        for layer in self.children():
            layer.reset_parameters()

    forward = sage_forward

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, aggr={self.aggr}"
