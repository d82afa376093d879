"""What is taken for a sparse matrix, and the compressed rows of lists of edges."""

import os
import threading
import weakref
from collections import OrderedDict
from typing import NamedTuple, Optional

import torch

from windrow import errors
from windrow.torch._cache import version_of


class Csr(NamedTuple):
    """A sparse matrix: row `i` has its entries at `rowptr[i] : rowptr[i + 1]` of `col` and `value`, columns ascending.

    Without `value` all entries are 1. `num_cols` is needed where no dense operand says it. Values of several heads are
    a matrix `(heads, nnz)`.
    """

    rowptr: torch.Tensor
    col: torch.Tensor
    value: Optional[torch.Tensor] = None
    num_cols: Optional[int] = None

    def __matmul__(self, x):
        from windrow.torch._ops import spmm

        return spmm(self, x)


def parts(a):
    """`(rowptr, col, value or None, number of columns or None)` of whatever is taken for a sparse matrix."""
    if isinstance(a, Csr):
        return a
    if isinstance(a, torch.Tensor):
        if a.layout is torch.sparse_csr:
            if a.dim() != 2:
                raise errors.ShapeError(f"the sparse tensor has {a.dim()} dimensions but must have two")
            return a.crow_indices(), a.col_indices(), a.values(), a.shape[1]
        if hasattr(a, "get_csr") and hasattr(a, "sparse_size"):
            if not a.is_sorted:
                raise errors.FormatError("the EdgeIndex is not sorted; give edge_index.sort_by('row')[0]")
            (rowptr, col), _ = a.get_csr()
            return plain(rowptr), plain(col), None, a.get_sparse_size(1)
        what = f"a tensor of layout {a.layout}"
        remedy = "give a.to_sparse_csr()"
    elif isinstance(a, (tuple, list)) and 2 <= len(a) <= 4:
        return (*a, *(None,) * (4 - len(a)))
    else:
        what = f"{type(a).__name__}"
        remedy = "give a torch.sparse_csr tensor, (rowptr, col), (rowptr, col, value), an EdgeIndex or windrow.torch.Csr"
    raise errors.DtypeError(f"{what} is no sparse matrix that windrow.torch takes; {remedy}")


def plain(tensor):
    """A tensor of a subclass as a tensor."""
    if type(tensor) is torch.Tensor:
        return tensor
    return tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor.as_subclass(torch.Tensor)


class Graph:
    """A list of edges in compressed rows.

    Entry `e` of `csr`, in row `row[e]`, is edge `perm[e]` of `edges`. These are the edges `kept` of the list that was
    given, and behind them one from each node to itself; or all of them, if `kept` is None. `dropped` are those of the
    given list that lead from a node to itself, `loops` these nodes.
    """

    __slots__ = ("csr", "row", "perm", "edges", "kept", "dropped", "loops", "derived", "error", "__weakref__")

    def __init__(self, csr, row, perm, edges, kept, dropped, loops):
        self.csr, self.row, self.perm, self.edges = csr, row, perm, edges
        self.kept, self.dropped, self.loops = kept, dropped, loops
        self.derived, self.error = {}, None

    @torch.compiler.disable
    def once(self, key, make):
        """What `make` makes, made once."""
        found = self.derived.get(key)
        if found is None:
            with torch.inference_mode(False), torch.no_grad():
                found = self.derived[key] = make()
        return found


_of_processes = []


class ByTensor:
    """Things that belong to tensors as they are: found by storage, place and version, gone with the storage."""

    def __init__(self, size=64):
        self.size, self.lock, self.things = size, threading.RLock(), OrderedDict()
        _of_processes.append(self)

    def get(self, tensor, key, make):
        version = version_of(tensor)
        if version is None:
            return make()
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, version, key)
        found = self.things.get(key)
        if found is not None and found[0]() is tensor.untyped_storage():
            with self.lock:
                if key in self.things:
                    self.things.move_to_end(key)
            return found[1]
        # What is kept may be used with gradients, and is whatever mode is on now.
        with torch.inference_mode(False), torch.no_grad():
            made = make()
        with self.lock:
            things = weakref.ref(self)

            def died(_):
                if (alive := things()) is not None:
                    alive.things.pop(key, None)

            self.things[key] = (weakref.ref(tensor.untyped_storage(), died), made)
            while len(self.things) > self.size:
                self.things.popitem(last=False)
        return made


def _forked():
    for kept in _of_processes:
        kept.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
_graphs = ByTensor()
_edges = ByTensor()


@torch.compiler.disable
def edges_of(a):
    """The edges of a matrix whose rows are targets, and their weights or None."""
    rowptr, col, value, _ = parts(a)

    def make():
        rows = torch.arange(rowptr.numel() - 1, dtype=col.dtype, device=col.device)
        return torch.stack([col, rows.repeat_interleave(rowptr.diff(), output_size=col.numel())])

    return _edges.get(col, (rowptr.data_ptr(), version_of(rowptr)), make), value


@torch.compiler.disable
def graph_of(edge_index, shape, loops=False, flow="source_to_target"):
    """The `Graph` of an `edge_index` of shape (2, E): rows are targets, columns sources; kept with the tensor.

    `shape` is (targets, sources). With `loops` there is one edge from each node to itself, whether or not there was.
    Two equal edges are an error.
    """
    index = plain(edge_index)
    if index.dim() != 2 or index.shape[0] != 2:
        raise errors.ShapeError(f"edge_index has shape {tuple(index.shape)} but must be (2, number of edges)")
    if index.dtype not in (torch.int64, torch.int32):
        raise errors.DtypeError(f"edge_index holds {index.dtype}; give it as torch.int64")
    if flow not in ("source_to_target", "target_to_source"):
        raise errors.OptionError(f"{flow!r} is no flow; there are source_to_target and target_to_source")
    found = _graphs.get(index, (shape, loops, flow), lambda: _graph(index, shape, loops, flow))
    if found.error is not None:
        raise found.error
    return found


def _graph(index, shape, loops, flow):
    rows, cols = shape
    kept = dropped = looped = None
    if loops:
        nodes, others = min(rows, cols), index[0] != index[1]
        kept, dropped = others.nonzero().squeeze(1), (~others).nonzero().squeeze(1)
        looped = index[0, dropped].long()
        loop = torch.arange(nodes, dtype=index.dtype, device=index.device).expand(2, nodes)
        index = torch.cat([index[:, kept], loop], dim=1)
    target, source = (1, 0) if flow == "source_to_target" else (0, 1)
    row, col = index[target], index[source]
    # A stable sort of pairs; columns that are too large are told by the check, as rows are.
    perm = torch.sort(row.long() * max(cols, 1) + col, stable=True).indices
    row, col = row[perm], col[perm]
    ends = torch.arange(rows + 1, dtype=row.dtype, device=row.device)
    rowptr = torch.searchsorted(row, ends).to(index.dtype)
    made = Graph(Csr(rowptr, col, None, cols), row, perm, index, kept, dropped, looped)
    try:
        from windrow.torch._ops import check

        check(made.csr)
    except errors.FormatError as error:
        made.error = error
    return made
