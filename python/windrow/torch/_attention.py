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
    seed = _seed(dropout, q.device)
    scale = 1 / math.sqrt(max(q.shape[-1], 1)) if scale is None else float(scale)
    inputs = (rowptr, col, dense(q), dense(k), dense(v), None, bias, scale, None, float(dropout), seed)
    return attention_op(*inputs)[0]


def additive_attention(
    a: Matrix,
    of_row: torch.Tensor,
    of_column: torch.Tensor,
    v: torch.Tensor,
    of_entry: Optional[torch.Tensor] = None,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
) -> torch.Tensor:
    """`softmax(leaky_relu(of_row[i] + of_column[j] + of_entry[e]))·V` over the entries of each row of A, in one pass.

    The attention of GAT (Veličković et al. 2018). `of_row` is (m,), `of_column` (n,) and V (n, values), which gives
    (m, values); or with heads (m, heads), (n, heads) and (n, heads, values), which gives (m, heads, values).
    `of_entry` is (nnz,) or (heads, nnz) in A's order, and minus infinity leaves an entry out. Numbers that scores are
    made of are taken in f32; V is f32, f16 or bf16, and so is the result. The values of A do not matter.

    All of them get gradients. For the rest see `graph_attention`.
    """
    rowptr, col, _, cols = parts(a)
    if cols is not None and v.shape[0] != cols:
        raise errors.ShapeError(f"A has {cols} columns but V {v.shape[0]} rows")
    if v.dim() not in (2, 3) or of_row.dim() != v.dim() - 1 or of_column.dim() != v.dim() - 1:
        raise errors.ShapeError(
            f"the numbers of rows and columns have shapes {tuple(of_row.shape)} and {tuple(of_column.shape)}, V "
            f"{tuple(v.shape)}; they must be (m,), (n,) and (n, values), or (m, heads), (n, heads) and (n, heads, values)"
        )
    seed = _seed(dropout, v.device)
    q, k = of_row.float().unsqueeze(-1), of_column.float().unsqueeze(-1)
    bias = None if of_entry is None else of_entry.float()
    inputs = (rowptr, col, q, k, dense(v), None, bias, 1.0, float(negative_slope), float(dropout), seed)
    return additive_attention_op(*inputs)[0]


def gatv2_attention(
    a: Matrix,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    vector: torch.Tensor,
    bias: Optional[torch.Tensor] = None,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
) -> torch.Tensor:
    """`softmax(vector·leaky_relu(Q[i] + K[j]) + bias)·V` over the entries of each row of A, in one pass.

    The attention of GATv2 (Brody, Alon and Yahav 2022). Shapes and types of Q, K, V and the bias are those of
    `graph_attention`; K and V may be one tensor. `vector` is (features,), or with heads (heads, features), and is taken
    in f32. All of them get gradients; for the rest see there.
    """
    rowptr, col, _, cols = parts(a)
    if cols is not None and k.shape[0] != cols:
        raise errors.ShapeError(f"A has {cols} columns but K {k.shape[0]} rows")
    if vector.shape != q.shape[1:]:
        raise errors.ShapeError(
            f"the vector has shape {tuple(vector.shape)} but must be {tuple(q.shape[1:])}, as a row of Q"
        )
    seed = _seed(dropout, v.device)
    inputs = (rowptr, col, dense(q), dense(k), dense(v), vector.float(), bias, 1.0, float(negative_slope))
    return gatv2_attention_op(*inputs, float(dropout), seed)[0]


def _seed(dropout, device):
    """Of which weights are dropped."""
    if not 0 <= dropout < 1:
        raise errors.OptionError(f"a dropout of {dropout} is not at least 0 and below 1")
    if dropout and not torch.compiler.is_compiling() and capturing(device):
        raise errors.OptionError("a CUDA graph would drop the same weights in each launch; capture without dropout")
    return int(torch.randint(1 << 32, ())) if dropout else 0


def attend(graph, q, k, v, scale, dropout):
    """Attention in a layer: in one pass where a plan for it pays, else in steps.

    A plan is laid out on the host, which takes as long as some thousand passes: it is made for a pattern that has been
    attended to as often as one that deserves the best plan of a product.
    """
    if q.shape[-1] <= MOST_FEATURES and _pays(graph, v, dropout):
        return graph_attention(graph.csr, q, k, v, scale)
    return in_steps(graph, q, k, v, scale, dropout)


def attend_additively(graph, numbers, v, of_entry, negative_slope, dropout):
    """The same of additive scores, of `numbers` of rows and of columns."""
    if _pays(graph, v, dropout):
        return additive_attention(graph.csr, *numbers, v, of_entry, negative_slope)
    return additively_in_steps(graph, numbers, v, of_entry, negative_slope, dropout)


def additively_in_steps(graph, numbers, v, of_entry, negative_slope, dropout):
    """Weights of all entries, and sums by them."""
    weights = additive_weights(graph, numbers, of_entry, negative_slope)
    return graph.spmm(torch.nn.functional.dropout(weights, dropout), v)


def additive_weights(graph, numbers, of_entry, negative_slope):
    """Weights of all entries, `(heads, entries)`, in f32."""
    of_row, of_column = numbers
    # of_row[i] + of_column[j] for each entry: a product of (of_row, 1) and (1, of_column).
    left = torch.stack([of_row, torch.ones_like(of_row)], -1)
    right = torch.stack([torch.ones_like(of_column), of_column], -1)
    with torch.autocast(of_row.device.type, enabled=False):
        scores = graph.sddmm(left, right)
        if of_entry is not None:
            scores = scores + of_entry
        return graph.softmax(torch.nn.functional.leaky_relu(scores, negative_slope))


def _pays(graph, v, dropout):
    """Whether a layer attends in one pass; counts."""
    # With dropout a graph that is captured would drop the same weights in each launch.
    if dropout != 0 or not v.is_cuda or v.dtype == torch.float64 or v.shape[-1] > MOST_FEATURES:
        return False
    return pattern_of(graph.csr.rowptr, graph.csr.col, graph.cols).attention_pays()


def gatv2_weights(graph, source, target, vector, negative_slope):
    """Weights of all entries, `(heads, entries)`, in f32, by way of a vector for each entry and head."""
    with torch.autocast(source.device.type, enabled=False):
        sums = source[graph.csr.col] + target[graph.row]
        scores = (torch.nn.functional.leaky_relu(sums, negative_slope) * vector).sum(-1).float()
        return graph.softmax(scores.t().contiguous())


def in_steps(graph, q, k, v, scale, dropout):
    """Scores of all entries, their softmax, and sums by that."""
    with torch.autocast(q.device.type, enabled=False):
        weights = graph.softmax(graph.sddmm(q, k, torch.float32), scale)
    return graph.spmm(torch.nn.functional.dropout(weights, dropout), v)


def _check(pattern, q, k, v, vector, bias, negative_slope):
    """What a plan is for, as `Pattern.attention` takes it."""
    additive = negative_slope is not None and vector is None
    if q.dim() not in (2, 3) or k.dim() != q.dim() or v.dim() != q.dim():
        raise errors.ShapeError(
            f"Q, K and V have shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}; they must all be "
            "(n, features) or all (n, heads, features)"
        )
    if v.dtype not in NAMES or v.dtype == torch.float64:
        raise errors.DtypeError(f"V holds {v.dtype}; attention takes f32, f16 or bf16")
    of_scores = torch.float32 if additive else v.dtype
    if q.dtype != of_scores or k.dtype != of_scores:
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
    same_device(pattern.device, Q=q, K=k, V=v, vector=vector, bias=bias)
    if additive and q.shape[-1] != 1:
        raise errors.ShapeError(f"additive scores are of one number a head, not {q.shape[-1]}")
    if bias is not None:
        if bias.dtype != torch.float32:
            raise errors.DtypeError(f"the bias holds {bias.dtype}; give bias.float()")
        if bias.shape not in ((pattern.nnz,), (heads, pattern.nnz)):
            raise errors.ShapeError(
                f"the bias has shape {tuple(bias.shape)} but must be ({pattern.nnz},) or ({heads}, {pattern.nnz})"
            )
    return heads, q.shape[-1], v.shape[-1], NAMES[v.dtype], bias is not None, negative_slope, vector is not None


def _flat(tensor):
    """Rows with all heads beside each other."""
    tensor = tensor.contiguous()
    return tensor if tensor.dim() == 2 else tensor.view(tensor.shape[0], -1)


def _numbers(tensor):
    """Where consecutive numbers are."""
    return None if tensor is None else (tensor.data_ptr(), tensor.numel())


def _given(q, k, v, vector, bias, scale, dropout, seed):
    """What the plan takes; the operands live as long as the result."""
    return {
        "operands": (operand(q), operand(k), operand(v)),
        "vector": _numbers(vector),
        "bias": _numbers(bias),
        "dropout": (dropout, seed) if dropout else None,
        "scale": scale,
    }


def _forward(rowptr, col, q, k, v, vector, bias, scale, negative_slope, dropout, seed):
    pattern = pattern_of(rowptr, col, k.shape[0])
    kind = heads, features, values, *_ = _check(pattern, q, k, v, vector, bias, negative_slope)
    out = v.new_empty((*q.shape[:-1], values))
    states = torch.empty((heads, pattern.rows, 2), dtype=torch.float32, device=q.device)
    with on_device(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0 or features == 0:
            pattern.checked(stream)
            if features == 0 and out.numel():
                raise errors.ShapeError("Q and K have no features")
            return out, states
        learned = any(of is not None and of.requires_grad for of in (q, k, v, vector, bias))
        plan = pattern.attention(stream, kind, learned)
        q, k, v = _flat(q), _flat(k), _flat(v)
        vector, bias = (None if of is None else of.contiguous() for of in (vector, bias))
        given = _given(q, k, v, vector, bias, scale, dropout, seed)
        plan.forward(stream, given, operand(_flat(out)), _numbers(states))
    return out, states


def _backward(rowptr, col, q, k, v, vector, bias, out, states, gradient, scale, negative_slope, dropout, seed):
    pattern = pattern_of(rowptr, col, k.shape[0])
    kind = _check(pattern, q, k, v, vector, bias, negative_slope)
    # Of additive scores all are of f32, as Q and K are.
    found = [torch.empty(of.shape, dtype=q.dtype, device=of.device) for of in (q, k, v)]
    of_vector, of_bias = (
        q.new_empty(0) if of is None else torch.zeros_like(of, memory_format=torch.contiguous_format)
        for of in (vector, bias)
    )
    with on_device(pattern.device):
        stream = stream_of(pattern.device)
        if out.numel() == 0 or pattern.nnz == 0:
            return (*(tensor.zero_().to(of.dtype) for tensor, of in zip(found, (q, k, v))), of_vector, of_bias)
        plan = pattern.attention(stream, kind, True)
        q, k, v = _flat(q), _flat(k), _flat(v)
        vector, bias = (None if of is None else of.contiguous() for of in (vector, bias))
        read = _flat(out), _flat(gradient.to(v.dtype))
        of_v = v.dtype
        states = states.contiguous()
        plan.backward(
            stream,
            _given(q, k, v, vector, bias, scale, dropout, seed),
            _numbers(states),
            [operand(matrix) for matrix in read],
            [operand(_flat(matrix)) for matrix in found],
            [None if given is None else _numbers(of) for given, of in ((vector, of_vector), (bias, of_bias))],
        )
        found[2] = found[2].to(of_v)
    return (*found, of_vector, of_bias)


def _setup(ctx, inputs, output):
    *given, ctx.scale, ctx.negative_slope, ctx.dropout, ctx.seed = inputs
    out, states = output
    ctx.mark_non_differentiable(states)
    ctx.save_for_backward(*given, out, states)


def _gradients(ctx, gradient, _):
    needs = ctx.needs_input_grad
    options = ctx.scale, ctx.negative_slope, ctx.dropout, ctx.seed
    found = attention_backward_op(*ctx.saved_tensors, gradient, *options)
    found = [of if wanted else None for of, wanted in zip(found, needs[2:7])]
    return None, None, *found, None, None, None, None


def _no_more(ctx, *_):
    raise NotImplementedError("windrow.torch.graph_attention has no second derivatives")


def _operator(name, cast):
    """An operator of attention; autocast converts the operands `cast`."""
    op = Operator(
        f"{name}(Tensor rowptr, Tensor col, Tensor q, Tensor k, Tensor v, Tensor? vector, Tensor? bias, "
        "float scale, float? negative_slope, float dropout, SymInt seed) -> (Tensor, Tensor)",
        _forward,
        lambda rowptr, col, q, k, v, *_: (
            v.new_empty((*q.shape[:-1], v.shape[-1])),
            q.new_empty((q.shape[1] if q.dim() == 3 else 1, q.shape[0], 2), dtype=torch.float32),
        ),
        _setup,
        _gradients,
        (2, 3, 4, 5, 6),
    )
    register_autocast(op, cast)
    return op


attention_op = _operator("attention", {2, 3, 4})
additive_attention_op = _operator("additive_attention", {4})
gatv2_attention_op = _operator("gatv2_attention", {2, 3, 4})
attention_backward_op = Operator(
    "attention_backward(Tensor rowptr, Tensor col, Tensor q, Tensor k, Tensor v, Tensor? vector, Tensor? bias, "
    "Tensor out, Tensor states, Tensor gradient, float scale, float? negative_slope, float dropout, SymInt seed) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _backward,
    lambda rowptr, col, q, k, v, vector, bias, *_: (
        *(of.new_empty(of.shape) for of in (q, k, v)),
        *(q.new_empty(0) if of is None else of.new_empty(of.shape) for of in (vector, bias)),
    ),
    lambda ctx, inputs, output: None,
    _no_more,
    (2, 3, 4, 5, 6, 7, 9),
)
