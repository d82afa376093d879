"""Reductions over neighbours other than sums of products, as an operator with gradients."""

import torch

from windrow import errors
from windrow.torch._device import NAMES, on_device, operand, rows_of, same_device, stream_of
from windrow.torch._kernels import pattern_of
from windrow.torch._operator import Operator
from windrow.torch._ops import register_autocast

REDUCTIONS = ("sum", "mean", "max", "min")
MESSAGES = ("copy", "mul", "add")


def _open(rowptr, col, value, x, reduce, message, learned):
    """The pattern, its plan, and the stream."""
    pattern = pattern_of(rowptr, col, x.shape[0])
    if x.dim() != 2:
        raise errors.ShapeError(f"X has shape {tuple(x.shape)} but must be (n, features)")
    if x.dtype not in NAMES or x.dtype == torch.float64:
        raise errors.DtypeError(f"X holds {x.dtype}; max, min and sums of messages are taken in f32, f16 and bf16")
    same_device(pattern.device, X=x, value=value)
    if value is not None and value.shape != (pattern.nnz,):
        raise errors.ShapeError(f"value has shape {tuple(value.shape)} but must be ({pattern.nnz},)")
    stream = stream_of(pattern.device)
    if 0 in (pattern.rows, pattern.nnz, *x.shape):
        pattern.checked(stream)
        return pattern, None, stream
    return pattern, pattern.aggregate(stream, (reduce, message, x.shape[1], NAMES[x.dtype]), learned), stream


def _values(value):
    return None if value is None else value.detach().float().contiguous()


def _at(tensor):
    return None if tensor is None else (tensor.data_ptr(), tensor.numel())


def aggregate(rowptr, col, value, x, reduce, message):
    """The reduction. Winners of a maximum or a minimum are written where gradients will ask for them."""
    learned = torch.is_grad_enabled()
    # Where code is made, and under transforms, tensors do not say whether they need a gradient.
    if not torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active():
        learned = learned and (x.requires_grad or (value is not None and value.requires_grad))
    return aggregate_op(rowptr, col, value, x, reduce, message, learned)[0]


def _keeps(reduce, learned):
    return learned and reduce in ("max", "min")


def _forward(rowptr, col, value, x, reduce, message, learned):
    with on_device(x.device):
        pattern, plan, stream = _open(rowptr, col, value, x, reduce, message, learned)
        keeps = _keeps(reduce, learned)
        out = x.new_zeros((pattern.rows, x.shape[1])) if plan is None else x.new_empty((pattern.rows, x.shape[1]))
        winners = torch.empty(out.shape if keeps else (0,), dtype=torch.int32, device=x.device)
        if plan is None:
            return out, winners.fill_(-1)
        values, rows = _values(value), rows_of("X", x)
        plan.forward(stream, operand(rows), _at(values), operand(out), _at(winners) if keeps else None)
    return out, winners


def _backward(rowptr, col, value, x, winners, gradient, reduce, message):
    with on_device(x.device):
        pattern, plan, stream = _open(rowptr, col, value, x, reduce, message, True)
        of_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        of_value = torch.zeros(0 if value is None else pattern.nnz, dtype=torch.float32, device=x.device)
        if plan is None:
            return of_x.zero_(), of_value
        values = _values(value)
        read = [operand(rows_of(name, of)) for name, of in (("X", x), ("the gradient", gradient))]
        kept = winners.contiguous() if reduce in ("max", "min") else None
        to = _at(of_value) if value is not None else None
        plan.backward(stream, read, [_at(values), _at(kept)], operand(of_x), to)
    return of_x, of_value


def _setup(ctx, inputs, output):
    rowptr, col, value, x, ctx.reduce, ctx.message, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(rowptr, col, value, x, output[1])


def _gradients(ctx, gradient, _):
    rowptr, col, value, x, winners = ctx.saved_tensors
    gradient = gradient.to(x.dtype).contiguous()
    of_x, of_value = aggregate_backward_op(rowptr, col, value, x, winners, gradient, ctx.reduce, ctx.message)
    needs = ctx.needs_input_grad
    of_value = of_value.to(value.dtype) if needs[2] else None
    return None, None, of_value, of_x if needs[3] else None, None, None, None


def _no_more(ctx, *_):
    raise NotImplementedError("windrow.torch has no second derivatives of max, min and sums of messages")


aggregate_op = Operator(
    "aggregate(Tensor rowptr, Tensor col, Tensor? value, Tensor x, str reduce, str message, bool learned) "
    "-> (Tensor, Tensor)",
    _forward,
    lambda rowptr, col, value, x, reduce, message, learned: (
        x.new_empty((rowptr.shape[0] - 1, x.shape[1])),
        x.new_empty((rowptr.shape[0] - 1, x.shape[1]) if _keeps(reduce, learned) else (0,), dtype=torch.int32),
    ),
    _setup,
    _gradients,
    (2, 3),
)
aggregate_backward_op = Operator(
    "aggregate_backward(Tensor rowptr, Tensor col, Tensor? value, Tensor x, Tensor winners, Tensor gradient, "
    "str reduce, str message) -> (Tensor, Tensor)",
    _backward,
    lambda rowptr, col, value, x, *_: (
        x.new_empty(x.shape),
        x.new_empty(0 if value is None else col.shape[0], dtype=torch.float32),
    ),
    lambda ctx, inputs, output: None,
    _no_more,
    (2, 3, 5),
)
register_autocast(aggregate_op, {3})
