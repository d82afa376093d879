"""Sparse products for PyTorch: operators with gradients, layers of graph networks, and PyG on them.

    import windrow.torch as wt

    y = wt.spmm(a, x)      # a: torch.sparse_csr, (rowptr, col[, value]), EdgeIndex; on CUDA or on the CPU
    wt.patch_pyg()         # GCNConv, SAGEConv, GATConv and sparse products of torch_geometric run on windrow

Tensors are used where they are, in the order of the current stream; plans are cached (`windrow.torch.cache`).
"""

try:
    import torch as _torch
except ImportError as error:
    raise ImportError("windrow.torch needs PyTorch: pip install torch") from error

from windrow.torch import nn
from windrow.torch._attention import additive_attention, gatv2_attention, graph_attention
from windrow.torch._cache import cache, pin
from windrow.torch._csr import Csr
from windrow.torch._functions import check, edge_softmax, prepare_capture, sddmm, spmm
from windrow.torch._graph import graph_of
from windrow.torch._pyg import patch_pyg, unpatch_pyg

__all__ = [
    "Csr",
    "additive_attention",
    "cache",
    "check",
    "edge_softmax",
    "gatv2_attention",
    "graph_attention",
    "graph_of",
    "nn",
    "patch_pyg",
    "pin",
    "prepare_capture",
    "sddmm",
    "spmm",
    "unpatch_pyg",
]
