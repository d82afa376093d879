"""Pruned linear layers."""

import copy
import io
import pickle

import pytest
from torch_support import DEVICES, agree, randn, torch

import windrow.torch as wt
from windrow import errors


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_pruned_layers(device, dtype, bias):
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48, bias=bias).to(device, dtype)
    pruned = wt.nn.NmLinear.from_linear(linear, (2, 8, 16))
    kept = pruned.weight != 0
    assert kept.float().mean().item() == pytest.approx(0.25)
    assert torch.equal(pruned.weight[kept], linear.weight[kept])
    x = randn(5, 7, 64, device=device, dtype=dtype).requires_grad_()
    out = pruned(x)
    wide = x.detach().double().requires_grad_()
    of_bias = linear.bias.detach().double() if bias else None
    expected = torch.nn.functional.linear(wide, pruned.weight.double(), of_bias)
    agree(out, expected.detach(), scale=2)
    out.sum().backward()
    expected.sum().backward()
    agree(x.grad, wide.grad, scale=4)
    if bias:
        agree(pruned.bias.grad, torch.full((48,), 35.0, device=device), dtype)


@DEVICES
def test_pruned_layers_are_saved_and_loaded(device):
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48).to(device)
    pruned, x = wt.nn.NmLinear.from_linear(linear, (2, 8, 16)), randn(3, 64, device=device)
    expected = pruned(x)
    linear.load_state_dict(pruned.state_dict())
    torch.testing.assert_close(linear(x), expected, rtol=1e-5, atol=1e-5)
    other = wt.nn.NmLinear(64, 48, (2, 8, 16)).to(device)
    assert not other(x).any()
    other.load_state_dict(linear.state_dict())
    torch.testing.assert_close(other(x), expected)
    file = io.BytesIO()
    torch.save(pruned, file)
    file.seek(0)
    for copied in (copy.deepcopy(pruned), pickle.loads(pickle.dumps(pruned)), torch.load(file, weights_only=False)):
        torch.testing.assert_close(copied(x), expected)
    compiled = torch.compile(pruned, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    with torch.no_grad():
        other.weight.add_(1)
    with pytest.raises(errors.FormatError, match="more than 2 of 8"):
        other(x)


def test_what_pruned_layers_refuse():
    linear = torch.nn.Linear(64, 48)
    with pytest.raises(errors.OptionError):
        wt.nn.NmLinear.from_linear(linear, (9, 8, 16))
    with pytest.raises(errors.OptionError, match="three numbers"):
        wt.nn.NmLinear.from_linear(linear, (2, 8))
    pruned = wt.nn.NmLinear.from_linear(linear, (2, 8, 16))
    with pytest.raises(errors.ShapeError, match="64 columns"):
        pruned(torch.ones(3, 63))
    with pytest.raises(errors.DtypeError, match="f16"):
        pruned(torch.ones(3, 64, dtype=torch.float64))


@DEVICES
def test_pruned_layers_take_any_strides(device):
    torch.manual_seed(0)
    pruned = wt.nn.NmLinear.from_linear(torch.nn.Linear(64, 48).to(device), (2, 8, 16))
    x = randn(33, 64, device=device)
    expected = pruned(x)
    wide = torch.cat([x, x], 1)
    for other in (x.t().contiguous().t(), wide[:, 64:], torch.stack([x, -x], 2)[..., 0]):
        assert not other.is_contiguous()
        for _ in range(3):
            torch.testing.assert_close(pruned(other), expected)
