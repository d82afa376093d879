"""Linear layers with N:M weights."""

import threading
from collections.abc import Sequence

import torch
from torch import nn

from windrow import errors
from windrow._windrow import raw
from windrow.torch._device import (
    NAMES,
    capturing,
    device_of,
    on_device,
    operand,
    rows_of,
    same_device,
    stream_of,
    version_of,
)
from windrow.torch._kept import ByTensor
from windrow.torch._operator import Operator
from windrow.torch._ops import dense

_nm_plans, _nm_places = ByTensor(), ByTensor()


def _weights_of(weight, pattern):
    """The weights as (inputs, outputs), and what is kept of them, dense and packed."""
    dense = weight.detach().float().cpu().t().contiguous()
    packed = raw.NmWeights(dense.data_ptr(), tuple(dense.shape), pattern)
    kept = torch.empty_like(dense)
    packed.write(kept.data_ptr())
    return dense, kept, packed


def _pruned(weight, pattern):
    """The weights packed, of which no more is other than zero than the pattern keeps."""
    dense, kept, packed = _weights_of(weight, pattern)
    if not torch.equal(kept, dense):
        most, of, columns = pattern
        raise errors.FormatError(
            f"more than {most} of {of} weights are not zero somewhere, in vectors of {columns}; "
            "make them so with NmLinear.from_linear"
        )
    return packed


class _Places:
    """Where the weights that are kept lie, of a layer that learns: found when it first runs, the same ever since."""

    def __init__(self, weight, pattern):
        packed = _pruned(weight, pattern)
        (outputs, inputs), (*_, columns) = weight.shape, pattern
        rows, vectors = packed.kept
        columns = min(columns, outputs)
        of_vectors = torch.empty(rows, vectors, dtype=torch.int64)
        if of_vectors.numel():
            of_vectors = torch.frombuffer(bytearray(packed.rows()), dtype=torch.int64).view(rows, vectors)
        # (vectors, 1, rows): for all columns of a vector the same.
        self.rows = of_vectors.t().contiguous().unsqueeze(1).to(weight.device)
        self.columns, self.missing = columns, vectors * columns - outputs
        mask = torch.zeros(vectors, inputs, dtype=torch.bool, device=weight.device)
        mask.scatter_(1, self.rows[:, 0], True)
        self.mask = mask.repeat_interleave(columns, 0)[:outputs].contiguous()
        self.packed, self.plans, self.lock = packed, {}, threading.Lock()
        self.checked = version_of(weight)

    def tensors(self):
        return self.rows, self.mask

    def are_of(self, weight):
        """Whether all other weights are zeros still. Waits for the device where the weights have been written."""
        if self.checked != version_of(weight):
            if bool(((weight != 0) & ~self.mask).any()):
                return False
            self.checked = version_of(weight)
        return True

    def values(self, weight):
        """The kept weights as a plan takes them, row by row."""
        weight = torch.nn.functional.pad(weight.detach(), (0, 0, 0, self.missing))
        vectors, _, rows = self.rows.shape
        by_vector = weight.reshape(vectors, self.columns, -1).gather(2, self.rows.expand(-1, self.columns, -1))
        kept = by_vector.permute(2, 0, 1).reshape(rows, vectors * self.columns)
        return kept[:, : self.mask.shape[0]].contiguous()

    def plan(self, weight, dtype):
        """The plan for inputs of this type, with the weights as they are now."""
        version, device, stream = version_of(weight), device_of(weight.device), stream_of(weight.device)
        with self.lock:
            plan, of_version = self.plans.get(dtype, (None, None))
            if of_version != version:
                values = self.values(weight)  # lives until they are asked for
                if plan is None:
                    plan = raw.NmSpmm.of_values(device, stream, self.packed, operand(values), NAMES[dtype])
                else:
                    plan.replace_values(stream, operand(values))
                self.plans[dtype] = plan, version
        return plan


def _places(weight, pattern):
    """The places of the kept weights of a layer that learns."""

    def make():
        return _Places(weight, pattern)

    found = _nm_places.get(weight, pattern, make, as_is=False)
    if not found.are_of(weight):
        _nm_places.forget(found)
        found = _nm_places.get(weight, pattern, make, as_is=False)
    return found


def _nm_plan(weight, pattern, dtype):
    if weight.requires_grad:
        if capturing(weight.device):
            raise errors.OptionError(
                "a graph would multiply by the weights of now whenever it runs; weights that learn cannot be captured: "
                "call weight.requires_grad_(False) where they are not to change"
            )
        if version_of(weight) is not None:
            return _places(weight, pattern).plan(weight, dtype)

    def make():
        return raw.NmSpmm(device_of(weight.device), _pruned(weight, pattern), NAMES[dtype])

    return _nm_plans.get(weight, (pattern, dtype), make)


def _nm_linear(x, weight, bias, n, m, l):  # noqa: E741
    if x.dim() != 2 or x.shape[1] != weight.shape[1]:
        raise errors.ShapeError(f"the input has shape {tuple(x.shape)} but must have {weight.shape[1]} columns")
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise errors.DtypeError(f"the input holds {x.dtype}; N:M products are in f32, f16 and bf16")
    same_device(weight.device, bias=bias, **{"the input": x})
    out = x.new_empty((x.shape[0], weight.shape[0]))
    if out.numel() == 0:
        return out
    with on_device(weight.device):
        stream = stream_of(weight.device)
        plan = _nm_plan(weight, (n, m, l), x.dtype)
        if bias is not None:
            bias = bias.detach().float().contiguous()
        at = None if bias is None else bias.data_ptr()
        x = rows_of("the input", x)  # a copy lives until the product is queued
        plan.run(stream, operand(x), operand(out), at)
    return out


def _nm_setup(ctx, inputs, output):
    x, weight, bias, *ctx.pattern = inputs
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight)
    ctx.of_bias = None if bias is None else bias.dtype


def _nm_backward(ctx, dy):
    x, weight = ctx.saved_tensors
    dx = dy @ weight.to(dy.dtype) if ctx.needs_input_grad[0] else None
    dweight = None
    if ctx.needs_input_grad[1]:
        dweight = torch.where(_nm_mask_op(weight, *ctx.pattern), (dy.t() @ x).to(weight.dtype), 0)
    dbias = dy.sum(0, dtype=ctx.of_bias) if ctx.of_bias is not None and ctx.needs_input_grad[2] else None
    return dx, dweight, dbias, None, None, None


def _nm_mask(weight, n, m, l):  # noqa: E741
    with on_device(weight.device):
        return _places(weight, (n, m, l)).mask.clone()


_nm_mask_op = Operator(
    "nm_mask(Tensor weight, int n, int m, int l) -> Tensor",
    _nm_mask,
    lambda weight, n, m, l: torch.empty_like(weight, dtype=torch.bool),  # noqa: E741
    lambda ctx, inputs, output: None,
    lambda ctx, d: (None, None, None, None),
    (),
)
_nm_linear_op = Operator(
    "nm_linear(Tensor x, Tensor weight, Tensor? bias, int n, int m, int l) -> Tensor",
    _nm_linear,
    lambda x, weight, bias, n, m, l: x.new_empty((x.shape[0], weight.shape[0])),  # noqa: E741
    _nm_setup,
    _nm_backward,
    (0, 1, 2),
)


class NmLinear(nn.Module):
    """A linear layer whose weights are pruned: of `M` inputs `N` are kept, for `L` outputs at a time.

    Made from an `nn.Linear` by `from_linear`. Inputs and the bias get gradients; the weights are a buffer and do not
    learn, unless `learn` makes them a parameter: then those that are kept get gradients, and all others zero, so that
    an optimiser leaves them zero. Both gradients are dense products of PyTorch, of which zeros save nothing. Weights
    that learn are checked after each step, which waits for the device, and brought to the plan there. The state dict is
    that of the `nn.Linear`, with zeros in it. Inputs are f32, f16 or bf16.
    """

    def __init__(
        self, in_features: int, out_features: int, pattern: Sequence[int], bias: bool = True, learn: bool = False
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.pattern = tuple(int(number) for number in pattern)
        if len(self.pattern) != 3:
            raise errors.OptionError(f"the pattern {pattern} must be three numbers, (N, M, L)")
        weight = torch.zeros(out_features, in_features)
        if learn:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    @classmethod
    def from_linear(cls, linear: nn.Linear, pattern: Sequence[int], learn: bool = False) -> "NmLinear":
        """The layer with the largest weights of an `nn.Linear`; `pattern` is `(N, M, L)`, for example (2, 8, 32)."""
        made = cls(linear.in_features, linear.out_features, pattern, linear.bias is not None, learn)
        _, kept, _ = _weights_of(linear.weight, made.pattern)
        weight = kept.t().contiguous().to(linear.weight.device, linear.weight.dtype)
        made.weight = nn.Parameter(weight) if learn else weight
        if linear.bias is not None:
            made.bias = nn.Parameter(linear.bias.detach().clone())
        return made.train(linear.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`X·Wᵀ + bias`, for X of shape (…, in_features)."""
        flat = dense(x).reshape(-1, self.in_features) if x.dim() != 2 else dense(x)
        out = _nm_linear_op(flat, self.weight, self.bias, *self.pattern)
        return out if x.dim() == 2 else out.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        kept, of, columns = self.pattern
        return f"{self.in_features}, {self.out_features}, {kept}:{of} in vectors of {columns}"
