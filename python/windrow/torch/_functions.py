"""What users call."""

from typing import Optional

import torch

from windrow import errors
from windrow.torch._cache import cache, check_indices
from windrow.torch._csr import Matrix, parts, plain
from windrow.torch._device import on_device, stream_of
from windrow.torch._kernels import pattern_of
from windrow.torch._ops import dense, edge_softmax_op, sddmm_op, spmm_op


def spmm(a: Matrix, x: torch.Tensor, reduce: str = "sum") -> torch.Tensor:
    """`A·X` for a sparse matrix `A` (m × n) and a dense `X` of shape (n, features), (n,) or (n, heads, features).

    `A` is a `torch.sparse_csr` tensor, `(rowptr, col)`, `(rowptr, col, value)`, a `torch_geometric.EdgeIndex`, or a
    `windrow.torch.Csr`; columns ascend in each row, none twice. Without values all entries are 1; for X with heads
    they are `(heads, nnz)`. `reduce` is "sum" or "mean", which divides by the number of entries of the row (a row
    without any gives 0). X is f32, f64, f16 or bf16, values the same or f32; sums are in f32 (f64 for f64), the result
    has X's type. Values and X get gradients: `Aᵀ·dY`, and the products of rows of dY and X at A's entries. Under
    autocast X is converted.

    Plans are made at the first use of a pattern, on a GPU at the second, and kept: see `windrow.torch.cache`.

    Raises the exceptions of `windrow.errors` for operands that do not fit, and for a pattern that is not canonical; of
    one that a GPU meets for the first time, which is multiplied as it is, wrong offsets or columns make the result NaN.
    """
    rowptr, col, value, cols = parts(a)
    if cols is not None and x.shape[0] != cols:
        raise errors.ShapeError(f"A has {cols} columns but X {x.shape[0]} rows")
    if x.dim() == 1:
        return spmm(a, x.unsqueeze(1), reduce).squeeze(1)
    out = spmm_op(rowptr, col, value, dense(x))
    if reduce in ("sum", "add"):
        return out
    if reduce != "mean":
        raise errors.OptionError(f"{reduce!r} is no reduction that windrow.torch has; there are sum and mean")
    count = rowptr.diff().clamp(min=1).to(torch.float64 if out.dtype == torch.float64 else torch.float32)
    return (out / count.view(-1, *(1,) * (out.dim() - 1))).to(out.dtype)


def sddmm(a: Matrix, x: torch.Tensor, y: torch.Tensor, scale: bool = False) -> torch.Tensor:
    """`X·Yᵀ` at the entries of A: `(X[i] · Y[j])` for each entry `(i, j)`, times its value with `scale=True`.

    X is (m, features) and Y (n, features), which gives `(nnz,)`; or with heads `(m, heads, features)` and
    `(n, heads, features)`, which gives `(heads, nnz)`. X, Y and values get gradients.
    """
    rowptr, col, value, cols = parts(a)
    if cols is not None and y.shape[0] != cols:
        raise errors.ShapeError(f"A has {cols} columns but Y {y.shape[0]} rows")
    if scale and value is None:
        raise errors.OptionError("the products cannot be multiplied by values: the matrix has none")
    out = sddmm_op(rowptr, col, dense(x), dense(y), None)
    return out * value if scale else out


def edge_softmax(a: Matrix, scores: torch.Tensor, scale: float = 1.0, num_cols: Optional[int] = None) -> torch.Tensor:
    """`softmax(scale·scores)` over the entries of each row of A; scores are `(nnz,)` or `(heads, nnz)`, in A's order.

    Computed in f32, whatever of f32, f16 and bf16 the scores are; they get gradients. `num_cols` says how many columns
    A has, if it does not say it itself; an upper bound will do.
    """
    rowptr, col, _, cols = parts(a)
    cols = cols if cols is not None else num_cols
    if cols is None:
        raise errors.ShapeError("the matrix does not say how many columns it has; give num_cols")
    return edge_softmax_op(rowptr, col, scores, cols, float(scale))


def check(a: Matrix, num_cols: Optional[int] = None) -> None:
    """Checks a matrix now, which its plan would. Raises `windrow.errors.FormatError` with the first wrong entry."""
    rowptr, col, _, cols = parts(a)
    cols = cols if cols is not None else num_cols
    if cols is None:
        raise errors.ShapeError("the matrix does not say how many columns it has; give num_cols")
    rowptr, col = plain(rowptr), plain(col)
    check_indices(rowptr, col)
    pattern = pattern_of(rowptr, col, cols)
    with on_device(pattern.device):
        pattern.checked(stream_of(pattern.device))


def prepare_capture(stream: Optional[torch.cuda.Stream] = None) -> None:
    """Makes what the cached plans need to be captured into a CUDA graph on `stream`, a `torch.cuda.Stream`.

    Not needed for the stream that `torch.cuda.graph` takes unless told, nor for one that plans have run on: their
    second run makes it.
    """
    if stream is None:
        stream = torch.cuda.current_stream()
    for pattern in list(cache.patterns.values()):
        if pattern.device == stream.device:
            pattern.make_ready_on(stream.cuda_stream)
