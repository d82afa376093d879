"""Matrices, and what they are made of."""

import copy
import pickle

import numpy
import pytest
import scipy.sparse
import windrow
from conftest import random, whole


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csr_array])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
def test_every_format_of_scipy(form, kind):
    matrix = kind(random(30, 20, 0.1)).asformat(form)
    a = windrow.Csr(matrix)
    assert a.shape == (30, 20) and a.dtype == "f32" and a.nnz == random(30, 20, 0.1).nnz
    assert numpy.array_equal(a.to_dense(), matrix.toarray())


def test_there_and_back():
    matrix = random(30, 20, 0.1)
    back = windrow.Csr(matrix).to_scipy()
    assert isinstance(back, scipy.sparse.csr_array) and back.has_canonical_format
    assert (back != matrix).nnz == 0
    back.data[:] = 0  # arrays of its own
    assert windrow.Csr(matrix) == windrow.Csr(matrix)


def test_unsorted_rows_and_duplicates():
    a = windrow.Csr(([4.0, 1.0, 2.0, 3.0], [2, 0, 2, 1], [0, 3, 4]), (2, 3))
    assert a.nnz == 3
    assert a.indices.tolist() == [0, 2, 1] and a.data.tolist() == [1.0, 6.0, 3.0]
    b = windrow.Csr(([4.0, 1.0, 2.0, 3.0], ([0, 0, 0, 1], [2, 0, 2, 1])), (2, 3))
    assert a == b


def test_types_of_values():
    matrix = random(8, 8, 0.5)
    for name, numpy_name in [("f32", "f4"), ("f64", "f8"), ("f16", "f2")]:
        a = windrow.Csr((matrix.data.astype(numpy_name), matrix.indices, matrix.indptr), matrix.shape)
        assert a.dtype == name and a.data.dtype == numpy.dtype(numpy_name)
        assert windrow.Csr(matrix, dtype=name) == a == windrow.Csr(matrix).astype(name)
    whole_numbers = matrix.astype(numpy.int64)
    assert windrow.Csr(whole_numbers, dtype="f32") == windrow.Csr(matrix)
    assert windrow.Csr(matrix).astype("bf16").dtype == "bf16"
    assert windrow.Csr(matrix.astype(bool), dtype="f64").data.max() == 1


@pytest.mark.parametrize("index", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_types_of_indices(index):
    a = windrow.Csr((numpy.ones(2), numpy.array([1, 0], index), numpy.array([0, 1, 2], index)), (2, 2))
    assert a.to_dense().tolist() == [[0, 1], [1, 0]]


def test_strided_and_foreign_arrays():
    data, indices = numpy.arange(8.0)[::2], numpy.arange(8)[::-2] // 2
    a = windrow.Csr((data, indices, [0, 4]), (1, 4))
    assert a.data.tolist() == [6.0, 4.0, 2.0, 0.0]
    assert a == windrow.Csr((list(data), [3, 2, 1, 0], (0, 4)), (1, 4))


def test_a_dense_matrix():
    assert windrow.Csr([[0.0, 2.0], [1.0, 0.0]]).nnz == 2
    dense = numpy.asfortranarray(whole((5, 7)))
    assert numpy.array_equal(windrow.Csr(dense).to_dense(), dense)


def test_its_arrays_are_lent_and_keep_it():
    data = windrow.Csr(random(30, 20, 0.1)).data
    assert not data.flags.writeable
    assert data.sum() == random(30, 20, 0.1).data.sum()


def test_empty_ones():
    for shape in [(0, 0), (0, 5), (5, 0), (3, 4)]:
        a = windrow.Csr(([], [], [0] * (shape[0] + 1)), shape, "f32")
        assert a.nnz == 0 and a.to_dense().shape == shape
        assert (a @ numpy.ones((shape[1], 3), "f4")).tolist() == numpy.zeros((shape[0], 3)).tolist()
        assert (a @ numpy.ones((shape[1], 0), "f4")).shape == (shape[0], 0)


def test_transpose_and_orders():
    matrix = random(30, 20, 0.2)
    a = windrow.Csr(matrix)
    assert (a.T.to_scipy() != matrix.T).nnz == 0 and a.T is a.T
    assert numpy.array_equal(a.T.data, a.data[a.transpose_order()])
    order = numpy.random.default_rng(3).permutation(30)
    assert numpy.array_equal(a.permute_rows(order).to_dense(), matrix.toarray()[order])
    assert numpy.array_equal(a.with_values(a.data * 2).to_dense(), 2 * matrix.toarray())


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16", "bf16"])
def test_pickles_and_copies(dtype):
    a = windrow.Csr(random(30, 20, 0.1), dtype=dtype)
    for again in (pickle.loads(pickle.dumps(a)), copy.deepcopy(a), copy.copy(a)):
        assert again == a and again.dtype == dtype


def test_matrices_on_a_device(device):
    matrix = random(60, 40, 0.1)
    a = windrow.Csr(matrix).to_device(device)
    assert a.device == windrow.Device(device) and a.shape == (60, 40)
    assert a.to_host() == windrow.Csr(matrix) == pickle.loads(pickle.dumps(a))
    assert (a.T.to_scipy() != matrix.T).nnz == 0
    b = whole((40, 5))
    assert numpy.array_equal(a @ b, matrix @ b)
    assert numpy.array_equal(windrow.Spmm(a, width=5).mm(b), matrix @ b)


def test_arrays_of_dlpack():
    class Only:
        """What has DLPack and nothing else."""

        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **keywords):
            return self.array.__dlpack__()

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    matrix = random(30, 20, 0.1)
    a = windrow.Csr((Only(matrix.data), Only(matrix.indices), Only(matrix.indptr)), matrix.shape)
    assert a == windrow.Csr(matrix)
    b = whole((6, 20)).T
    assert numpy.array_equal(a @ Only(b), matrix @ b)


def test_dense_matrices_of_its_own(device):
    for b in (whole((20, 3)), whole(20), whole((20, 4), dtype=numpy.float16)):
        own = windrow.Array(b, device)
        assert own.shape == b.shape and numpy.array_equal(own.numpy(), b)
        assert numpy.array_equal(numpy.asarray(own), b) and own.device == windrow.Device(device)
    if device == "cpu":
        assert numpy.array_equal(numpy.from_dlpack(own), b)


def test_types_by_their_other_names():
    a = windrow.Csr(random(8, 8, 0.5))
    for name in ("float64", numpy.float64, numpy.dtype("f8"), numpy.float64(1).dtype):
        assert a.astype(name).dtype == "f64"
    assert windrow.Csr(random(8, 8, 0.5), dtype=numpy.float16).dtype == "f16" and a.astype("bfloat16").dtype == "bf16"
    assert windrow.Csr(random(8, 8, 0.5).astype("longdouble"), dtype="f64") == a.astype("f64")


def test_products_with_what_is_no_matrix_of_numpy():
    a, dense = windrow.Csr(random(30, 20, 0.1)), random(30, 20, 0.1).toarray()
    b = whole((20, 3))
    for given in (b, numpy.matrix(b), numpy.ma.array(b), b.tolist(), memoryview(b), windrow.Array(b, "cpu")):
        assert numpy.array_equal(a @ given, dense @ b)
    assert (a @ b[:, 0]).shape == (30,) and (a @ b[:, :1]).shape == (30, 1)
    assert numpy.array_equal([[1.0] * 30] @ a, [[1.0] * 30] @ dense)
    assert type(numpy.float32(1) * b.T @ a.T) is numpy.ndarray


@pytest.mark.torch
@pytest.mark.parametrize("layout", ["sparse_csr", "sparse_csc", "sparse_coo"])
def test_sparse_tensors_of_torch(layout, device):
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device for PyTorch")
    dense = torch.from_numpy(random(30, 20, 0.1).toarray()).to(device).requires_grad_()
    a = windrow.Csr(dense.to_sparse(layout=getattr(torch, layout)))
    assert a.shape == (30, 20) and a.dtype == "f32" and a.device == windrow.Device(device)
    assert numpy.array_equal(a.to_dense(), dense.detach().cpu().numpy())
    assert a.astype(torch.float64).dtype == "f64"


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_dlpack_both_ways(name, device):
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device for PyTorch")
    b = torch.from_numpy(whole((20, 3))).to(getattr(torch, name))
    own = windrow.Array(b, device)
    assert torch.equal(torch.from_dlpack(own).cpu(), b)
    assert windrow.Array(torch.from_dlpack(own).cpu(), device).dtype == own.dtype
    c = windrow.Csr(random(30, 20, 0.1), dtype=own.dtype) @ own
    assert numpy.array_equal(numpy.asarray(c, "f4"), random(30, 20, 0.1) @ whole((20, 3)))


@pytest.mark.torch
def test_tensors_of_torch():
    import torch

    matrix = random(30, 20, 0.1)
    tensors = [torch.from_numpy(part) for part in (matrix.data, matrix.indices, matrix.indptr)]
    assert windrow.Csr(tuple(tensors), matrix.shape) == windrow.Csr(matrix)
    b = torch.from_numpy(whole((20, 3)))
    product = windrow.Csr(matrix) @ b
    assert numpy.array_equal(product, matrix @ b.numpy())
    assert numpy.array_equal(windrow.Csr(matrix) @ b.bfloat16(), product)
    half = windrow.Csr((tensors[0].bfloat16(), *tensors[1:]), matrix.shape)
    assert half == windrow.Csr(matrix).astype("bf16")
    assert torch.equal(torch.from_dlpack(windrow.Array(b, "cpu")), b)
