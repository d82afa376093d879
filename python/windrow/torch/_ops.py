"""Products, sampled products and softmax of edges as operators of PyTorch.

Each operator is registered with torch.library, with a fake kernel, a gradient made of the same operators, and what
autocast does. Eager calls on plain tensors take a shorter way to the same kernels and the same gradients.
"""

import torch

from windrow import errors
from windrow.torch._cache import NAMES, Pattern, cache, check_indices, stream_of
from windrow.torch._csr import parts, plain



# The kernels: tensors in, new tensors out, on the current stream.


def _pattern(rowptr, col, cols):
    if rowptr.is_contiguous() and col.is_contiguous():
        return cache.pattern(rowptr, col, cols)
    check_indices(rowptr, col)
    return Pattern.of_copies(rowptr.contiguous(), col.contiguous(), cols, cache)


def _rows(name, matrix):
    """A matrix whose rows are consecutive elements: itself, if they are."""
    if matrix.dtype not in NAMES:
        raise errors.DtypeError(f"{name} holds {matrix.dtype}; windrow computes in f32, f64, f16 and bf16")
    rows, cols = matrix.shape
    down, across = matrix.stride()
    if (across == 1 or cols == 1) and (down >= cols or rows == 1):
        return matrix
    return matrix.contiguous()


def _same_device(pattern_device, **tensors):
    for name, tensor in tensors.items():
        if tensor is not None and tensor.device != pattern_device:
            raise errors.DeviceError(
                f"{name} is on {tensor.device} but the matrix on {pattern_device}; move one of them with .to()"
            )


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


def _multiply(rowptr, col, value, x, transpose, cols):
    shape, dtype = x.shape, x.dtype
    heads = None if len(shape) == 2 else _heads(x)
    rows = rowptr.shape[0] - 1 if rowptr.dim() == 1 else 0  # what has no rows or too many is told by the check
    taken, made = (rows, cols) if transpose else (cols, rows)
    if dtype not in NAMES:
        raise errors.DtypeError(f"the dense operand holds {dtype}; windrow computes in f32, f64, f16 and bf16")
    pattern = _pattern(rowptr, col, cols)
    if shape[0] != taken:
        raise errors.ShapeError(f"the dense operand has {shape[0]} rows but must have {taken}")
    device = pattern.device
    if x.device != device:
        _same_device(device, **{"the dense operand": x})
    learned = False
    if value is not None:
        _same_device(device, value=value)
        _check_values(value, pattern.nnz, dtype, heads)
        learned = value.requires_grad
    on_cpu = device.type == "cpu"
    if not on_cpu and device.index != _current_device():
        with torch.cuda.device(device):
            return _multiply(rowptr, col, value, x, transpose, cols)
    stream = None if on_cpu else _current_stream(device.index)
    if heads is None:
        out = x.new_empty((made, shape[1]))
        if made == 0 or taken == 0 or shape[1] == 0:
            pattern.checked(stream)
            return out.zero_()
        value = value if value is None else value.contiguous()
        pattern.multiply(transpose, value, _rows("the dense operand", x), out, stream, learned)
        return out
    out = x.new_empty((made, *shape[1:]))
    if out.numel() == 0 or x.numel() == 0:
        pattern.checked(stream)
        return out.zero_()
    for head in range(heads):
        one = None if value is None else value[head].contiguous()
        pattern.multiply(transpose, one, _rows("the dense operand", x[:, head]), out[:, head], stream, learned)
    return out


def _no_stream(_):
    raise errors.DeviceError("this PyTorch was built without CUDA")


_current_device = getattr(torch._C, "_cuda_getDevice", _no_stream)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _no_stream)


class _Here:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


_here = _Here()


def _on(device):
    """Makes a device the current one, where that is another."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return _here
    return torch.cuda.device(device)


def _spmm(rowptr, col, value, x):
    if x.dim() not in (2, 3):
        _heads(x)
    return _multiply(rowptr, col, value, x, False, x.shape[0])


def _spmm_t(rowptr, col, value, x, cols):
    return _multiply(rowptr, col, value, x, True, cols)


def _sddmm(rowptr, col, x, y, dtype=None):
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
    pattern = _pattern(rowptr, col, y.shape[0])
    _same_device(pattern.device, X=x, Y=y)
    sums = torch.float64 if x.dtype == torch.float64 else torch.float32
    shape = (pattern.nnz,) if heads is None else (heads, pattern.nnz)
    out = torch.empty(shape, dtype=sums, device=x.device)
    with _on(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0 or x.shape[-1] == 0:
            pattern.checked(stream)
            return out.zero_().to(dtype)
        for head in range(heads or 1):
            one, other, to = (x, y, out) if heads is None else (x[:, head], y[:, head], out[head])
            pattern.sample(_rows("X", one), _rows("Y", other), to, stream)
    return out.to(dtype)


def _scores(name, scores, nnz):
    if scores.dim() not in (1, 2) or scores.shape[-1] != nnz:
        raise errors.ShapeError(f"{name} has shape {tuple(scores.shape)} but must be ({nnz},) or (heads, {nnz})")
    if scores.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise errors.DtypeError(f"{name} holds {scores.dtype}; the softmax is computed in f32: give {name}.float()")
    return scores.float().contiguous()


def _edge_softmax(rowptr, col, scores, cols, scale):
    pattern = _pattern(rowptr, col, cols)
    _same_device(pattern.device, scores=scores)
    given = _scores("scores", scores, pattern.nnz)
    out = torch.empty_like(given)
    with _on(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0:
            pattern.checked(stream)
            return out.to(scores.dtype)
        softmax = pattern.softmax(stream)
        for one, to in zip(given.view(-1, pattern.nnz), out.view(-1, pattern.nnz)):
            softmax.forward(stream, one.data_ptr(), to.data_ptr(), pattern.nnz, scale)
    return out.to(scores.dtype)


def _edge_softmax_backward(rowptr, col, p, g, cols, scale):
    pattern = _pattern(rowptr, col, cols)
    _same_device(pattern.device, p=p, g=g)
    given, gradient = _scores("p", p, pattern.nnz), _scores("g", g, pattern.nnz)
    if given.shape != gradient.shape:
        raise errors.ShapeError(f"p has shape {tuple(p.shape)} but g {tuple(g.shape)}")
    out = torch.empty_like(given)
    with _on(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0:
            return out.to(p.dtype)
        softmax = pattern.softmax(stream)
        rows = (tensor.view(-1, pattern.nnz) for tensor in (given, gradient, out))
        for one, other, to in zip(*rows):
            softmax.backward(stream, one.data_ptr(), other.data_ptr(), to.data_ptr(), pattern.nnz, scale)
    return out.to(p.dtype)


# The operators.

_library = torch.library.Library("windrow", "DEF")


class _Operator:
    """An operator of torch.library, and the shorter way to its kernel."""

    def __init__(self, schema, kernel, fake, setup, backward, differentiable):
        self.name = schema[: schema.index("(")]
        self.kernel, self.differentiable = kernel, differentiable
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        for key in ("CPU", "CUDA"):
            _library.impl(self.name, kernel, key)
        full = f"windrow::{self.name}"
        torch.library.register_fake(full, fake, lib=_library)
        torch.library.register_autograd(full, backward, setup_context=setup, lib=_library)
        self.op = getattr(torch.ops.windrow, self.name).default

        def forward(ctx, *inputs):
            out = kernel(*inputs)
            setup(ctx, inputs, out)
            return out

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        self.function = type(self.name, (torch.autograd.Function,), members)

    def __call__(self, *inputs):
        if torch.compiler.is_compiling() or not _is_plain(inputs):
            return self.op(*inputs)
        if torch.is_grad_enabled():
            for at in self.differentiable:
                if inputs[at] is not None and inputs[at].requires_grad:
                    return self.function.apply(*inputs)
        return self.kernel(*inputs)


def _is_plain(inputs):
    """Whether nothing but autograd would see an operator's call."""
    if _dispatch_modes() or _transforms() is not None or _function_modes() or _tracing() is not None:
        return False
    for given in inputs:
        if type(given) not in _PLAIN and isinstance(given, torch.Tensor):
            return False
    return True


_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_transforms, _tracing = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
_any_autocast = torch._C._is_any_autocast_enabled
_PLAIN = (torch.Tensor, torch.nn.Parameter)


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


spmm_op = _Operator(
    "spmm(Tensor rowptr, Tensor col, Tensor? value, Tensor x) -> Tensor",
    _spmm,
    lambda rowptr, col, value, x: _new(x, (rowptr.shape[0] - 1, *x.shape[1:])),
    _spmm_setup,
    _spmm_backward,
    (2, 3),
)
spmm_t_op = _Operator(
    "spmm_t(Tensor rowptr, Tensor col, Tensor? value, Tensor x, SymInt cols) -> Tensor",
    _spmm_t,
    lambda rowptr, col, value, x, cols: _new(x, (cols, *x.shape[1:])),
    _spmm_t_setup,
    _spmm_t_backward,
    (2, 3),
)
sddmm_op = _Operator(
    "sddmm(Tensor rowptr, Tensor col, Tensor x, Tensor y, ScalarType? dtype=None) -> Tensor",
    _sddmm,
    lambda rowptr, col, x, y, dtype=None: _new(x, (*x.shape[1:-1], col.shape[0]), dtype),
    _sddmm_setup,
    _sddmm_backward,
    (2, 3),
)
edge_softmax_op = _Operator(
    "edge_softmax(Tensor rowptr, Tensor col, Tensor scores, SymInt cols, float scale) -> Tensor",
    _edge_softmax,
    lambda rowptr, col, scores, cols, scale: _new(scores, scores.shape),
    _softmax_setup,
    _softmax_backward,
    (2,),
)
edge_softmax_backward_op = _Operator(
    "edge_softmax_backward(Tensor rowptr, Tensor col, Tensor p, Tensor g, SymInt cols, float scale) -> Tensor",
    _edge_softmax_backward,
    lambda rowptr, col, p, g, cols, scale: _new(p, p.shape),
    _softmax_backward_setup,
    _softmax_backward_backward,
    (2, 3),
)


def _register_autocast(device_type):
    key = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}[device_type]
    without = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))

    def below(op, convert):
        def call(*inputs):
            with torch._C._ExcludeDispatchKeyGuard(without):
                return op.op(*convert(*inputs))

        _library.impl(op.name, call, key)

    def cast(tensor):
        return _cast(tensor, device_type)

    below(spmm_op, lambda rowptr, col, value, x: (rowptr, col, value, cast(x)))
    below(spmm_t_op, lambda rowptr, col, value, x, cols: (rowptr, col, value, cast(x), cols))
    below(sddmm_op, lambda rowptr, col, x, y, dtype=None: (rowptr, col, cast(x), cast(y), dtype))


def _cast(tensor, device_type):
    """What autocast makes of an operand."""
    if tensor.dtype in (torch.float32, torch.float16, torch.bfloat16):
        return tensor.to(torch.get_autocast_dtype(device_type))
    return tensor


_register_autocast("cpu")
_register_autocast("cuda")


def _dense(tensor):
    """An operand, of autocast's type where that is on."""
    if torch.compiler.is_compiling() or not _any_autocast():
        return tensor
    kind = tensor.device.type
    if kind in ("cpu", "cuda") and torch.is_autocast_enabled(kind):
        return _cast(tensor, kind)
    return tensor


# What users call.


def spmm(a, x, reduce="sum"):
    """`A·X` for a sparse matrix `A` (m × n) and a dense `X` of shape (n, features), (n,) or (n, heads, features).

    `A` is a `torch.sparse_csr` tensor, `(rowptr, col)`, `(rowptr, col, value)`, a `torch_geometric.EdgeIndex`, or a
    `windrow.torch.Csr`; columns ascend in each row, none twice. Without values all entries are 1; for X with heads
    they are `(heads, nnz)`. `reduce` is "sum" or "mean", which divides by the number of entries of the row (a row
    without any gives 0). X is f32, f64, f16 or bf16, values the same or f32; sums are in f32 (f64 for f64), the result
    has X's type. Values and X get gradients: `Aᵀ·dY`, and the products of rows of dY and X at A's entries. Under
    autocast X is converted.

    Plans are made at the first use of a pattern and kept: see `windrow.torch.cache`.

    Raises the exceptions of `windrow.errors` for operands that do not fit, and for a pattern that is not canonical.
    """
    rowptr, col, value, cols = parts(a)
    if cols is not None and x.shape[0] != cols:
        raise errors.ShapeError(f"A has {cols} columns but X {x.shape[0]} rows")
    if x.dim() == 1:
        return spmm(a, x.unsqueeze(1), reduce).squeeze(1)
    out = spmm_op(rowptr, col, value, _dense(x))
    if reduce in ("sum", "add"):
        return out
    if reduce != "mean":
        raise errors.OptionError(f"{reduce!r} is no reduction that windrow.torch has; there are sum and mean")
    count = rowptr.diff().clamp(min=1).to(torch.float64 if out.dtype == torch.float64 else torch.float32)
    return (out / count.view(-1, *(1,) * (out.dim() - 1))).to(out.dtype)


def sddmm(a, x, y, scale=False):
    """`X·Yᵀ` at the entries of A: `(X[i] · Y[j])` for each entry `(i, j)`, times its value with `scale=True`.

    X is (m, features) and Y (n, features), which gives `(nnz,)`; or with heads `(m, heads, features)` and
    `(n, heads, features)`, which gives `(heads, nnz)`. X, Y and values get gradients.
    """
    rowptr, col, value, cols = parts(a)
    if cols is not None and y.shape[0] != cols:
        raise errors.ShapeError(f"A has {cols} columns but Y {y.shape[0]} rows")
    if scale and value is None:
        raise errors.OptionError("the products cannot be multiplied by values: the matrix has none")
    out = sddmm_op(rowptr, col, _dense(x), _dense(y), None)
    return out * value if scale else out


def edge_softmax(a, scores, scale=1.0, num_cols=None):
    """`softmax(scale·scores)` over the entries of each row of A; scores are `(nnz,)` or `(heads, nnz)`, in A's order.

    Computed in f32, whatever of f32, f16 and bf16 the scores are; they get gradients. `num_cols` says how many columns
    A has, if it does not say it itself; an upper bound will do.
    """
    rowptr, col, _, cols = parts(a)
    cols = cols if cols is not None else num_cols
    if cols is None:
        raise errors.ShapeError("the matrix does not say how many columns it has; give num_cols")
    return edge_softmax_op(rowptr, col, scores, cols, float(scale))


def check(a, num_cols=None):
    """Checks a matrix now; the first product would. Raises `windrow.errors.FormatError` with the first wrong entry."""
    rowptr, col, _, cols = parts(a)
    cols = cols if cols is not None else num_cols
    if cols is None:
        raise errors.ShapeError("the matrix does not say how many columns it has; give num_cols")
    rowptr, col = plain(rowptr), plain(col)
    check_indices(rowptr, col)
    pattern = _pattern(rowptr, col, cols)
    with _on(pattern.device):
        pattern.checked(stream_of(pattern.device))


def prepare_capture(stream=None):
    """Makes what the cached plans need to be captured into a CUDA graph on `stream`, a `torch.cuda.Stream`.

    Not needed for the stream that `torch.cuda.graph` takes unless told, nor for one that plans have run on: their
    second run makes it.
    """
    if stream is None:
        stream = torch.cuda.current_stream()
    for pattern in list(cache.patterns.values()):
        if pattern.device == stream.device:
            pattern.make_ready_on(stream.cuda_stream)
