#!/usr/bin/env python3
"""A block of a transformer, attention and a perceptron, with its six weights pruned to N:M, beside the dense one.

    python python/examples/pruned_block.py [--device cuda] [--width 1024] [--tokens 1024] [--pattern 2 8 32]

What pruning does to the outputs, how many bytes the weights take, and how long a forward pass does, both ways. Weights
here are random, which is the worst there is to prune: a trained network has many small ones, and is trained on after
pruning. On a CPU a dense product has the better library, and may well be quicker.
"""

import argparse
import time

import torch
import windrow
import windrow.torch as wt
from torch import nn


class Block(nn.Module):
    """`x + attention(norm(x))`, then `x + perceptron(norm(x))`."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        y = self.norms[0](x)
        parts = [layer(y).view(batch, tokens, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)]
        mixed = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(nn.functional.gelu(self.up(self.norms[1](x))))


LINEAR = ["query", "key", "value", "out", "up", "down"]


def with_layers(block, change):
    """A block that shares all but its linear layers, which are changed."""
    made = Block.__new__(Block)
    nn.Module.__init__(made)
    made.heads, made.norms = block.heads, block.norms
    for name in LINEAR:
        setattr(made, name, change(getattr(block, name)))
    return made


def dense_again(layer):
    """The pruned weights with their zeros, for a dense product."""
    made = nn.Linear(layer.in_features, layer.out_features)
    made.load_state_dict(layer.state_dict())
    return made.to(layer.weight.device, layer.weight.dtype)


def seconds(run, runs=7):
    """The least of a few, after two that are not counted: what else the machine does only adds to it."""
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    times = []
    for _ in range(runs + 2):
        wait()
        started = time.perf_counter()
        run()
        wait()
        times.append(time.perf_counter() - started)
    return min(times[2:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--pattern", type=int, nargs=3, default=(2, 8, 32), metavar=("N", "M", "L"))
    options = parser.parse_args()
    pattern = tuple(options.pattern)

    torch.manual_seed(1)
    block = Block(options.width, options.heads).to(options.device).eval()
    x = torch.randn(1, options.tokens, options.width, device=options.device)
    pruned = with_layers(block, lambda layer: wt.nn.NmLinear.from_linear(layer, pattern))
    reference = with_layers(pruned, dense_again)

    with torch.no_grad():
        y, of_pruned, of_reference = block(x), pruned(x), reference(x)
        wrong = float((of_pruned - of_reference).abs().max())
        changed = float((of_pruned - y).norm() / y.norm())
        times = {"dense": seconds(lambda: block(x)), "pruned": seconds(lambda: pruned(x))}

    weights = [getattr(block, name).weight.detach().cpu().numpy() for name in LINEAR]
    packed = [windrow.NmWeights.prune(weight.T, pattern) for weight in weights]
    dense_bytes = sum(weight.nbytes for weight in weights)
    kept_bytes = sum(of.values.nbytes + of.indices.nbytes for of in packed)

    kept, of, columns = pattern
    print(f"{options.tokens} tokens of {options.width}, {kept}:{of} in vectors of {columns}, f32, on {options.device}")
    print(f"against the same weights in dense products: {wrong:.1e} at most")
    print(f"against the weights before pruning: {100 * changed:.0f} % of the output is another")
    print(f"weights: {dense_bytes} bytes dense, {kept_bytes} kept, {kept_bytes / dense_bytes:.2f} of them")
    print(f"a forward pass: {1e3 * times['dense']:.2f} ms dense, {1e3 * times['pruned']:.2f} ms pruned")
    gain = times["dense"] / times["pruned"]
    print(f"pruned is {gain:.2f} times as quick" if gain > 1 else f"pruned is {1 / gain:.2f} times slower: dense wins here")
    assert wrong < 1e-4 * max(1.0, float(of_reference.abs().max()))
    assert kept_bytes < dense_bytes * (kept / of) * 1.5


if __name__ == "__main__":
    main()
