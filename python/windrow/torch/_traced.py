"""Graphs of layers as torch.compile sees them: operators that take the list of edges and know what is kept with it.

Sizes follow from shapes: where loops are added there are as many entries as edges and nodes, and if the list had loops
itself, which are dropped, the last entries are nothing's. Operators leave 0 there, and disregard what they find.
"""

import torch

from windrow import errors
from windrow.torch import _kernels
from windrow.torch._attention import additively_in_steps, in_steps
from windrow.torch._csr import Csr
from windrow.torch._graph import edges_of, graph_of, wide
from windrow.torch._operator import Operator
from windrow.torch._ops import dense, register_autocast

_GRAPH = "Tensor index, Tensor? rowptr, SymInt rows, SymInt cols, bool loops, str flow, bool attributes"
_ARGUMENTS = 7


class Traced:
    """A graph with the methods of `_graph.Graph`, each an operator."""

    def __init__(self, index, rowptr, shape, loops, flow):
        self.index, self.rowptr, (self.rows, self.cols), self.loops, self.flow = index, rowptr, shape, loops, flow
        self.nodes = min(shape)

    def _given(self, attributes=False):
        return self.index, self.rowptr, self.rows, self.cols, self.loops, self.flow, attributes

    def spmm(self, value, x, weights=""):
        return spmm_op(*self._given(), value, dense(x), weights)

    def spmm_t(self, value, x):
        return spmm_t_op(*self._given(), value, dense(x), "")

    def sddmm(self, x, y, dtype=None):
        return sddmm_op(*self._given(), dense(x), dense(y), dtype)

    def softmax(self, scores, scale=1.0):
        return softmax_op(*self._given(), scores, scale)

    def attend(self, query, key, value, scale, dropout=0.0):
        return in_steps(self, query, key, value, scale, dropout)

    def attend_additively(self, numbers, value, of_entry, negative_slope, dropout=0.0):
        return additively_in_steps(self, numbers, value, of_entry, negative_slope, dropout)

    def attribute_sums(self, value, attributes):
        return spmm_op(*self._given(True), value, dense(attributes), "")

    def attribute_products(self, x, attributes, dtype):
        return sddmm_op(*self._given(True), dense(x), dense(attributes), dtype)

    def arrange(self, values, fill=None, keep=False):
        return arrange_op(*self._given(), values, fill, keep)

    def attention(self, alpha):
        if self.loops:
            raise errors.OptionError("how many edges there are with loops is not known before: call it uncompiled")
        edges, _ = give_back_op(*self._given(), alpha, False)
        index = self.index
        if self.rowptr is not None:
            rows = torch.arange(self.rows, dtype=index.dtype, device=index.device)
            index = torch.stack([index, rows.repeat_interleave(self.rowptr.diff(), output_size=index.shape[0])])
        return index.clone(), edges.t()


def _open(index, rowptr, rows, cols, loops, flow, attributes):
    """The graph, its matrix, and how many entries an operator's tensors have."""
    edges = index if rowptr is None else edges_of(Csr(rowptr, index))[0]
    graph = graph_of(edges, (rows, cols), loops, flow)
    return graph, graph.incidence() if attributes else graph.csr, graph.given + (graph.nodes if loops else 0)


def _entries(values, csr):
    """Values of entries, without those that are nothing's."""
    entries = csr.col.numel()
    return values if values is None or values.shape[-1] == entries else values[..., :entries]


def _padded(values, entries):
    missing = entries - values.shape[-1]
    return torch.nn.functional.pad(values, (0, missing)) if missing else values


def _of_rows(x, csr, attributes):
    return x[: csr.col.numel()] if attributes else x


def _spmm(*inputs):
    *given, value, x, weights = inputs
    graph, csr, _ = _open(*given)
    weighted, named = _entries(value, csr), value is None
    weighted = graph.weights(weights, wide(x.dtype)) if named else weighted
    x = _of_rows(x, csr, given[-1])
    return (_kernels.spmm if named else _kernels.spmm_compiled)(csr.rowptr, csr.col, weighted, x)


def _spmm_t(*inputs):
    *given, value, x, weights = inputs
    graph, csr, entries = _open(*given)
    weighted, named = _entries(value, csr), value is None
    weighted = graph.weights(weights, wide(x.dtype)) if named else weighted
    out = (_kernels.spmm_t if named else _kernels.spmm_t_compiled)(csr.rowptr, csr.col, weighted, x, csr.num_cols)
    if given[-1] and out.shape[0] < entries:
        out = torch.cat([out, out.new_zeros((entries - out.shape[0], *out.shape[1:]))])
    return out


def _sddmm(*inputs):
    *given, x, y, dtype = inputs
    _, csr, entries = _open(*given)
    return _padded(_kernels.sddmm(csr.rowptr, csr.col, x, _of_rows(y, csr, given[-1]), dtype), entries)


def _softmax(*inputs):
    *given, scores, scale = inputs
    _, csr, entries = _open(*given)
    p = _kernels.edge_softmax(csr.rowptr, csr.col, _entries(scores, csr), csr.num_cols, scale)
    return _padded(p, entries)


def _softmax_backward(*inputs):
    *given, p, g, scale = inputs
    _, csr, entries = _open(*given)
    p, g = _entries(p, csr), _entries(g, csr)
    return _padded(_kernels.edge_softmax_backward(csr.rowptr, csr.col, p, g, csr.num_cols, scale), entries)


def _arrange(*inputs):
    *given, values, fill, keep = inputs
    graph, _, entries = _open(*given)
    return _padded(graph.arrange(values, fill, keep), entries)


def _give_back(*inputs):
    *given, g, keep = inputs
    graph, csr, _ = _open(*given)
    edges, loops = graph.give_back(_entries(g, csr), keep)
    return edges, loops


# Shapes; of whatever strides the operands are, results lie row by row.


def _count(index, rows, cols, loops):
    return index.shape[-1] + (torch.sym_min(rows, cols) if loops else 0)


def _spmm_shape(index, rowptr, rows, cols, loops, flow, attributes, value, x, weights):
    return x.new_empty((rows, *x.shape[1:]))


def _spmm_t_shape(index, rowptr, rows, cols, loops, flow, attributes, value, x, weights):
    return x.new_empty((_count(index, rows, cols, loops) if attributes else cols, *x.shape[1:]))


def _sddmm_shape(index, rowptr, rows, cols, loops, flow, attributes, x, y, dtype):
    return x.new_empty((*x.shape[1:-1], _count(index, rows, cols, loops)), dtype=dtype or x.dtype)


def _arrange_shape(index, rowptr, rows, cols, loops, flow, attributes, values, fill, keep):
    return values.new_empty((*values.shape[:-1], _count(index, rows, cols, loops)))


def _give_back_shape(index, rowptr, rows, cols, loops, flow, attributes, g, keep):
    loop = torch.sym_min(rows, cols) if loops else 0
    return g.new_empty((*g.shape[:-1], index.shape[-1])), g.new_empty((*g.shape[:-1], loop))


# Gradients, as those of `_ops`.


def _save(ctx, inputs, *tensors):
    ctx.rest = inputs[2:_ARGUMENTS]
    ctx.save_for_backward(*inputs[:2], *tensors)


def _saved(ctx):
    index, rowptr, *tensors = ctx.saved_tensors
    return (index, rowptr, *ctx.rest), *tensors


_NONE = (None,) * _ARGUMENTS


def _product_setup(ctx, inputs, output):
    value, x, ctx.weights = inputs[_ARGUMENTS:]
    _save(ctx, inputs, value, x if value is not None and ctx.needs_input_grad[_ARGUMENTS] else None)


def _product_backward(transposed):
    def backward(ctx, dy):
        given, value, x = _saved(ctx)
        of_value, of_x = ctx.needs_input_grad[_ARGUMENTS : _ARGUMENTS + 2]
        dvalue = dx = None
        if value is not None and of_value:
            dvalue = sddmm_op(*given, *((x, dy) if transposed else (dy, x)), value.dtype)
        if of_x:
            dx = (spmm_op if transposed else spmm_t_op)(*given, value, dy, ctx.weights)
        return *_NONE, dvalue, dx, None

    return backward


def _sddmm_setup(ctx, inputs, output):
    x, y, _ = inputs[_ARGUMENTS:]
    of_x, of_y = ctx.needs_input_grad[_ARGUMENTS : _ARGUMENTS + 2]
    ctx.dtype = x.dtype
    _save(ctx, inputs, x if of_y else None, y if of_x else None)


def _sddmm_backward(ctx, g):
    given, x, y = _saved(ctx)
    if g.dtype != ctx.dtype and g.dtype != torch.float32:
        g = g.to(ctx.dtype)
    of_x, of_y = ctx.needs_input_grad[_ARGUMENTS : _ARGUMENTS + 2]
    dx = spmm_op(*given, g, y, "") if of_x else None
    dy = spmm_t_op(*given, g, x, "") if of_y else None
    return *_NONE, dx, dy, None


def _softmax_setup(ctx, inputs, output):
    ctx.scale = inputs[-1]
    _save(ctx, inputs, output)


def _softmax_gradient(ctx, g):
    given, p = _saved(ctx)
    return *_NONE, softmax_backward_op(*given, p, g, ctx.scale), None


def _arrange_setup(ctx, inputs, output):
    ctx.fills, ctx.keep = inputs[-2] is not None and inputs[4], inputs[-1]  # without loops nothing is filled
    _save(ctx, inputs)


def _arrange_backward(ctx, g):
    (given,) = _saved(ctx)
    edges, loops = give_back_op(*given, g, ctx.keep)
    return *_NONE, edges, loops if ctx.fills else None, None


def _give_back_setup(ctx, inputs, output):
    ctx.keep = inputs[-1]
    _save(ctx, inputs)


def _give_back_backward(ctx, edges, loops):
    (given,) = _saved(ctx)
    return *_NONE, arrange_op(*given, edges, loops if given[4] else None, ctx.keep), None


def _once(ctx, *_):
    raise RuntimeError("softmax in a compiled layer has no second derivative: call the layer uncompiled")


spmm_op = Operator(
    f"graph_spmm({_GRAPH}, Tensor? value, Tensor x, str weights) -> Tensor",
    _spmm,
    _spmm_shape,
    _product_setup,
    _product_backward(False),
    (_ARGUMENTS, _ARGUMENTS + 1),
)
spmm_t_op = Operator(
    f"graph_spmm_t({_GRAPH}, Tensor? value, Tensor x, str weights) -> Tensor",
    _spmm_t,
    _spmm_t_shape,
    _product_setup,
    _product_backward(True),
    (_ARGUMENTS, _ARGUMENTS + 1),
)
sddmm_op = Operator(
    f"graph_sddmm({_GRAPH}, Tensor x, Tensor y, ScalarType? dtype) -> Tensor",
    _sddmm,
    _sddmm_shape,
    _sddmm_setup,
    _sddmm_backward,
    (_ARGUMENTS, _ARGUMENTS + 1),
)
softmax_op = Operator(
    f"graph_softmax({_GRAPH}, Tensor scores, float scale) -> Tensor",
    _softmax,
    lambda *inputs: inputs[-2].new_empty(inputs[-2].shape),
    _softmax_setup,
    _softmax_gradient,
    (_ARGUMENTS,),
)
softmax_backward_op = Operator(
    f"graph_softmax_backward({_GRAPH}, Tensor p, Tensor g, float scale) -> Tensor",
    _softmax_backward,
    lambda *inputs: inputs[-3].new_empty(inputs[-3].shape),
    lambda ctx, inputs, output: None,
    _once,
    (_ARGUMENTS, _ARGUMENTS + 1),
)
arrange_op = Operator(
    f"graph_arrange({_GRAPH}, Tensor values, Tensor? fill, bool keep) -> Tensor",
    _arrange,
    _arrange_shape,
    _arrange_setup,
    _arrange_backward,
    (_ARGUMENTS, _ARGUMENTS + 1),
)
give_back_op = Operator(
    f"graph_give_back({_GRAPH}, Tensor g, bool keep) -> (Tensor, Tensor)",
    _give_back,
    _give_back_shape,
    _give_back_setup,
    _give_back_backward,
    (_ARGUMENTS,),
)
register_autocast(spmm_op, {_ARGUMENTS + 1})
register_autocast(spmm_t_op, {_ARGUMENTS + 1})
register_autocast(sddmm_op, {_ARGUMENTS, _ARGUMENTS + 1})
