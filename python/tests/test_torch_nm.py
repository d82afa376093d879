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


@DEVICES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("pattern", [(2, 8, 16), (2, 4, 1), (1, 4, 20)], ids=str)
def test_gradients_of_weights_that_learn(device, dtype, pattern):
    """Those of a dense layer with the same zeros, in f64, at what is kept; nothing elsewhere."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 48).to(device, dtype)
    pruned = wt.nn.NmLinear.from_linear(linear, pattern, learn=True)
    assert isinstance(pruned.weight, torch.nn.Parameter) and len(list(pruned.parameters())) == 2
    x, dy = randn(5, 7, 64, device=device, dtype=dtype).requires_grad_(), randn(5, 7, 48, device=device, seed=2)
    out = pruned(x)
    wide, weight = x.detach().double().requires_grad_(), pruned.weight.detach().double().requires_grad_()
    expected = torch.nn.functional.linear(wide, weight, linear.bias.detach().double())
    agree(out, expected.detach(), scale=2)
    out.backward(dy.to(dtype))
    expected.backward(dy.to(dtype).double())
    agree(x.grad, wide.grad, scale=4)
    kept = pruned.weight != 0
    assert not pruned.weight.grad[~kept].any()
    agree(pruned.weight.grad[kept], weight.grad[kept], scale=4)
    agree(pruned.bias.grad, dy.to(dtype).double().sum((0, 1)), dtype, scale=4)


@DEVICES
@pytest.mark.parametrize("mode", ["plain", "compiled"])
def test_pruned_layers_learn(device, mode):
    """Steps of Adam are those of a dense network whose dropped weights are held at zero."""
    torch.manual_seed(0)
    teacher = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.SiLU(), torch.nn.Linear(48, 16)).to(device)
    student = torch.nn.Sequential(torch.nn.Linear(32, 48), torch.nn.SiLU(), torch.nn.Linear(48, 16)).to(device)
    layers = [wt.nn.NmLinear.from_linear(student[i], (2, 4, 8), learn=True) for i in (0, 2)]
    pruned = torch.nn.Sequential(layers[0], torch.nn.SiLU(), layers[1])
    for layer, dense in zip(layers, (student[0], student[2]), strict=True):
        dense.load_state_dict(layer.state_dict())
    kept = [layer.weight != 0 for layer in layers]
    x = randn(256, 32, device=device)
    target = teacher(x).detach()

    def train(network, steps, hold=False):
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-2, weight_decay=1e-4)
        losses = []
        for _ in range(steps):
            loss = torch.nn.functional.mse_loss(network(x), target)
            losses.append(loss.item())
            optimizer.zero_grad()
            loss.backward()
            for dense, mask in zip((student[0], student[2]), kept, strict=True) if hold else ():
                dense.weight.grad.mul_(mask)
            optimizer.step()
        return losses

    network = torch.compile(pruned, backend="aot_eager") if mode == "compiled" else pruned
    steps = 100 if mode == "plain" else 5
    found, expected = train(network, steps), train(student, steps, hold=True)
    torch.testing.assert_close(torch.tensor(found), torch.tensor(expected), rtol=1e-3, atol=1e-5)
    assert found[-1] < (0.2 if mode == "plain" else 1) * found[0]
    for layer, mask in zip(layers, kept, strict=True):
        assert not layer.weight[~mask].any() and layer.weight[mask].all()


@DEVICES
def test_weights_that_learn_may_be_others(device):
    torch.manual_seed(0)
    first, second = (torch.nn.Linear(64, 48).to(device) for _ in range(2))
    learns = wt.nn.NmLinear.from_linear(first, (2, 8, 16), learn=True)
    other = wt.nn.NmLinear.from_linear(second, (2, 8, 16))
    x = randn(3, 64, device=device)
    before = learns(x)
    with torch.no_grad():
        learns.weight.mul_(2)
    torch.testing.assert_close(learns(x) - learns.bias, 2 * (before - learns.bias))
    learns.load_state_dict(other.state_dict())  # in other places
    torch.testing.assert_close(learns(x), other(x))
    learns(x).sum().backward()
    assert torch.equal(learns.weight.grad != 0, learns.weight != 0)
    for dtype in (torch.float16, torch.float32):
        torch.testing.assert_close(learns(x.to(dtype)), other(x.to(dtype)))
    copied = copy.deepcopy(learns)
    learns.weight.requires_grad_(False)
    torch.testing.assert_close(learns(x), copied(x))
    with torch.no_grad():
        copied.weight.add_(1)
    with pytest.raises(errors.FormatError, match="more than 2 of 8"):
        copied(x)
