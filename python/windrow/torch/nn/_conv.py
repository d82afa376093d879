"""What layers share: their edges, options and initial parameters."""

import math
from typing import Optional, Union

import torch
from torch import nn

from windrow import errors
from windrow.torch._csr import parts, plain
from windrow.torch._graph import FLOWS, edges_of, graph_of
from windrow.torch._kept import ByTensor
from windrow.torch._traced import Traced

# Features of nodes, or of sources and of targets; what attention gives, with weights of edges if they are asked for.
Features = Union[torch.Tensor, tuple[torch.Tensor, Optional[torch.Tensor]]]
Attended = Union[torch.Tensor, tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]]

_of_weights = ByTensor()


def edges_in(edge_index, edge_weight=None):
    """`(index, rowptr, weight)`, whatever edges are given as: `index` of shape (2, E), or, under torch.compile, the
    columns of rows that `rowptr` ends."""
    if isinstance(edge_index, torch.Tensor) and edge_index.layout is torch.strided:
        return plain(edge_index), None, edge_weight
    if torch.compiler.is_compiling():
        rowptr, index, weight, _ = parts(edge_index)
    else:
        rowptr, (index, weight) = None, edges_of(edge_index)
    return index, rowptr, weight if edge_weight is None else edge_weight


def graph_for(edges, shape, loops, flow):
    """The graph of edges from `edges_in`, with (targets, sources)."""
    index, rowptr = edges[:2]
    if torch.compiler.is_compiling():
        return Traced(index, rowptr, shape, loops, flow)
    return graph_of(index, shape, loops, flow)


def pair_of(x, flow):
    """Features of sources and of targets."""
    if isinstance(x, torch.Tensor):
        return x, x
    if x[0] is not x[1] and flow != "source_to_target":
        raise errors.OptionError("pairs of features go from source to target")
    return tuple(x)


def in_single(layer, x):
    if x.dtype == torch.float64:
        raise errors.DtypeError(f"{layer} computes attention in f32 but the features are torch.float64; give x.float()")


def kept(weight, made_of, make):
    """What is made of weights, kept with them unless it has a gradient or is compiled."""
    if torch.compiler.is_compiling() or (weight.requires_grad and torch.is_grad_enabled()):
        return make(weight)
    return _of_weights.get(weight, made_of, lambda: make(weight.detach()))


def glorot(weight):
    bound = math.sqrt(6.0 / (weight.size(-2) + weight.size(-1)))
    nn.init.uniform_(weight, -bound, bound)


class Glorot(nn.Linear):
    def reset_parameters(self):
        glorot(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


def of_heads(layer, out, res):
    """What a layer makes of `(n, heads, channels)`, side by side or their mean, with what it adds."""
    out = out.flatten(1) if layer.concat else out.mean(dim=1)
    if res is not None:
        out = out + res
    return out if layer.bias is None else out + layer.bias


class Conv(nn.Module):
    def __init__(self, aggr="add", *, flow="source_to_target", node_dim=-2, **kwargs):
        super().__init__()
        if kwargs:
            raise errors.OptionError(f"{', '.join(map(repr, kwargs))} is no option of a layer of windrow.torch.nn")
        if node_dim not in (-2, 0):
            raise errors.OptionError(f"nodes are the rows of the features; node_dim is {node_dim}")
        if flow not in FLOWS:
            raise errors.OptionError(f"{flow!r} is no flow; there are source_to_target and target_to_source")
        self.aggr, self.flow = aggr, flow


def channels_of(in_channels, what="in_channels"):
    pair = (in_channels, in_channels) if isinstance(in_channels, int) else tuple(in_channels)
    if min(pair) <= 0:
        raise errors.OptionError(f"{what} is {in_channels}; give the number of features, it is not found out later")
    return pair
