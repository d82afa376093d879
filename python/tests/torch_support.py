"""What the tests of windrow.torch share."""

import contextlib
import warnings

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: windrow.torch is not tested")

warnings.filterwarnings("ignore", message="Sparse (CSR|invariant)")

CUDA = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device for PyTorch")
)
DEVICES = pytest.mark.parametrize("device", ["cpu", CUDA])
ON_CUDA = pytest.mark.parametrize("device", [CUDA])
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
# Of results that are rounded once, and of operands that are.
ERRORS = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def random_csr(rows, cols, density, device="cpu", dtype=torch.float32, index=torch.int64, seed=0):
    """Offsets, columns and values of a random matrix with rows and columns that are empty, and the dense matrix."""
    generator = torch.Generator().manual_seed(seed)
    there = torch.rand(rows, cols, generator=generator) < density
    if rows > 4 and cols > 4:
        there[rows // 2] = False
        there[:, cols // 3] = False
    dense = torch.where(there, torch.randn(rows, cols, generator=generator), 0).to(dtype)
    csr = there.double().to_sparse_csr()
    rowptr, col = csr.crow_indices().to(index), csr.col_indices().to(index)
    value = dense[there]
    return rowptr.to(device), col.to(device), value.to(device), dense.to(device)


def randn(*shape, device="cpu", dtype=torch.float32, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(device, dtype)


def agree(found, expected, dtype=None, scale=1.0):
    """Whether results agree to the error of a type; expected in f64."""
    assert found.shape == expected.shape
    error = ERRORS[dtype or found.dtype] * scale
    expected = expected.double()
    largest = 1 + (expected.abs().max().item() if expected.numel() else 0)
    torch.testing.assert_close(found.double(), expected, rtol=error, atol=error * largest)


def layouts(tensor):
    """Tensors of the same shape and other values that lie in memory in every way, by its name."""
    apart = torch.full_like(tensor, torch.nan).flatten()
    apart[0] = 2  # what follows in memory is not to be read
    return {
        "row by row": tensor,
        "column by column": tensor.transpose(0, -1).contiguous().transpose(0, -1),
        "every other element": torch.stack([tensor, tensor + 1], -1)[..., 0],
        "parts of longer rows": torch.cat([tensor, tensor], -1)[..., : tensor.shape[-1]],
        "one row": tensor[:1].expand_as(tensor),
        "one element": apart[0].expand_as(tensor),
    }


LAYOUTS = tuple(layouts(torch.zeros(1, 1)))


# Streams of a GPU.


def on_a_side_stream(step, times):
    """Makes steps on a stream of their own, as those before a capture are to be."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(times):
            step()
    torch.cuda.current_stream().wait_stream(side)


def capture(step, steps_before=0, stream=None):
    """A graph of what a step asks for, after some steps that are not captured, and what the captured one returns."""
    for _ in range(steps_before):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = step()
    return graph, captured


@contextlib.contextmanager
def waiting_for_nothing(what):
    """Whether what is done inside is asked for while the device is still at work on something else."""
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(2_000_000_000)
    yield
    done.record()
    assert not done.query(), f"{what} waited for the device"
    torch.cuda.synchronize()


# Graphs and layers.

NODES = 40


def edges(device, loops=True, nodes=NODES, seed=0):
    """Edges in no order, none twice, some nodes without any."""
    generator = torch.Generator().manual_seed(seed)
    there = (torch.rand(nodes, nodes, generator=generator) < 0.12).float()
    there[:, 3] = there[5] = 0
    if not loops:
        there.fill_diagonal_(0)
    index = there.nonzero().t()
    return index[:, torch.randperm(index.shape[1], generator=generator)].contiguous().to(device)


def same(ours, theirs, *inputs, atol=1e-5, **kwargs):
    """Outputs and gradients of two layers with the same parameters."""
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    results = []
    for layer in (ours, theirs):
        given = [
            tensor.detach().clone().requires_grad_()
            if torch.is_tensor(tensor) and tensor.is_floating_point()
            else tensor
            for tensor in inputs
        ]
        layer.zero_grad()
        out = layer(*given, **kwargs)
        (out * torch.linspace(-1, 1, out.numel(), device=out.device, dtype=out.dtype).view_as(out)).sum().backward()
        of_inputs = [tensor.grad for tensor in given if torch.is_tensor(tensor) and tensor.is_floating_point()]
        results.append([out, *of_inputs, *(parameter.grad for parameter in layer.parameters())])
    for one, other in zip(*results, strict=True):
        if other is None:
            assert one is None
            continue
        torch.testing.assert_close(one, other, rtol=1e-5, atol=atol * max(1, other.abs().max().item()))
