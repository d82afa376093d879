"""Operators of torch.library, and the shorter way to their kernels."""

import torch

library = torch.library.Library("windrow", "DEF")


class Operator:
    """An operator of torch.library, and the shorter way to its kernel.

    The dispatcher calls `from_compiled`, if that is given, instead of `kernel`: code that torch.compile makes calls
    that way, and may write what it computes between operators where something else was, which no version tells.
    """

    def __init__(self, schema, kernel, fake, setup, backward, differentiable, from_compiled=None):
        self.name = schema[: schema.index("(")]
        self.kernel, self.differentiable = kernel, differentiable
        library.define(schema, tags=_TAGS)
        for key in ("CPU", "CUDA"):
            library.impl(self.name, from_compiled or kernel, key)
        full = f"windrow::{self.name}"
        torch.library.register_fake(full, fake, lib=library)
        torch.library.register_autograd(full, backward, setup_context=setup, lib=library)
        self.op = getattr(torch.ops.windrow, self.name).default

        def forward(ctx, *inputs):
            out = kernel(*inputs)
            setup(ctx, inputs, out)
            return out

        members = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        function = type(self.name, (torch.autograd.Function,), members)
        # Function.apply looks for transforms of functorch, of which there are none here, and calls this.
        self.apply = super(torch.autograd.Function, function).apply

    def __call__(self, *inputs):
        if torch.compiler.is_compiling() or not _is_plain(inputs):
            return self.op(*inputs)
        if _is_grad_enabled():
            for at in self.differentiable:
                if inputs[at] is not None and inputs[at].requires_grad:
                    return self.apply(*inputs)
        return self.kernel(*inputs)


def _is_plain(inputs):
    """Whether nothing but autograd would see an operator's call."""
    if _dispatch_modes() or _function_modes() or _transforms() or _tracing():
        return False
    if _PLAIN.issuperset(map(type, inputs)):
        return True
    return all(type(given) in _PLAIN or not isinstance(given, torch.Tensor) for given in inputs)


_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_transforms, _tracing = torch._C._are_functorch_transforms_active, torch._C._is_tracing
_is_grad_enabled = torch.is_grad_enabled
_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter, type(None), int, float, bool, str, torch.dtype))
# Plans are looked up by tensors and made when they are missing, neither of which a graph of PyTorch's own making can.
_TAGS = tuple(
    tag for tag in (torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "cudagraph_unsafe", None)) if tag is not None
)
