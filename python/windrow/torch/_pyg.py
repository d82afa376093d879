"""torch_geometric on windrow: its own layers and sparse products, replaced where they can be."""

import sys
import threading

import torch

from windrow import errors
from windrow.torch._device import NAMES
from windrow.torch._functions import spmm
from windrow.torch.nn._gat import gat_forward
from windrow.torch.nn._gatv2 import gatv2_forward
from windrow.torch.nn._gcn import gcn_forward
from windrow.torch.nn._sage import sage_forward
from windrow.torch.nn._transformer import transformer_forward

_lock = threading.Lock()
_undo = []


def patch_pyg() -> None:
    """Has unchanged models of torch_geometric run on windrow, until `unpatch_pyg()`. Twice is once.

    Replaced are `GCNConv`, `SAGEConv` (aggr "mean", "sum" or "add"), `GATConv`, `GATv2Conv` without attributes of
    edges and `TransformerConv`, and what `message_and_aggregate` of any layer comes to: `torch_geometric.utils.spmm` of
    `torch.sparse_csr` tensors and `EdgeIndex`, and `EdgeIndex.matmul`, for sums and means. torch_geometric's own code
    goes on doing all else: subclasses that change how messages are made, layers with hooks or under explanation,
    decomposed layers, `aggr="max"`, `torch_sparse.SparseTensor`, edges that are there twice, other dtypes, other
    devices, and what torch.compile traces.
    """
    try:
        import torch_geometric.nn as pyg
    except ImportError as error:
        raise ImportError("patch_pyg needs PyTorch Geometric: pip install torch_geometric") from error
    with _lock:
        if _undo:
            return
        _replace_forward(pyg.GCNConv, gcn_forward, _takes_gcn)
        _replace_forward(pyg.SAGEConv, sage_forward, _takes_sage)
        _replace_forward(pyg.GATConv, gat_forward, _takes_gat)
        _replace_forward(pyg.GATv2Conv, gatv2_forward, _takes_gatv2)
        _replace_forward(pyg.TransformerConv, transformer_forward, _takes_transformer)
        _replace_products()


def unpatch_pyg() -> None:
    """Gives torch_geometric its own code back."""
    with _lock:
        while _undo:
            owner, name, original = _undo.pop()
            setattr(owner, name, original)


def _set(owner, name, new):
    _undo.append((owner, name, getattr(owner, name)))
    setattr(owner, name, new)


_HOOKS = (
    "_propagate_forward_pre_hooks",
    "_propagate_forward_hooks",
    "_message_forward_pre_hooks",
    "_message_forward_hooks",
    "_aggregate_forward_pre_hooks",
    "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks",
    "_message_and_aggregate_forward_hooks",
    "_edge_update_forward_pre_hooks",
    "_edge_update_forward_hooks",
)
_METHODS = ("message", "message_and_aggregate", "aggregate", "update", "propagate", "edge_update", "edge_updater")


def _replace_forward(cls, ours, takes):
    original = cls.forward
    methods = {name: getattr(cls, name, None) for name in _METHODS}

    def forward(self, x, edge_index, *args, **kwargs):
        if takes(self, x, edge_index, args, kwargs) and _is_as_made(self, methods):
            try:
                return ours(self, x, edge_index, *args, **kwargs)
            except (errors.FormatError, errors.DtypeError, errors.OptionError):
                pass  # whatever is wrong, torch_geometric says so or can do it
        return original(self, x, edge_index, *args, **kwargs)

    forward.__doc__, forward.__wrapped__ = original.__doc__, original
    _set(cls, "forward", forward)


def _is_as_made(self, methods):
    if torch.compiler.is_compiling() or torch.jit.is_scripting():
        return False
    if getattr(self, "explain", False) or getattr(self, "decomposed_layers", 1) > 1:
        return False
    cls = type(self)
    # Templates that torch_geometric generates are bound to the object: they are what the methods of its class are.
    return all(getattr(cls, name, None) is method for name, method in methods.items()) and not any(
        getattr(self, hooks, None) for hooks in _HOOKS
    )


def _takes_edges(x, edge_index):
    pair = x if isinstance(x, (tuple, list)) else (x,)
    for tensor in pair:
        if tensor is not None and not (
            isinstance(tensor, torch.Tensor) and tensor.dtype in NAMES and tensor.dim() == 2 and _takes_device(tensor)
        ):
            return False
    if not isinstance(edge_index, torch.Tensor) or pair[0] is None:
        return False
    is_list = edge_index.layout is torch.strided and edge_index.dim() == 2 and edge_index.shape[0] == 2
    return is_list and edge_index.dtype in (torch.int64, torch.int32) and edge_index.device == pair[0].device


def _takes_device(tensor):
    return tensor.device.type in ("cpu", "cuda")


def _takes_gcn(self, x, edge_index, args, kwargs):
    return isinstance(x, torch.Tensor) and _takes_edges(x, edge_index) and self.aggr in ("add", "sum")


def _takes_sage(self, x, edge_index, args, kwargs):
    return _takes_edges(x, edge_index) and self.aggr in ("mean", "add", "sum")


def _takes_attention(self, x, edge_index, args, kwargs):
    pair = x if isinstance(x, (tuple, list)) else (x,)
    if not _takes_edges(x, edge_index) or self.aggr not in ("add", "sum"):
        return False
    if any(tensor is None or tensor.dtype == torch.float64 for tensor in pair):
        return False
    return _takes_attributes(self.lin_edge, args[0] if args else kwargs.get("edge_attr"), pair[0], edge_index)


def _takes_gat(self, x, edge_index, args, kwargs):
    size = args[1] if len(args) > 1 else kwargs.get("size")
    return size is None and _takes_attention(self, x, edge_index, args, kwargs)


def _takes_gatv2(self, x, edge_index, args, kwargs):
    attributes = args[0] if args else kwargs.get("edge_attr")
    return attributes is None and self.lin_edge is None and _takes_attention(self, x, edge_index, args, kwargs)


def _takes_transformer(self, x, edge_index, args, kwargs):
    attributes = args[0] if args else kwargs.get("edge_attr")
    return (attributes is None) == (self.lin_edge is None) and _takes_attention(self, x, edge_index, args, kwargs)


def _takes_attributes(linear, attributes, x, edge_index):
    """Attributes are multiplied with the weights of the layer, which is not called."""
    if attributes is None or linear is None:
        return True
    return (
        isinstance(attributes, torch.Tensor)
        and attributes.dim() in (1, 2)
        and attributes.dtype == x.dtype
        and attributes.device == x.device
        and attributes.shape[0] == edge_index.shape[1]
        and type(linear).__module__ in ("torch_geometric.nn.dense.linear", "torch.nn.modules.linear")
        and type(linear).__name__ == "Linear"
        and not isinstance(linear.weight, torch.nn.parameter.UninitializedParameter)
        and not (linear._forward_hooks or linear._forward_pre_hooks or linear._backward_hooks)
    )


def _replace_products():
    of_edges = sys.modules["torch_geometric.edge_index"]
    own = of_edges._spmm

    def edge_index_spmm(input, other, value=None, reduce="sum", transpose=False):
        if not _takes_product(other, reduce):
            return own(input, other, value, reduce, transpose)
        if not (input.is_sorted_by_col if transpose else input.is_sorted_by_row):
            return own(input, other, value, reduce, transpose)
        (rowptr, col), _ = input.get_csc() if transpose else input.get_csr()
        try:
            return spmm((rowptr, col, value), other, reduce)
        except errors.Error:
            return own(input, other, value, reduce, transpose)

    _set(of_edges, "_spmm", edge_index_spmm)
    from torch_geometric import utils

    theirs = utils.spmm

    def utils_spmm(src, other, reduce="sum"):
        is_csr = isinstance(src, torch.Tensor) and src.layout is torch.sparse_csr
        if is_csr and _takes_product(other, reduce):
            try:
                return spmm(src, other, reduce)
            except errors.Error:
                pass
        return theirs(src, other, reduce)

    utils_spmm.__doc__, utils_spmm.__wrapped__ = theirs.__doc__, theirs
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch_geometric" and getattr(module, "spmm", None) is theirs:
            _set(module, "spmm", utils_spmm)


def _takes_product(other, reduce):
    return (
        reduce in ("sum", "add", "mean")
        and isinstance(other, torch.Tensor)
        and other.dim() == 2
        and other.dtype in NAMES
        and _takes_device(other)
        and not torch.compiler.is_compiling()
    )
