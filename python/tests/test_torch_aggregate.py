"""Maxima, minima, means and sums of messages, and their gradients, against PyTorch's scatter_reduce."""

import pytest
from torch_support import DEVICES, ON_CUDA, agree, capture, on_a_side_stream, randn, random_csr, torch

import windrow.torch as wt
from windrow import errors

pytestmark = pytest.mark.usefixtures("empty_cache")


def scattered(rowptr, col, value, x, reduce, message):
    """The same by an array of all messages, in f64."""
    rows = torch.repeat_interleave(torch.arange(rowptr.numel() - 1, device=x.device), rowptr.long().diff())
    made = x.double()[col.long()]
    if value is not None:
        value = value.double()[:, None]
        made = made * value if message == "mul" else made + value
    out = torch.zeros(rowptr.numel() - 1, x.shape[1], dtype=torch.float64, device=x.device)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    return out.scatter_reduce(0, rows[:, None].expand_as(made), made, name, include_self=False)


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("message", ["copy", "mul", "add"])
@pytest.mark.parametrize("features", [8, 33])
def test_reductions_are_those_of_all_messages(device, dtype, reduce, message, features):
    rowptr, col, value, _ = random_csr(40, 30, 0.2, device)
    # Without ties, of which PyTorch divides the gradient and windrow gives it to the first; nor is one of them 0, which
    # PyTorch takes for what was there before.
    generator = torch.Generator().manual_seed(1)
    x = torch.stack([torch.randperm(30, generator=generator) for _ in range(features)], 1).to(device, dtype) / 4 - 3.125
    value = None if message == "copy" else value
    ours = [of if of is None else of.clone().requires_grad_() for of in (value, x)]
    theirs = [of if of is None else of.detach().double().requires_grad_() for of in ours]
    a = (rowptr, col) if value is None else (rowptr, col, ours[0])
    out = wt.spmm(a, ours[1], reduce, message)
    expected = scattered(rowptr, col, theirs[0], theirs[1], reduce, message)
    assert out.dtype == dtype
    agree(out, expected, dtype)
    gradient = randn(40, features, device=device, dtype=dtype, seed=7)
    out.backward(gradient)
    expected.backward(gradient.double())
    for one, other in zip(ours, theirs):
        if one is not None:
            agree(one.grad, other.grad, dtype, scale=4)


@DEVICES
def test_the_first_of_equals_has_the_gradient(device):
    rowptr = torch.tensor([0, 3], device=device)
    col = torch.tensor([0, 1, 2], device=device)
    x = torch.tensor([[1.0, 2.0], [1.0, 3.0], [0.0, 3.0]], device=device, requires_grad=True)
    wt.spmm((rowptr, col), x, "max").backward(torch.ones(1, 2, device=device))
    assert x.grad.tolist() == [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]


@DEVICES
def test_heads_are_columns_or_have_their_own_values(device):
    rowptr, col, value, _ = random_csr(20, 15, 0.3, device)
    x = randn(15, 3, 5, device=device)
    together = wt.spmm((rowptr, col), x, "max")
    values = torch.stack([value, value * 2, -value])
    weighted = wt.spmm((rowptr, col, values), x, "min")
    for head in range(3):
        assert torch.equal(together[:, head], wt.spmm((rowptr, col), x[:, head], "max"))
        assert torch.equal(weighted[:, head], wt.spmm((rowptr, col, values[head]), x[:, head], "min"))


@DEVICES
def test_rows_without_entries_give_zeros_and_what_is_no_number_wins(device):
    rowptr = torch.tensor([0, 0, 2], device=device)
    col = torch.tensor([0, 1], device=device)
    x = torch.tensor([[-1.0, float("nan")], [-2.0, 5.0]], device=device)
    out = wt.spmm((rowptr, col), x, "max")
    assert out[0].tolist() == [0.0, 0.0] and out[1, 0] == -1.0 and out[1, 1].isnan()
    none = wt.spmm((rowptr[:1], col[:0]), x, "min")
    assert none.shape == (0, 2)


@DEVICES
def test_what_cannot_be_reduced_is_refused(device):
    rowptr, col, value, _ = random_csr(20, 15, 0.3, device)
    x = randn(15, 4, device=device)
    with pytest.raises(errors.OptionError, match="median.*sum, mean, max, min"):
        wt.spmm((rowptr, col), x, "median")
    with pytest.raises(errors.OptionError, match="needs values"):
        wt.spmm((rowptr, col), x, "max", "mul")
    with pytest.raises(errors.OptionError, match="no message"):
        wt.spmm((rowptr, col), x, "max", "dot")
    with pytest.raises(errors.DtypeError, match="float64"):
        wt.spmm((rowptr, col), x.double(), "max")
    with pytest.raises(errors.ShapeError, match="value has shape"):
        wt.spmm((rowptr, col, value[1:]), x, "max")


@DEVICES
def test_reductions_are_operators_of_pytorch(device):
    rowptr, col, value, _ = random_csr(12, 12, 0.3, device)
    x, value = randn(12, 8, device=device).requires_grad_(), value.requires_grad_()
    torch.library.opcheck(torch.ops.windrow.aggregate.default, (rowptr, col, value, x, "max", "mul", True))
    # Winners are for gradients: without one there are none.
    out, winners = torch.ops.windrow.aggregate(rowptr, col, value.detach(), x.detach(), "max", "mul", False)
    assert winners.numel() == 0
    assert torch.equal(out, wt.spmm((rowptr, col, value), x, "max"))
    call = lambda x: wt.spmm((rowptr, col), x * 2, "max")  # noqa: E731
    found = torch.compile(call, fullgraph=True, backend="aot_eager")(x)
    assert torch.equal(found, call(x))


@ON_CUDA
def test_reductions_in_a_cuda_graph(device):
    rowptr, col, _, _ = random_csr(40, 30, 0.2, device)
    x = randn(30, 16, device=device).requires_grad_()

    def step():
        x.grad = None
        out = wt.spmm((rowptr, col), x, "max")
        out.square().sum().backward()
        return out

    on_a_side_stream(step, 3)
    graph, out = capture(step)
    with torch.no_grad():
        x.copy_(randn(30, 16, device=device, seed=9))
    graph.replay()
    torch.cuda.synchronize()
    captured = out.detach().clone(), x.grad.clone()
    expected = step()
    assert torch.equal(captured[0], expected.detach()) and torch.equal(captured[1], x.grad)
