"""Attention over the entries of a pattern in one pass, as an operator with gradients."""

import math
from typing import Optional

import torch

from windrow import errors
from windrow.torch._csr import Matrix, parts
from windrow.torch._device import NAMES, capturing, on_device, operand, same_device, stream_of
from windrow.torch._kernels import pattern_of
from windrow.torch._operator import Operator
from windrow.torch._ops import dense, register_autocast

# Columns of a head that kernels have room for.
MOST_FEATURES = 256


def graph_attention(
    a: Matrix,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: Optional[float] = None,
    bias: Optional[torch.Tensor] = None,
    dropout: float = 0.0,
) -> torch.Tensor:
    """`softmax(scale·Q·Kᵀ + bias)·V`, the softmax over the entries of each row of A, in one pass.

    Q is (m, features), K (n, features) and V (n, values), which gives (m, values); or with heads (m, heads, features),
    (n, heads, features) and (n, heads, values), which gives (m, heads, values). Heads have 256 features at most. The
    values of A do not matter. `scale` is 1/√features unless told. `bias`, of f32, is (nnz,) or (heads, nnz) in A's
    order; minus infinity leaves an entry out. `dropout` is how often a weight is left out; which, the generator of the
    CPU decides. Rows without entries give zeros.

    Operands are f32, f16 or bf16, all the same, and so is the result; sums are in f32. Q, K, V and the bias get
    gradients, recomputed of two numbers for each row and head: no tensor has a number for each entry. There are no
    second derivatives. Under autocast operands are converted.

    Plans are made at the first use of a pattern, on the host of a copy, and kept: see `windrow.torch.cache`.

    Raises the exceptions of `windrow.errors` for operands that do not fit, and for a pattern that is not canonical.
    """
    rowptr, col, _, cols = parts(a)
    if cols is not None and k.shape[0] != cols:
        raise errors.ShapeError(f"A has {cols} columns but K {k.shape[0]} rows")
    if not 0 <= dropout < 1:
        raise errors.OptionError(f"a dropout of {dropout} is not at least 0 and below 1")
    scale = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)
    if dropout and not torch.compiler.is_compiling() and capturing(q.device):
        raise errors.OptionError("a CUDA graph would drop the same weights in each launch; capture without dropout")
    seed = int(torch.randint(1 << 32, ())) if dropout else 0
    return attention_op(rowptr, col, dense(q), dense(k), dense(v), bias, scale, float(dropout), seed)[0]


def attend(graph, q, k, v, scale, dropout):
    """Attention in a layer: in one pass where a plan for it pays, else in steps.

    A plan is laid out on the host, which takes as long as some thousand passes: it is made for a pattern that has been
    attended to as often as one that deserves the best plan of a product.
    """
    if dropout == 0 and q.is_cuda and q.dtype != torch.float64 and max(q.shape[-1], v.shape[-1]) <= MOST_FEATURES:
        # With dropout a graph that is captured would drop the same weights in each launch.
        pattern = pattern_of(graph.csr.rowptr, graph.csr.col, graph.cols)
        if pattern.attention_pays():
            return graph_attention(graph.csr, q, k, v, scale)
    return in_steps(graph, q, k, v, scale, dropout)


def in_steps(graph, q, k, v, scale, dropout):
    """Scores of all entries, their softmax, and sums by that."""
    with torch.autocast(q.device.type, enabled=False):
        weights = graph.softmax(graph.sddmm(q, k, torch.float32), scale)
    return graph.spmm(torch.nn.functional.dropout(weights, dropout), v)


def _check(pattern, q, k, v, bias):
    """Heads, features and values."""
    if q.dim() not in (2, 3) or k.dim() != q.dim() or v.dim() != q.dim():
        raise errors.ShapeError(
            f"Q, K and V have shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}; they must all be "
            "(n, features) or all (n, heads, features)"
        )
    if q.dtype not in NAMES or q.dtype == torch.float64 or k.dtype != q.dtype or v.dtype != q.dtype:
        raise errors.DtypeError(
            f"Q, K and V hold {q.dtype}, {k.dtype} and {v.dtype}; attention takes f32, f16 or bf16, all the same"
        )
    rows, cols = pattern.rows, pattern.shape[1]
    if q.shape[1:] != k.shape[1:] or v.shape[1:-1] != k.shape[1:-1] or q.shape[0] != rows or v.shape[0] != cols:
        raise errors.ShapeError(
            f"Q, K and V have shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}; for a matrix of {rows} × "
            f"{cols} they must have {rows}, {cols} and {cols} rows, and the same heads, Q and K the same features"
        )
    heads = q.shape[1] if q.dim() == 3 else 1
    same_device(pattern.device, Q=q, K=k, V=v, bias=bias)
    if bias is not None:
        if bias.dtype != torch.float32:
            raise errors.DtypeError(f"the bias holds {bias.dtype}; give bias.float()")
        if bias.shape not in ((pattern.nnz,), (heads, pattern.nnz)):
            raise errors.ShapeError(
                f"the bias has shape {tuple(bias.shape)} but must be ({pattern.nnz},) or ({heads}, {pattern.nnz})"
            )
    return heads, q.shape[-1], v.shape[-1]


def _flat(tensor):
    """Rows with all heads beside each other."""
    tensor = tensor.contiguous()
    return tensor if tensor.dim() == 2 else tensor.view(tensor.shape[0], -1)


def _given(q, k, v, bias, scale, dropout, seed):
    """What the plan takes; the operands live as long as the result."""
    return {
        "operands": (operand(q), operand(k), operand(v)),
        "bias": None if bias is None else (bias.data_ptr(), bias.numel()),
        "dropout": (dropout, seed) if dropout else None,
        "scale": scale,
    }


def _forward(rowptr, col, q, k, v, bias, scale, dropout, seed):
    pattern = pattern_of(rowptr, col, k.shape[0])
    heads, features, values = _check(pattern, q, k, v, bias)
    out = q.new_empty((*q.shape[:-1], values))
    states = torch.empty((heads, pattern.rows, 2), dtype=torch.float32, device=q.device)
    with on_device(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0 or features == 0:
            pattern.checked(stream)
            if features == 0 and out.numel():
                raise errors.ShapeError("Q and K have no features")
            return out, states
        learned = any(of is not None and of.requires_grad for of in (q, k, v, bias))
        plan = pattern.attention(stream, heads, (features, values), NAMES[q.dtype], bias is not None, learned)
        q, k, v = _flat(q), _flat(k), _flat(v)
        bias = None if bias is None else bias.contiguous()
        given = _given(q, k, v, bias, scale, dropout, seed)
        plan.forward(stream, given, operand(_flat(out)), (states.data_ptr(), states.numel()))
    return out, states


def _backward(rowptr, col, q, k, v, bias, out, states, gradient, scale, dropout, seed):
    pattern = pattern_of(rowptr, col, k.shape[0])
    heads, features, values = _check(pattern, q, k, v, bias)
    found = [torch.empty(of.shape, dtype=of.dtype, device=of.device) for of in (q, k, v)]
    of_bias = torch.zeros_like(bias, memory_format=torch.contiguous_format) if bias is not None else q.new_empty(0)
    with on_device(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0 or pattern.nnz == 0:
            return (*(tensor.zero_() for tensor in found), of_bias)
        plan = pattern.attention(stream, heads, (features, values), NAMES[q.dtype], bias is not None, True)
        q, k, v = _flat(q), _flat(k), _flat(v)
        bias = None if bias is None else bias.contiguous()
        read = _flat(out), _flat(gradient.to(q.dtype))
        states = states.contiguous()
        plan.backward(
            stream,
            _given(q, k, v, bias, scale, dropout, seed),
            (states.data_ptr(), states.numel()),
            [operand(matrix) for matrix in read],
            [operand(_flat(matrix)) for matrix in found],
            None if bias is None else (of_bias.data_ptr(), of_bias.numel()),
        )
    return (*found, of_bias)


def _setup(ctx, inputs, output):
    rowptr, col, q, k, v, bias, ctx.scale, ctx.dropout, ctx.seed = inputs
    out, states = output
    ctx.mark_non_differentiable(states)
    ctx.save_for_backward(rowptr, col, q, k, v, bias, out, states)


def _gradients(ctx, gradient, _):
    needs = ctx.needs_input_grad
    rowptr, col, q, k, v, bias, out, states = ctx.saved_tensors
    inputs = (rowptr, col, q, k, v, bias, out, states, gradient, ctx.scale, ctx.dropout, ctx.seed)
    *found, of_bias = attention_backward_op(*inputs)
    found = [of if wanted else None for of, wanted in zip(found, needs[2:5])]
    return None, None, *found, of_bias if needs[5] else None, None, None, None


def _no_more(ctx, *_):
    raise NotImplementedError("windrow.torch.graph_attention has no second derivatives")


attention_op = Operator(
    "attention(Tensor rowptr, Tensor col, Tensor q, Tensor k, Tensor v, Tensor? bias, float scale, float dropout, "
    "SymInt seed) -> (Tensor, Tensor)",
    _forward,
    lambda rowptr, col, q, k, v, *_: (
        q.new_empty((*q.shape[:-1], v.shape[-1])),
        q.new_empty((q.shape[1] if q.dim() == 3 else 1, q.shape[0], 2), dtype=torch.float32),
    ),
    _setup,
    _gradients,
    (2, 3, 4, 5),
)
attention_backward_op = Operator(
    "attention_backward(Tensor rowptr, Tensor col, Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor out, "
    "Tensor states, Tensor gradient, float scale, float dropout, SymInt seed) -> (Tensor, Tensor, Tensor, Tensor)",
    _backward,
    lambda rowptr, col, q, k, v, bias, *_: (
        *(of.new_empty(of.shape) for of in (q, k, v)),
        q.new_empty(0) if bias is None else bias.new_empty(bias.shape),
    ),
    lambda ctx, inputs, output: None,
    _no_more,
    (2, 3, 4, 5, 6, 8),
)
register_autocast(attention_op, {2, 3, 4})
