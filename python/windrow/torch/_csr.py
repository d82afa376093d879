"""What is taken for a sparse matrix."""

import weakref
from typing import NamedTuple, Optional, Union

import torch

from windrow import errors


class Csr(NamedTuple):
    """A sparse matrix: row `i` has its entries at `rowptr[i] : rowptr[i + 1]` of `col` and `value`, columns ascending.

    Without `value` all entries are 1. `num_cols` is needed where no dense operand says it. Values of several heads are
    a matrix `(heads, nnz)`.
    """

    rowptr: torch.Tensor
    col: torch.Tensor
    value: Optional[torch.Tensor] = None
    num_cols: Optional[int] = None

    def __matmul__(self, x: torch.Tensor) -> torch.Tensor:
        from windrow.torch._functions import spmm

        return spmm(self, x)


# What is taken for a sparse matrix.
Matrix = Union[
    torch.Tensor,
    Csr,
    tuple[torch.Tensor, torch.Tensor],
    tuple[torch.Tensor, torch.Tensor, Optional[torch.Tensor]],
    tuple[torch.Tensor, torch.Tensor, Optional[torch.Tensor], Optional[int]],
    list[torch.Tensor],
]


def parts(a):
    """`(rowptr, col, value or None, number of columns or None)` of whatever is taken for a sparse matrix."""
    kind = type(a)
    if kind is tuple:
        if len(a) == 2:
            return a[0], a[1], None, None
    elif kind is Csr:
        return a
    elif kind is torch.Tensor and not torch.compiler.is_compiling():
        known = _sparse.get(id(a))
        if known is not None and known[0]() is a and known[1] == a._version and not a.requires_grad:
            return known[2]
    return _parts(a)


def _parts(a):
    if isinstance(a, Csr):
        return a
    if isinstance(a, torch.Tensor):
        if a.layout is torch.sparse_csr:
            if a.dim() != 2:
                raise errors.ShapeError(f"the sparse tensor has {a.dim()} dimensions but must have two")
            found = (a.crow_indices(), a.col_indices(), a.values(), a.shape[1])
            if type(a) is torch.Tensor and not (torch.compiler.is_compiling() or a.requires_grad or a.is_inference()):
                # The values are a view, which would keep `a`; both count writes to either.
                _keep(a, (*found[:2], found[2].detach(), found[3]))
            return found
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
        remedy = (
            "give a torch.sparse_csr tensor, (rowptr, col), (rowptr, col, value), an EdgeIndex or windrow.torch.Csr"
        )
    raise errors.DtypeError(f"{what} is no sparse matrix that windrow.torch takes; {remedy}")


# The parts of torch.sparse_csr tensors, which PyTorch makes new tensors for whenever it is asked: by the identity and
# version of the tensor, gone with it.
_sparse = {}


def _keep(a, found):
    key = id(a)

    def died(ref):
        known = _sparse.get(key)
        if known is not None and known[0] is ref:
            _sparse.pop(key, None)

    _sparse[key] = (weakref.ref(a, died), a._version, found)


def plain(tensor):
    """A tensor of a subclass as a tensor."""
    if type(tensor) is torch.Tensor:
        return tensor
    return tensor.as_tensor() if hasattr(tensor, "as_tensor") else tensor.as_subclass(torch.Tensor)
