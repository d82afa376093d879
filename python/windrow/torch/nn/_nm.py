"""Linear layers with N:M weights."""

from collections.abc import Sequence

import torch
from torch import nn

from windrow import errors
from windrow._windrow import raw
from windrow.torch._device import NAMES, device_of, on_device, operand, rows_of, same_device, stream_of
from windrow.torch._kept import ByTensor
from windrow.torch._operator import Operator
from windrow.torch._ops import dense

_nm_plans = ByTensor()


def _weights_of(weight, pattern):
    """The weights as (inputs, outputs), and what is kept of them, dense and packed."""
    dense = weight.detach().float().cpu().t().contiguous()
    packed = raw.NmWeights(dense.data_ptr(), tuple(dense.shape), pattern)
    kept = torch.empty_like(dense)
    packed.write(kept.data_ptr())
    return dense, kept, packed


def _nm_plan(weight, pattern, dtype):
    def make():
        dense, kept, packed = _weights_of(weight, pattern)
        if not torch.equal(kept, dense):
            most, of, columns = pattern
            raise errors.FormatError(
                f"more than {most} of {of} weights are not zero somewhere, in vectors of {columns}; "
                "make them so with NmLinear.from_linear"
            )
        return raw.NmSpmm(device_of(weight.device), packed, NAMES[dtype])

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
    ctx.save_for_backward(inputs[1])
    ctx.of_bias = None if inputs[2] is None else inputs[2].dtype


def _nm_backward(ctx, dy):
    (weight,) = ctx.saved_tensors
    dx = dy @ weight.to(dy.dtype) if ctx.needs_input_grad[0] else None
    dbias = dy.sum(0, dtype=ctx.of_bias) if ctx.of_bias is not None and ctx.needs_input_grad[2] else None
    return dx, None, dbias, None, None, None


_nm_linear_op = Operator(
    "nm_linear(Tensor x, Tensor weight, Tensor? bias, int n, int m, int l) -> Tensor",
    _nm_linear,
    lambda x, weight, bias, n, m, l: x.new_empty((x.shape[0], weight.shape[0])),  # noqa: E741
    _nm_setup,
    _nm_backward,
    (0, 2),
)


class NmLinear(nn.Module):
    """A linear layer whose weights are pruned: of `M` inputs `N` are kept, for `L` outputs at a time.

    Made from an `nn.Linear` by `from_linear`. The weights are a buffer and do not learn; inputs and the bias get
    gradients, that of the inputs by a dense product. The state dict is that of the `nn.Linear`, with zeros in it.
    Inputs are f32, f16 or bf16.
    """

    def __init__(self, in_features: int, out_features: int, pattern: Sequence[int], bias: bool = True) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.pattern = tuple(int(number) for number in pattern)
        if len(self.pattern) != 3:
            raise errors.OptionError(f"the pattern {pattern} must be three numbers, (N, M, L)")
        self.register_buffer("weight", torch.zeros(out_features, in_features))
        self.bias = nn.Parameter(torch.zeros(out_features)) if bias else None

    @classmethod
    def from_linear(cls, linear: nn.Linear, pattern: Sequence[int]) -> "NmLinear":
        """The layer with the largest weights of an `nn.Linear`; `pattern` is `(N, M, L)`, for example (2, 8, 32)."""
        made = cls(linear.in_features, linear.out_features, pattern, bias=linear.bias is not None)
        _, kept, _ = _weights_of(linear.weight, made.pattern)
        made.weight = kept.t().contiguous().to(linear.weight.device, linear.weight.dtype)
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
