"""What users call."""

from typing import Optional

import torch

from windrow import errors
from windrow.torch._aggregate import MESSAGES, REDUCTIONS, aggregate
from windrow.torch._cache import cache, check_indices
from windrow.torch._csr import Matrix, parts, plain
from windrow.torch._device import capturing, on_device, stream_of
from windrow.torch._kept import ByTensor
from windrow.torch._kernels import pattern_of
from windrow.torch._ops import dense, edge_softmax_op, sddmm_op, spmm_op


def spmm(a: Matrix, x: torch.Tensor, reduce: str = "sum", message: Optional[str] = None) -> torch.Tensor:
    """`A·X` for a sparse matrix `A` (m × n) and a dense `X` of shape (n, features), (n,) or (n, heads, features).

    `A` is a `torch.sparse_csr` tensor, `(rowptr, col)`, `(rowptr, col, value)`, a `torch_geometric.EdgeIndex`, or a
    `windrow.torch.Csr`; columns ascend in each row, none twice. Without values all entries are 1; for X with heads
    they are `(heads, nnz)`. `reduce` is "sum" or "mean", in which each entry counts one over the entries of its
    row, rounded as values are, or "max" or "min", of each column (a row without entries gives 0, a NaN wins). What of each entry is reduced is `message`:
    "mul", the value times the row of X, or "add", their sum, or "copy", the row; "mul" unless told, "copy" without
    values. X is f32, f64, f16 or bf16, values the same or f32; sums are in f32 (f64 for f64), the result
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
    reduce = "sum" if reduce == "add" else reduce
    if reduce not in REDUCTIONS:
        raise errors.OptionError(f"{reduce!r} is no reduction that windrow.torch has; there are {', '.join(REDUCTIONS)}")
    message = message or ("copy" if value is None else "mul")
    if message not in MESSAGES:
        raise errors.OptionError(f"{message!r} is no message; there are {', '.join(MESSAGES)}")
    if message != "copy" and value is None:
        raise errors.OptionError(f"a message of {message!r} needs values: the matrix has none")
    value = None if message == "copy" else value
    if reduce in ("max", "min") or message == "add":
        return _aggregate(rowptr, col, value, dense(x), reduce, message)
    if reduce == "sum":
        return spmm_op(rowptr, col, value, dense(x))
    return _mean(rowptr, col, value, dense(x))


# Of more entries a row's share of one has fewer digits in f16, or none.
_MOST_OF_F16 = 1 << 14
_shares = ByTensor()


def _mean(rowptr, col, value, x):
    """A sum in which each entry has its share of the row: one product, that cannot overflow where means do not."""
    if _multiplied_in(x) == torch.float16 and _has_hubs(rowptr):
        with torch.autocast(x.device.type, enabled=False):
            return _mean(rowptr, col, value, x.float()).half()
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    of_heads = value is None and x.dim() == 3
    if torch.compiler.is_compiling():
        share = _share(rowptr, col, wide)
    else:
        share = _shares.get(rowptr, (col.numel(), wide), lambda: _share(rowptr, col, wide))
    value = share if value is None else value * share
    out = spmm_op(rowptr, col, value, x.flatten(1) if of_heads else x)
    return out.view(out.shape[0], *x.shape[1:]) if of_heads else out


def _share(rowptr, col, dtype):
    """One over the entries of its row, for each entry; rows of a wrong `rowptr` are some of those that there are."""
    entries = torch.arange(col.numel(), dtype=rowptr.dtype, device=col.device)
    row = torch.searchsorted(rowptr[1:].contiguous(), entries, right=True).clamp_(max=max(rowptr.numel() - 2, 0))
    return rowptr.diff().clamp(min=1).to(dtype).reciprocal()[row] if rowptr.numel() > 1 else entries.to(dtype)


def _multiplied_in(x):
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype


def _has_hubs(rowptr):
    if torch.compiler.is_compiling():
        return True  # nothing can be looked at
    # Nor in a capture, unless it was before.
    return _shares.get(
        rowptr, "hubs", lambda: capturing(rowptr.device) or bool((rowptr.diff() > _MOST_OF_F16).any())
    )


def _aggregate(rowptr, col, value, x, reduce, message):
    """Of heads, which are more columns, or products of their own where each has its values."""
    if x.dim() == 2:
        return aggregate(rowptr, col, value, x, reduce, message)
    if x.dim() != 3:
        raise errors.ShapeError(f"X has shape {tuple(x.shape)}; it must be (n, features) or (n, heads, features)")
    if value is None:
        out = aggregate(rowptr, col, None, x.reshape(x.shape[0], -1), reduce, message)
        return out.view(-1, *x.shape[1:])
    heads = [aggregate(rowptr, col, value[at], x[:, at], reduce, message) for at in range(x.shape[1])]
    return torch.stack(heads, 1)


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
