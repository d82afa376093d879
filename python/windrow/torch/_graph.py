"""The compressed rows of lists of edges, and what layers do with them."""

import torch

from windrow import errors
from windrow.torch._attention import attend, attend_additively
from windrow.torch._csr import Csr, parts, plain
from windrow.torch._device import capturing
from windrow.torch._functions import check
from windrow.torch._kept import ByTensor, Made
from windrow.torch._ops import dense, edge_softmax_op, sddmm_op, spmm_op, spmm_t_op

FLOWS = ("source_to_target", "target_to_source")


class Graph:
    """A list of edges in compressed rows.

    Entry `e` of `csr`, in row `row[e]`, is edge `perm[e]` of `edges`. These are the edges `kept` of the list that was
    given, and behind them one from each of `nodes` nodes to itself; or all of them, if `kept` is None. `dropped` are
    those of the given list that lead from a node to itself, `looped` these nodes.

    Values of entries are `(entries,)` or `(heads, entries)`, in the order of `csr`.
    """

    __slots__ = (
        *("csr", "row", "perm", "given", "edges", "kept", "dropped", "looped", "nodes"),
        *("derived", "error", "__weakref__"),
    )

    def __init__(self, csr, row, perm, given, edges, kept, dropped, looped, nodes):
        self.csr, self.row, self.perm, self.given, self.edges = csr, row, perm, given, edges
        self.kept, self.dropped, self.looped, self.nodes = kept, dropped, looped, nodes
        self.derived, self.error = {}, None

    def once(self, key, make):
        """What `make` makes, made once."""
        found = self.derived.get(key)
        if found is None:
            if capturing(self.row.device):
                return make()  # a part of the graph, which is there when that has run
            found = self.derived[key] = Made(self.row.device, make)
        return found.get(self.row.device)

    def tensors(self):
        """All that work in other streams than the one that made it may read."""
        parts = (self.csr.rowptr, self.csr.col, self.row, self.perm, self.edges, self.kept, self.dropped, self.looped)
        return [part for part in parts if part is not None]

    def weights(self, name, dtype):
        """Values by their name: "" for ones, "mean" for means over rows, "gcn" for normalised sums of GCN."""
        if name == "":
            return None
        return self.once((name, dtype), lambda: _WEIGHTS[name](self, dtype))

    def incidence(self):
        """The matrix whose columns are the entries themselves, each in its row."""
        return self.once("incidence", lambda: _incidence(self.csr))

    @property
    def rows(self):
        return self.csr.rowptr.numel() - 1

    @property
    def cols(self):
        return self.csr.num_cols

    # Products: with values of entries, or with weights of a name.

    def spmm(self, value, x, weights=""):
        value = self.weights(weights, wide(x.dtype)) if value is None else value
        return spmm_op(self.csr.rowptr, self.csr.col, value, dense(x))

    def spmm_t(self, value, x):
        return spmm_t_op(self.csr.rowptr, self.csr.col, value, dense(x), self.csr.num_cols)

    def sddmm(self, x, y, dtype=None):
        return sddmm_op(self.csr.rowptr, self.csr.col, dense(x), dense(y), dtype)

    def softmax(self, scores, scale=1.0):
        return edge_softmax_op(self.csr.rowptr, self.csr.col, scores, self.csr.num_cols, scale)

    def attend(self, query, key, value, scale, dropout=0.0):
        return attend(self, query, key, value, scale, dropout)

    def attend_additively(self, numbers, value, of_entry, negative_slope, dropout=0.0):
        return attend_additively(self, numbers, value, of_entry, negative_slope, dropout)

    def attribute_sums(self, value, attributes):
        """For each row the sum of its entries' attributes `(entries, heads, features)`, times values `(heads, …)`."""
        csr = self.incidence()
        return spmm_op(csr.rowptr, csr.col, value, dense(attributes))

    def attribute_products(self, x, attributes, dtype):
        """For each entry the product of its row of `x` and its attributes `(entries, heads, features)`."""
        csr = self.incidence()
        return sddmm_op(csr.rowptr, csr.col, dense(x), dense(attributes), dtype)

    def arrange(self, values, fill=None, keep=False):
        """Values of edges `(…, edges given)` as values of entries.

        Those of the loops that were added are `fill` `(…, nodes)`, or 0; with `keep` loops that were given have theirs.
        """
        if self.kept is not None:
            loops = values.new_zeros((*values.shape[:-1], self.nodes)) if fill is None else fill.to(values.dtype)
            if keep:
                loops = loops.index_copy(-1, self.looped, values.index_select(-1, self.dropped))
            values = torch.cat([values.index_select(-1, self.kept), loops], -1)
        return values.index_select(-1, self.perm)

    def give_back(self, entries, keep=False):
        """The adjoint of `arrange`: what values of entries give to the edges and to the loops that were added.

        Both are contiguous, however the values lie, as code that torch.compile makes is told.
        """
        of_all = entries.new_empty(entries.shape).index_copy_(-1, self.perm, entries)
        if self.kept is None:
            return of_all, of_all.new_zeros((*of_all.shape[:-1], 0))
        kept, loops = of_all.split([self.kept.numel(), self.nodes], -1)
        edges = entries.new_zeros((*entries.shape[:-1], self.given)).index_copy_(-1, self.kept, kept)
        loops = loops.clone(memory_format=torch.contiguous_format)
        if keep:
            edges.index_copy_(-1, self.dropped, loops.index_select(-1, self.looped))
            loops.index_fill_(-1, self.looped, 0)
        return edges, loops

    def attention(self, alpha):
        """Edges and weights `(edges, heads)` as torch_geometric orders them."""
        return self.edges, torch.empty_like(alpha).index_copy(1, self.perm, alpha).t()


def wide(dtype):
    """The type of weights beside features of some type."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def gcn_weights(graph, value):
    """`D^(-1/2)·A·D^(-1/2)` for values of entries."""
    with torch.autocast(value.device.type, enabled=False):
        scale = graph.spmm(value, value.new_ones((graph.cols, 1))).pow(-0.5)
        scale = scale.masked_fill(scale == float("inf"), 0)
        return graph.sddmm(scale, scale) * value


def _gcn_of_ones(graph, dtype):
    # A loop that is added to edges without weights has none either.
    scale = graph.csr.rowptr.diff().to(dtype).pow(-0.5)
    scale = scale.masked_fill(scale == float("inf"), 0)
    return scale[graph.row] * scale[graph.csr.col]


_WEIGHTS = {
    "mean": lambda graph, dtype: graph.csr.rowptr.diff().to(dtype).reciprocal()[graph.row],
    "gcn": _gcn_of_ones,
}


def _incidence(csr):
    entries = csr.col.numel()
    return Csr(csr.rowptr, torch.arange(entries, dtype=csr.col.dtype, device=csr.col.device), None, entries)


_graphs = ByTensor()
_edges = ByTensor()


def edges_of(a):
    """The edges of a matrix whose rows are targets, and their weights or None."""
    rowptr, col, value, _ = parts(a)

    def make():
        rows = torch.arange(rowptr.numel() - 1, dtype=col.dtype, device=col.device)
        return torch.stack([col, rows.repeat_interleave(rowptr.diff(), output_size=col.numel())])

    # Those of one `rowptr` go with it: at its address there may soon be another.
    return _edges.get(rowptr, None, ByTensor).get(col, None, make), value


def graph_of(
    edge_index: torch.Tensor, shape: tuple[int, int], loops: bool = False, flow: str = "source_to_target"
) -> Graph:
    """The `Graph` of an `edge_index` of shape (2, E): rows are targets, columns sources; kept with the tensor.

    `shape` is (targets, sources). With `loops` there is one edge from each node to itself, whether or not there was.
    Two equal edges are an error.
    """
    index = plain(edge_index)
    if index.dim() != 2 or index.shape[0] != 2:
        raise errors.ShapeError(f"edge_index has shape {tuple(index.shape)} but must be (2, number of edges)")
    if index.dtype not in (torch.int64, torch.int32):
        raise errors.DtypeError(f"edge_index holds {index.dtype}; give it as torch.int64")
    if flow not in FLOWS:
        raise errors.OptionError(f"{flow!r} is no flow; there are source_to_target and target_to_source")
    found = _graphs.get(index, (shape, loops, flow), lambda: _graph(index, shape, loops, flow))
    if found.error is not None:
        raise found.error
    return found


def _graph(index, shape, loops, flow):
    rows, cols = shape
    kept = dropped = looped = None
    given, nodes = index.shape[1], min(rows, cols)
    if loops:
        others = index[0] != index[1]
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
    made = Graph(Csr(rowptr, col, None, cols), row, perm, given, index, kept, dropped, looped, nodes)
    try:
        check(made.csr)
    except errors.FormatError as error:
        made.error = error
    return made
