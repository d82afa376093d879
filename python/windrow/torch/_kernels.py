"""What operators compute: tensors in, new tensors out, on the current stream."""

import torch

from windrow import errors
from windrow.torch._cache import cache, check_indices
from windrow.torch._device import (
    NAMES,
    current_device,
    current_stream,
    empty_rows,
    on_device,
    operand,
    rows_of,
    same_device,
    stream_of,
)
from windrow.torch._pattern import Pattern


def pattern_of(rowptr, col, cols):
    if rowptr.is_contiguous() and col.is_contiguous():
        return cache.pattern(rowptr, col, cols)
    check_indices(rowptr, col)
    return Pattern.of_copies(rowptr.contiguous(), col.contiguous(), cols, cache)


def _to_multiply(rowptr, col, cols):
    if rowptr.is_contiguous() and col.is_contiguous():
        return cache.to_multiply(rowptr, col, cols)
    return pattern_of(rowptr, col, cols)


def _check_values(value, nnz, dtype, heads):
    if value.shape != ((nnz,) if heads is None else (heads, nnz)):
        expected = f"({nnz},)" if heads is None else f"({heads}, {nnz})"
        raise errors.ShapeError(f"value has shape {tuple(value.shape)} but must be {expected}")
    if value.dtype != dtype and not (value.dtype == torch.float32 and dtype in (torch.float16, torch.bfloat16)):
        raise errors.DtypeError(
            f"value holds {value.dtype} but the dense matrix {dtype}; convert one of them "
            "(values of f32 go with f16 and bf16, too)"
        )


def _heads(x):
    """The number of heads of `(n, features)` or `(n, heads, features)`."""
    if x.dim() == 2:
        return None
    if x.dim() == 3:
        return x.shape[1]
    raise errors.ShapeError(
        f"the dense operand has shape {tuple(x.shape)}; it must be (n, features) or (n, heads, features)"
    )


def _multiply(rowptr, col, value, x, transpose, cols, compiled=False):
    shape, dtype = x.shape, x.dtype
    if dtype not in NAMES:
        raise errors.DtypeError(f"the dense operand holds {dtype}; windrow computes in f32, f64, f16 and bf16")
    heads = None if len(shape) == 2 else _heads(x)
    once = not transpose and heads is None
    pattern = _to_multiply(rowptr, col, cols) if once else pattern_of(rowptr, col, cols)
    taken, made = (pattern.rows, cols) if transpose else (cols, pattern.rows)
    if shape[0] != taken:
        raise errors.ShapeError(f"the dense operand has {shape[0]} rows but must have {taken}")
    if x.device != pattern.device:
        same_device(pattern.device, **{"the dense operand": x})
    learned = False
    if value is not None:
        if value.device != pattern.device:
            same_device(pattern.device, value=value)
        if value.dtype != dtype or value.shape != ((pattern.nnz,) if heads is None else (heads, pattern.nnz)):
            _check_values(value, pattern.nnz, dtype, heads)
        learned = compiled or value.requires_grad
    stream = None
    if not pattern.on_cpu:
        index = pattern.device.index
        if index != current_device():
            with torch.cuda.device(index):
                return _multiply(rowptr, col, value, x, transpose, cols, compiled)
        stream = current_stream(index)
    if heads is None:
        width = shape[1]
        if made == 0 or taken == 0 or width == 0:
            pattern.checked(stream)
            return x.new_zeros((made, width))
        out = empty_rows(x, made, width)
        if value is not None and not value.is_contiguous():
            value = value.contiguous()
        name, across = NAMES[dtype], (width, 1)
        if x.is_contiguous():
            b = (x.data_ptr(), shape, across, name)
        else:
            x = rows_of("the dense operand", x)  # a copy lives until the product is queued
            b = operand(x)
        pattern.multiply(transpose, value, b, (out.data_ptr(), (made, width), across, name), stream, learned)
        return out
    if 0 in (made, taken, *shape[1:]):
        pattern.checked(stream)
        return x.new_zeros((made, *shape[1:]))
    together = pattern.of_heads(heads, rowptr, col)
    if together is not None:
        of_all = rows_of("the dense operand", (x.transpose(0, 1) if transpose else x).reshape(-1, shape[2]))
        found = x.new_empty((made * heads, shape[2]))
        values = None if value is None else value.contiguous().view(-1)
        together.multiply(transpose, values, operand(of_all), operand(found), stream, learned)
        if transpose:
            return found.view(made, heads, shape[2])
        return found.view(heads, made, shape[2]).transpose(0, 1).contiguous()
    out = x.new_empty((made, *shape[1:]))
    for head in range(heads):
        one = None if value is None else value[head].contiguous()
        of_head = rows_of("the dense operand", x[:, head])
        pattern.multiply(transpose, one, operand(of_head), operand(out[:, head]), stream, learned)
    return out


def spmm(rowptr, col, value, x):
    if x.dim() not in (2, 3):
        _heads(x)
    return _multiply(rowptr, col, value, x, False, x.shape[0])


def spmm_t(rowptr, col, value, x, cols):
    return _multiply(rowptr, col, value, x, True, cols)


# Of values that compiled code made no version tells whether they are those that a plan holds.


def spmm_compiled(rowptr, col, value, x):
    if x.dim() not in (2, 3):
        _heads(x)
    return _multiply(rowptr, col, value, x, False, x.shape[0], True)


def spmm_t_compiled(rowptr, col, value, x, cols):
    return _multiply(rowptr, col, value, x, True, cols, True)


def sddmm(rowptr, col, x, y, dtype=None):
    heads = _heads(x)
    if _heads(y) != heads or x.shape[1:] != y.shape[1:]:
        raise errors.ShapeError(f"X has shape {tuple(x.shape)} and Y {tuple(y.shape)}; all but the first must agree")
    if x.dtype != y.dtype:
        raise errors.DtypeError(f"X holds {x.dtype} but Y {y.dtype}; convert one of them")
    if x.dtype not in NAMES:
        raise errors.DtypeError(f"X holds {x.dtype}; windrow computes in f32, f64, f16 and bf16")
    if x.shape[0] != rowptr.numel() - 1:
        raise errors.ShapeError(f"X has {x.shape[0]} rows but the pattern {rowptr.numel() - 1}")
    dtype = dtype or x.dtype
    pattern = pattern_of(rowptr, col, y.shape[0])
    same_device(pattern.device, X=x, Y=y)
    sums = torch.float64 if x.dtype == torch.float64 else torch.float32
    shape = (pattern.nnz,) if heads is None else (heads, pattern.nnz)
    out = torch.empty(shape, dtype=sums, device=x.device)
    with on_device(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0 or x.shape[-1] == 0:
            pattern.checked(stream)
            return out.zero_().to(dtype)
        together = None if heads is None else pattern.of_heads(heads, rowptr, col)
        if together is not None:
            features = x.shape[-1]
            of_x, of_y = x.transpose(0, 1).reshape(-1, features), y.reshape(-1, features)
            together.sample(rows_of("X", of_x), rows_of("Y", of_y), out.view(-1), stream)
            return out.to(dtype)
        for head in range(heads or 1):
            one, other, to = (x, y, out) if heads is None else (x[:, head], y[:, head], out[head])
            pattern.sample(rows_of("X", one), rows_of("Y", other), to, stream)
    return out.to(dtype)


def _scores(name, scores, nnz):
    if scores.dim() not in (1, 2) or scores.shape[-1] != nnz:
        raise errors.ShapeError(f"{name} has shape {tuple(scores.shape)} but must be ({nnz},) or (heads, {nnz})")
    if scores.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise errors.DtypeError(f"{name} holds {scores.dtype}; the softmax is computed in f32: give {name}.float()")
    return scores.float().contiguous()


def _of_scores(pattern, rowptr, col, scores):
    """The pattern whose entries scores are: that of all heads, where they are together."""
    return (scores.dim() == 2 and pattern.of_heads(scores.shape[0], rowptr, col)) or pattern


def edge_softmax(rowptr, col, scores, cols, scale):
    pattern = pattern_of(rowptr, col, cols)
    same_device(pattern.device, scores=scores)
    given = _scores("scores", scores, pattern.nnz)
    out = given.new_empty(given.shape)
    with on_device(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0:
            pattern.checked(stream)
            return out.to(scores.dtype)
        pattern = _of_scores(pattern, rowptr, col, given)
        softmax = pattern.softmax(stream)
        for one, to in zip(given.view(-1, pattern.nnz), out.view(-1, pattern.nnz)):
            softmax.forward(stream, one.data_ptr(), to.data_ptr(), pattern.nnz, scale)
    return out.to(scores.dtype)


def edge_softmax_backward(rowptr, col, p, g, cols, scale):
    pattern = pattern_of(rowptr, col, cols)
    same_device(pattern.device, p=p, g=g)
    given, gradient = _scores("p", p, pattern.nnz), _scores("g", g, pattern.nnz)
    if given.shape != gradient.shape:
        raise errors.ShapeError(f"p has shape {tuple(p.shape)} but g {tuple(g.shape)}")
    out = given.new_empty(given.shape)
    with on_device(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0:
            return out.to(p.dtype)
        pattern = _of_scores(pattern, rowptr, col, given)
        softmax = pattern.softmax(stream)
        rows = (tensor.view(-1, pattern.nnz) for tensor in (given, gradient, out))
        for one, other, to in zip(*rows):
            softmax.backward(stream, one.data_ptr(), other.data_ptr(), to.data_ptr(), pattern.nnz, scale)
    return out.to(p.dtype)
