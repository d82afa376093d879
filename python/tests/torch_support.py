"""What the tests of windrow.torch share."""

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
    torch.testing.assert_close(found.double(), expected, rtol=error, atol=error * (1 + expected.abs().max().item()))
