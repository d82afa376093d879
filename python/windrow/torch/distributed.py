"""Sparse matrices that the ranks of a process group have together, and products with them that have gradients.

    import torch.distributed as dist
    import windrow.torch.distributed as wd

    dist.init_process_group("nccl")                  # torchrun's; or "gloo" on CPUs
    a = wd.DistCsr.of(rowptr, col, value)            # every rank has the matrix; or DistCsr(rows of this rank)
    y = wd.spmm(a, x)                                # x and y: the rows that this rank owns

Each rank owns a range of rows of A, and of X: of a square matrix the same, so that a result is the operand of the next
product. A product sends those rows of X that others need through the process group, and multiplies by the rank's own
meanwhile; a backward pass sends gradients the way back likewise. All ranks make the same calls in the same order.
"""

from __future__ import annotations

import copy
from typing import Any, Iterable, NamedTuple, Optional, Sequence

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from windrow import errors
from windrow.torch._csr import Csr
from windrow.torch._functions import edge_softmax as _edge_softmax
from windrow.torch._ops import dense, sddmm_op, spmm_op, spmm_t_op

__all__ = ["DistCsr", "Report", "edge_softmax", "even", "reduce_gradients", "sddmm", "spmm"]


class Report(NamedTuple):
    """What a rank has of a matrix, and how many rows of X a product exchanges."""

    rank: int
    ranks: int
    rows: int
    entries: int
    # Entries whose row of X another rank owns.
    outer_entries: int
    # Rows of X that come from others, each once, and rows that go, counted for each rank that gets them.
    received_rows: int
    sent_rows: int


def even(rows: int, ranks: int) -> list[int]:
    """How many rows each rank owns if all own as many, the first one more where that does not come out even."""
    return [rows // ranks + (rank < rows % ranks) for rank in range(ranks)]


class DistCsr:
    """The rows of a sparse matrix that this rank of a process group owns; those of each rank follow the one before's.

    `rowptr` and `col` are those of these rows, with columns of the whole matrix; values stay as they are given, with
    their gradients. `columns` says how many rows of X each rank owns: unless told as many as of A, if it is square,
    else evenly many. All ranks make it together; the pattern is not to be changed later.

    Raises `windrow.errors.ShapeError` where ranks were given what does not fit together.
    """

    def __init__(
        self,
        rowptr: torch.Tensor,
        col: torch.Tensor,
        value: Optional[torch.Tensor] = None,
        num_cols: Optional[int] = None,
        columns: Optional[Sequence[int]] = None,
        group: Optional[dist.ProcessGroup] = None,
    ) -> None:
        if dist.get_backend(group) == "nccl" and not rowptr.is_cuda:
            raise errors.DeviceError(
                "the group is NCCL's, for GPUs, but the matrix is on the CPU; give DistCsr.of a device"
            )
        self.group = group
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        told = [None] * self.ranks
        given = (rowptr.numel() - 1, num_cols, None if columns is None else tuple(columns), value is None)
        dist.all_gather_object(told, given, group)
        self.rows = [rows for rows, *_ in told]
        for rank, theirs in enumerate(told):
            if theirs[1:] != given[1:]:
                raise errors.ShapeError(
                    f"ranks disagree on num_cols, columns and whether there are values: rank {rank} has {theirs[1:]}, "
                    f"rank {self.rank} has {given[1:]}"
                )
        width = sum(self.rows) if num_cols is None else num_cols
        if columns is None:
            columns = self.rows if width == sum(self.rows) else even(width, self.ranks)
        self.columns = list(columns)
        if len(self.columns) != self.ranks or sum(self.columns) != width:
            raise errors.ShapeError(f"columns are {self.columns}: not {width} for {self.ranks} ranks")
        self.csr = Csr(rowptr, col, value, width)
        self._divide()

    @classmethod
    def of(
        cls,
        rowptr: torch.Tensor,
        col: torch.Tensor,
        value: Optional[torch.Tensor] = None,
        num_cols: Optional[int] = None,
        device: Optional[torch.device] = None,
        group: Optional[dist.ProcessGroup] = None,
    ) -> DistCsr:
        """This rank's rows of a matrix that every rank has, with about as many entries and rows for each.

        They are brought to `device`, if it is given: the whole matrix may be on the CPU.
        """
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        work = rowptr.long() + torch.arange(rowptr.numel(), device=rowptr.device)
        ends = work[-1] * torch.arange(1, ranks, device=work.device) // ranks
        cuts = torch.searchsorted(work, ends, right=True).sub_(1).clamp_(min=0).tolist()
        starts = [0, *cuts, rowptr.numel() - 1]
        first, last = starts[rank], starts[rank + 1]
        begin, end = int(rowptr[first]), int(rowptr[last])
        own = None if value is None else value[..., begin:end]
        columns = None if num_cols in (None, rowptr.numel() - 1) else even(num_cols, ranks)
        rowptr, col = rowptr[first : last + 1] - begin, col[begin:end].clone()
        if device is not None:
            rowptr, col, own = rowptr.to(device), col.to(device), None if own is None else own.to(device)
        return cls(rowptr, col, own, num_cols, columns, group)

    def with_values(self, value: Optional[torch.Tensor]) -> DistCsr:
        """The same pattern with other values, `(entries,)` or `(heads, entries)`; this rank's alone, without a wait."""
        other = copy.copy(self)
        other.csr = self.csr._replace(value=value)
        return other

    @property
    def start(self) -> int:
        """The first row of A that this rank owns."""
        return sum(self.rows[: self.rank])

    @property
    def first_column(self) -> int:
        """The first row of X that this rank owns."""
        return sum(self.columns[: self.rank])

    def report(self) -> Report:
        """What this rank has and exchanges."""
        return Report(
            self.rank,
            self.ranks,
            self.rows[self.rank],
            self.csr.col.numel(),
            self._outer_entries.numel(),
            sum(self._comes),
            sum(self._goes),
        )

    def __matmul__(self, x: torch.Tensor) -> torch.Tensor:
        return spmm(self, x)

    def _divide(self):
        """The entries whose row of X is this rank's, and the others, whose rows come and are numbered anew."""
        rowptr, col = self.csr.rowptr, self.csr.col
        first, own = self.first_column, self.columns[self.rank]
        inside = (col >= first) & (col < first + own)
        row = torch.arange(rowptr.numel() - 1, device=col.device).repeat_interleave(rowptr.diff().long())
        self._inner_entries, self._outer_entries = inside.nonzero().squeeze(1), (~inside).nonzero().squeeze(1)
        needed, at = torch.unique(col[self._outer_entries].long(), return_inverse=True)
        self._inner = self._part(
            row[self._inner_entries], col[self._inner_entries] - first, (self.rows[self.rank], own)
        )
        # Rows that get something from others: if they are few, the rest of a result is not touched for them.
        of_outer, rows = row[self._outer_entries], self.rows[self.rank]
        self._touched, places = torch.unique(of_outer, return_inverse=True)
        if 2 * self._touched.numel() <= rows:
            of_outer, rows = places, self._touched.numel()
        else:
            self._touched = None
        self._outer = self._part(of_outer, at.to(col.dtype), (rows, needed.numel()))
        ends = torch.tensor(self.columns, device=col.device).cumsum(0)
        owner = torch.searchsorted(ends, needed, right=True)
        self._comes = torch.bincount(owner, minlength=self.ranks).tolist()
        asked = needed - (ends - torch.tensor(self.columns, device=col.device))[owner]
        counts = [None] * self.ranks
        dist.all_gather_object(counts, self._comes, self.group)
        self._goes = [theirs[self.rank] for theirs in counts]
        self._alone = not any(map(any, counts))
        going = asked.new_empty(sum(self._goes))
        dist.all_to_all_single(going, asked, self._goes, self._comes, group=self.group)
        # The product with it chooses the rows that go, and that with its transpose adds up what comes back.
        steps = torch.arange(going.numel() + 1, dtype=rowptr.dtype, device=col.device)
        self._going = Csr(steps, going.to(col.dtype), None, own)

    def _part(self, row, col, shape):
        """Entries, those of each row together, as a matrix without values."""
        rows, cols = shape
        rowptr = torch.zeros(rows + 1, dtype=self.csr.rowptr.dtype, device=col.device)
        rowptr[1:] = torch.bincount(row, minlength=rows).cumsum(0)
        return Csr(rowptr, col.contiguous(), None, cols)

    def _values(self, value):
        if value is None:
            return None, None
        return value.index_select(-1, self._inner_entries), value.index_select(-1, self._outer_entries)

    def _send(self, rows, forward):
        """Begins to bring rows to those who need them, or gradients back; what comes, and what to wait for."""
        goes, comes = (self._goes, self._comes) if forward else (self._comes, self._goes)
        coming = rows.new_empty((sum(comes), *rows.shape[1:]))
        return coming, dist.all_to_all_single(coming, rows, comes, goes, group=self.group, async_op=True)


class _Begin(torch.autograd.Function):
    """Sends rows of X. Its gradient waits for those of the rows that were sent, and adds them up."""

    @staticmethod
    def forward(ctx, x, a, way):
        ctx.a, ctx.way, ctx.shape = a, way, x.shape
        rows = spmm_op(a._going.rowptr, a._going.col, None, x.flatten(1))
        coming, way["there"] = a._send(rows.view(-1, *x.shape[1:]), True)
        return coming

    @staticmethod
    @once_differentiable
    def backward(ctx, _):
        coming, work = ctx.way.pop("back")
        work.wait()
        going = ctx.a._going
        return spmm_t_op(going.rowptr, going.col, None, coming.flatten(1), going.num_cols).view(ctx.shape), None, None


class _End(torch.autograd.Function):
    """Waits for rows of X. Its gradient sends those of these rows, before those of the rank's own are computed."""

    @staticmethod
    def forward(ctx, coming, a, way):
        ctx.a, ctx.way = a, way
        way.pop("there").wait()
        return coming.view_as(coming)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        ctx.way["back"] = ctx.a._send(gradient.contiguous(), False)
        return gradient, None, None


def _check(a, x, columns, name):
    if x.dim() not in (2, 3) or x.shape[0] != columns:
        raise errors.ShapeError(
            f"{name} has shape {tuple(x.shape)}; rank {a.rank} owns {columns} of its rows, each of features or of "
            "heads of features"
        )
    return dense(x)


def _among(a, inner, outer):
    """Numbers of the entries of both parts, in the order of A's entries."""
    order = torch.cat([a._inner_entries, a._outer_entries])
    found = torch.cat([inner, outer], -1)
    return found.new_empty(found.shape).index_copy(-1, order, found)


def spmm(a: DistCsr, x: torch.Tensor) -> torch.Tensor:
    """`A·X`: the rows that this rank owns, of its rows of X (rows, features) or (rows, heads, features).

    Values and X get gradients, in which all ranks take part, too; these have none of their own. Sums are as of
    `windrow.torch.spmm`, of the rank's own rows of X and of those of others, added in X's type.
    """
    x, way = _check(a, x, a.columns[a.rank], "X"), {}
    if a._alone:
        return spmm_op(a._inner.rowptr, a._inner.col, a.csr.value, x)
    inner, outer = a._values(a.csr.value)
    coming = _Begin.apply(x, a, way)
    y = spmm_op(a._inner.rowptr, a._inner.col, inner, x)
    coming = _End.apply(coming, a, way)
    of_others = spmm_op(a._outer.rowptr, a._outer.col, outer, coming)
    return y + of_others if a._touched is None else y.index_add(0, a._touched, of_others)


def sddmm(a: DistCsr, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """`X·Yᵀ` at the entries of A that this rank owns: `(entries,)`, or `(heads, entries)` of heads.

    X has a row for each row of A that this rank owns, Y its rows, as X of a product. X and Y get gradients.
    """
    x, y = _check(a, x, a.rows[a.rank], "X"), _check(a, y, a.columns[a.rank], "Y")
    if a._alone:
        return sddmm_op(a._inner.rowptr, a._inner.col, x, y, None)
    way = {}
    coming = _Begin.apply(y, a, way)
    inner = sddmm_op(a._inner.rowptr, a._inner.col, x, y, None)
    coming = _End.apply(coming, a, way)
    x = x if a._touched is None else x.index_select(0, a._touched)
    return _among(a, inner, sddmm_op(a._outer.rowptr, a._outer.col, x, coming, None))


def edge_softmax(a: DistCsr, scores: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """`softmax(scale·scores)` over the entries of each row: rows are whole, so that nothing is exchanged."""
    return _edge_softmax(a.csr, scores, scale)


def reduce_gradients(parameters: Iterable[torch.Tensor], group: Optional[dist.ProcessGroup] = None) -> None:
    """Adds up the gradients of parameters that every rank has, over all ranks; one that lacks a gradient has zeros.

    For losses that are sums over a rank's rows divided by the number of all: then every rank steps alike.
    """
    parameters = [parameter for parameter in parameters if parameter.requires_grad]
    works: list[Any] = []
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        works.append(dist.all_reduce(parameter.grad, group=group, async_op=True))
    for work in works:
        work.wait()
