"""Products, sampled products and softmax of edges as operators of PyTorch.

Each operator is registered with torch.library, with a fake kernel, a gradient made of the same operators, and what
autocast does. Eager calls on plain tensors take a shorter way to the same kernels and the same gradients.
"""

import torch

from windrow.torch._kernels import (
    edge_softmax,
    edge_softmax_backward,
    sddmm,
    spmm,
    spmm_compiled,
    spmm_t,
    spmm_t_compiled,
)
from windrow.torch._operator import Operator, library

_any_autocast = torch._C._is_any_autocast_enabled


def _new(like, shape, dtype=None):
    return like.new_empty(shape, dtype=dtype or like.dtype)


def _spmm_setup(ctx, inputs, output):
    rowptr, col, value, x = inputs
    ctx.cols = x.shape[0]
    ctx.save_for_backward(rowptr, col, value, x if value is not None and ctx.needs_input_grad[2] else None)


def _spmm_backward(ctx, dy):
    rowptr, col, value, x = ctx.saved_tensors
    dvalue = sddmm_op(rowptr, col, dy, x, value.dtype) if value is not None and ctx.needs_input_grad[2] else None
    dx = spmm_t_op(rowptr, col, value, dy, ctx.cols) if ctx.needs_input_grad[3] else None
    return None, None, dvalue, dx


def _spmm_t_setup(ctx, inputs, output):
    rowptr, col, value, x, _ = inputs
    ctx.save_for_backward(rowptr, col, value, x if value is not None and ctx.needs_input_grad[2] else None)


def _spmm_t_backward(ctx, dy):
    rowptr, col, value, x = ctx.saved_tensors
    dvalue = sddmm_op(rowptr, col, x, dy, value.dtype) if value is not None and ctx.needs_input_grad[2] else None
    dx = spmm_op(rowptr, col, value, dy) if ctx.needs_input_grad[3] else None
    return None, None, dvalue, dx, None


def _sddmm_setup(ctx, inputs, output):
    rowptr, col, x, y = inputs[:4]
    needs = ctx.needs_input_grad
    ctx.dtype, ctx.cols = x.dtype, y.shape[0]
    ctx.save_for_backward(rowptr, col, x if needs[3] else None, y if needs[2] else None)


def _sddmm_backward(ctx, g):
    rowptr, col, x, y = ctx.saved_tensors
    if g.dtype != ctx.dtype and g.dtype != torch.float32:
        g = g.to(ctx.dtype)
    dx = spmm_op(rowptr, col, g, y) if ctx.needs_input_grad[2] else None
    dy = spmm_t_op(rowptr, col, g, x, ctx.cols) if ctx.needs_input_grad[3] else None
    return None, None, dx, dy, None


def _softmax_setup(ctx, inputs, output):
    rowptr, col, _, ctx.cols, ctx.scale = inputs
    ctx.save_for_backward(rowptr, col, output)


def _softmax_backward(ctx, g):
    rowptr, col, p = ctx.saved_tensors
    return None, None, edge_softmax_backward_op(rowptr, col, p, g, ctx.cols, ctx.scale), None, None


def _softmax_backward_setup(ctx, inputs, output):
    rowptr, col, p, g, ctx.cols, ctx.scale = inputs
    ctx.save_for_backward(rowptr, col, p, g)


def _softmax_backward_backward(ctx, h):
    # s·p·(g − Σ p·g) by p and by g; sums over rows, brought back to the entries, are a product and a sampled product.
    rowptr, col, p, g = ctx.saved_tensors
    cols, scale = ctx.cols, ctx.scale

    def sums(entries):
        heads = entries.shape[:-1]
        of_cols = entries.new_ones((cols, *heads, 1))
        of_rows = spmm_op(rowptr, col, entries, of_cols)
        return sddmm_op(rowptr, col, of_rows, of_cols, None)

    of_h = sums(p * h)
    dp = scale * (h * (g - sums(p * g)) - g * of_h) if ctx.needs_input_grad[2] else None
    dg = scale * p * (h - of_h) if ctx.needs_input_grad[3] else None
    return None, None, dp, dg, None, None


spmm_op = Operator(
    "spmm(Tensor rowptr, Tensor col, Tensor? value, Tensor x) -> Tensor",
    spmm,
    lambda rowptr, col, value, x: _new(x, (rowptr.shape[0] - 1, *x.shape[1:])),
    _spmm_setup,
    _spmm_backward,
    (2, 3),
    spmm_compiled,
)
spmm_t_op = Operator(
    "spmm_t(Tensor rowptr, Tensor col, Tensor? value, Tensor x, SymInt cols) -> Tensor",
    spmm_t,
    lambda rowptr, col, value, x, cols: _new(x, (cols, *x.shape[1:])),
    _spmm_t_setup,
    _spmm_t_backward,
    (2, 3),
    spmm_t_compiled,
)
sddmm_op = Operator(
    "sddmm(Tensor rowptr, Tensor col, Tensor x, Tensor y, ScalarType? dtype=None) -> Tensor",
    sddmm,
    lambda rowptr, col, x, y, dtype=None: _new(x, (*x.shape[1:-1], col.shape[0]), dtype),
    _sddmm_setup,
    _sddmm_backward,
    (2, 3),
)
edge_softmax_op = Operator(
    "edge_softmax(Tensor rowptr, Tensor col, Tensor scores, SymInt cols, float scale) -> Tensor",
    edge_softmax,
    lambda rowptr, col, scores, cols, scale: _new(scores, scores.shape),
    _softmax_setup,
    _softmax_backward,
    (2,),
)
edge_softmax_backward_op = Operator(
    "edge_softmax_backward(Tensor rowptr, Tensor col, Tensor p, Tensor g, SymInt cols, float scale) -> Tensor",
    edge_softmax_backward,
    lambda rowptr, col, p, g, cols, scale: _new(p, p.shape),
    _softmax_backward_setup,
    _softmax_backward_backward,
    (2, 3),
)


def _cast(tensor, device_type):
    """What autocast makes of an operand."""
    if tensor.dtype in (torch.float32, torch.float16, torch.bfloat16):
        return tensor.to(torch.get_autocast_dtype(device_type))
    return tensor


def register_autocast(op, operands):
    """Has autocast convert these operands of an operator."""
    for kind, key in (("cpu", "AutocastCPU"), ("cuda", "AutocastCUDA")):
        below = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

        def call(*inputs, kind=kind, below=below):
            cast = [_cast(given, kind) if at in operands else given for at, given in enumerate(inputs)]
            with torch._C._ExcludeDispatchKeyGuard(below):
                return op.op(*cast)

        library.impl(op.name, call, key)


register_autocast(spmm_op, {3})
register_autocast(spmm_t_op, {3})
register_autocast(sddmm_op, {2, 3})


def dense(tensor):
    """An operand, of autocast's type where that is on."""
    if torch.compiler.is_compiling() or not _any_autocast():
        return tensor
    kind = tensor.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        return _cast(tensor, kind)
    return tensor
