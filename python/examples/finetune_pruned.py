#!/usr/bin/env python3
"""A gated perceptron, as in Llama, pruned to N:M and fine-tuned: the weights that are kept learn to do what the dense
ones did.

    python python/examples/finetune_pruned.py [--device cuda --dtype bf16 --width 4096 --hidden 11008 --rows 2048]

The loss is the mean square of what its outputs are off by, on inputs that are new in each step and, as activations
often do, lie in a space of fewer dimensions (a quarter). Weights are f32, products of the type that is asked for, by
autocast. Before that, gradients are compared with finite differences of a dense model in f64 with the same zeros, along
a random direction for each of the three layers. After it, a step, forward and backward, is timed beside one of the
dense layers. Both gradients are dense products of PyTorch, so pruning makes the forward pass quicker at most.
"""

import argparse
import time

import torch
import windrow.torch as wt
from torch import nn
from torch.nn import functional as F

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class Perceptron(nn.Module):
    """`down(silu(gate(x)) * up(x))`."""

    def __init__(self, up, gate, down):
        super().__init__()
        self.up, self.gate, self.down = up, gate, down

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


def differences(network, loss_of, x, target):
    """How far the slope by the gradient is from that by central differences in f64, for each layer."""
    loss_of(network, x, target).backward()
    weights = {name: layer.weight for name, layer in network.named_children()}
    wide = {name: weight.detach().double() for name, weight in weights.items()}

    def loss(given):
        hidden = F.silu(F.linear(x.double(), given["gate"])) * F.linear(x.double(), given["up"])
        return F.mse_loss(F.linear(hidden, given["down"]), target.double()).item()

    for name, weight in weights.items():
        # Half of it at random, half along the gradient: at random alone the slope is next to nothing.
        direction = torch.where(weight != 0, torch.randn_like(wide[name]), 0)
        direction += weight.grad.double() * (direction.norm() / weight.grad.double().norm())
        step = 1e-4 * wide[name].norm() / direction.norm()
        sides = [loss({**wide, name: wide[name] + sign * step * direction}) for sign in (1, -1)]
        numeric = (sides[0] - sides[1]) / (2 * step)
        exact = (weight.grad.double() * direction).sum()
        yield name, float(exact / numeric - 1)
    network.zero_grad()


def seconds(step, device, runs=7):
    """The least of a few, after two that are not counted."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = []
    for _ in range(runs + 2):
        wait()
        started = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - started)
    return min(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="f32", choices=DTYPES)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=176)
    parser.add_argument("--rows", type=int, default=128, help="inputs in a step")
    parser.add_argument("--pattern", type=int, nargs=3, default=(2, 4, 1), metavar=("N", "M", "L"))
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    device, dtype = options.device, DTYPES[options.dtype]
    torch.manual_seed(1)

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False, device=device)

    def loss_of(network, x, target):
        with torch.autocast(device, dtype, enabled=dtype != torch.float32):
            y = network(x)
        return F.mse_loss(y.float(), target)

    width, hidden = options.width, options.hidden
    dense = Perceptron(linear(width, hidden), linear(width, hidden), linear(hidden, width))
    # Outputs of the size of their inputs.
    dense.down.weight.data *= 3 * hidden**0.5
    layers = [wt.nn.NmLinear.from_linear(layer, options.pattern, learn=True) for layer in dense.children()]
    pruned = Perceptron(*layers)

    basis = torch.randn(width // 4, width, device=device) * (4 / width) ** 0.5

    def batch():
        x = torch.randn(options.rows, width // 4, device=device) @ basis
        with torch.no_grad():
            return x, dense(x)

    kept, of, columns = options.pattern
    print(f"{options.rows} x {width} x {hidden}, {kept}:{of} in vectors of {columns}, {options.dtype}, on {device}")
    worst = 0.0
    for name, off in differences(pruned, loss_of, *batch()):
        print(f"gradient of {name}: off by {off:+.1e} of the slope by differences in f64")
        worst = max(worst, abs(off))

    zeros = [layer.weight == 0 for layer in layers]
    optimizer = torch.optim.Adam(pruned.parameters(), lr=4e-2 / width**0.5)
    losses = []
    for _ in range(options.steps):
        loss = loss_of(pruned, *batch())
        losses.append(loss.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses = torch.stack(losses).cpu()
    tenth = max(1, options.steps // 10)
    first, last = float(losses[0]), float(losses[-tenth:].mean())
    print(f"loss: {first:.4f} as pruned, {last:.4f} after {options.steps} steps, {last / first:.2f} of it")

    x, target = batch()

    def step(network):
        network.zero_grad()
        loss_of(network, x, target).backward()

    times = {name: 1e3 * seconds(lambda: step(net), device) for name, net in (("dense", dense), ("pruned", pruned))}
    print(f"forward and backward: {times['dense']:.2f} ms dense, {times['pruned']:.2f} ms pruned")

    assert worst < {"f32": 1e-4, "f16": 1e-2, "bf16": 5e-2}[options.dtype]
    assert last < 0.7 * first
    assert all(not layer.weight[zero].any() for layer, zero in zip(layers, zeros, strict=True))


if __name__ == "__main__":
    main()
