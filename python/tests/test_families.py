"""Sampled products, softmax, N:M weights, tensors."""

import json
import pickle

import numpy
import pytest
import windrow
from conftest import random, whole

MATRIX = random(30, 20, 0.2)


@pytest.mark.parametrize("form", ["mask", "scale"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_sampled_products(device, form, dtype):
    x, y = whole((30, 16), 3, dtype), numpy.asfortranarray(whole((20, 16), 4, dtype))
    plan = windrow.Sddmm(windrow.Csr(MATRIX), device, inner=16, form=form)
    rows, cols = MATRIX.tocoo().coords
    wanted = (x.astype("f8") @ y.T.astype("f8"))[rows, cols] * (MATRIX.data if form == "scale" else 1)
    out = plan.run(x, y)
    assert out.dtype == numpy.dtype(dtype) and numpy.array_equal(out, wanted)
    given = numpy.zeros(MATRIX.nnz, dtype)
    assert plan.run(x, y, given, alpha=2) is given and numpy.array_equal(given, 2 * wanted)
    again = pickle.loads(pickle.dumps(plan))
    assert numpy.array_equal(again.run(x, y), wanted) and again.report.inner == 16
    if form == "scale":
        plan.replace_values(MATRIX.data * 2)
        assert numpy.array_equal(plan.run(x, y), 2 * wanted)


def test_sampled_products_on_the_device(device):
    if device == "cpu":
        pytest.skip("there is no GPU")
    x, y = whole((30, 16), 3), whole((20, 16), 4)
    plan = windrow.Sddmm(windrow.Csr(MATRIX), device, inner=16)
    out = plan.run(windrow.Array(x, device), windrow.Array(y, device))
    assert numpy.array_equal(out.numpy(), plan.run(x, y))
    weights = windrow.RowSoftmax(windrow.Csr(MATRIX), device).forward(out)
    assert numpy.allclose(weights.numpy(), softmax(plan.run(x, y)))


def softmax(scores):
    ends = MATRIX.indptr
    rows = [scores[a:b] for a, b in zip(ends, ends[1:])]
    rows = [numpy.exp(row - row.max()) if len(row) else row for row in rows]
    return numpy.concatenate([row / row.sum() if len(row) else row for row in rows])


def test_softmax_and_its_gradient(device):
    a = windrow.Csr(MATRIX)
    scores, gradient = whole(a.nnz, 5) / 3, whole(a.nnz, 6)
    of_rows = pickle.loads(pickle.dumps(windrow.RowSoftmax(a, device)))
    weights = of_rows.forward(scores, scale=0.5)
    assert numpy.allclose(weights, softmax(scores * 0.5), rtol=1e-5)
    found = of_rows.backward(weights, gradient, scale=0.5)
    dots = numpy.add.reduceat(weights * gradient, MATRIX.indptr[:-1][numpy.diff(MATRIX.indptr) > 0])
    dots = numpy.repeat(dots, numpy.diff(MATRIX.indptr)[numpy.diff(MATRIX.indptr) > 0])
    assert numpy.allclose(found, 0.5 * weights * (gradient - dots), atol=1e-5)


def test_weights_of_a_model(tmp_path):
    """Two layers, as `windrow prune` writes them, in bf16 and f16."""
    values = numpy.array([[1, 2], [3, 4]], "f4")
    halves = values.astype("<f2").tobytes()
    brains = (values.view("<u4") >> 16).astype("<u2").tobytes()
    about = {"version": 1, "rows": 4, "cols": 2, "N": 2, "M": 4, "L": 1, "indices": "bytes", "transposed": True}
    header = {
        "__metadata__": {"vector-nm.up": json.dumps(about), "vector-nm.down": json.dumps(about)},
        "up.values": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]},
        "up.indices": {"dtype": "U8", "shape": [2, 2], "data_offsets": [8, 12]},
        "down.values": {"dtype": "F16", "shape": [2, 2], "data_offsets": [12, 20]},
        "down.indices": {"dtype": "U8", "shape": [2, 2], "data_offsets": [20, 24]},
    }
    text = json.dumps(header).encode()
    content = brains + bytes([0, 1, 3, 2]) + halves + bytes([1, 0, 2, 1])
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)
    up = windrow.NmWeights.read(path, "up")
    assert up.pattern == (2, 4, 1)
    assert numpy.array_equal(up.to_dense(), [[1, 0], [0, 2], [0, 4], [3, 0]])
    assert numpy.array_equal(windrow.NmWeights.read(path, name="down").to_dense(), [[0, 2], [1, 4], [3, 0], [0, 0]])
    with pytest.raises(windrow.errors.FileError, match="name the one to read"):
        windrow.NmWeights.read(path)
    with pytest.raises(windrow.errors.FileError, match="found none of that name, but `up`, `down`"):
        windrow.NmWeights.read(path, "gate")


@pytest.mark.parametrize("pattern", [(2, 4, 8), (1, 4, 16), (4, 4, 8)])
def test_weights(device, pattern, tmp_path):
    dense = whole((32, 16), 7)
    weights = windrow.NmWeights.prune(dense, pattern)
    kept = weights.to_dense()
    assert weights.pattern == pattern and weights.shape == (32, 16)
    assert ((kept == 0) | (kept == dense)).all()
    assert (numpy.abs(kept).sum() == numpy.abs(dense).sum()) == (pattern[0] == pattern[1])
    assert windrow.NmWeights.of_dense(kept, pattern) == weights == pickle.loads(pickle.dumps(weights))
    weights.write(tmp_path / "w.safetensors")
    assert windrow.NmWeights.read(tmp_path / "w.safetensors") == weights
    a, bias = whole((10, 32), 8), whole(16, 9)
    plan = windrow.NmSpmm(weights, device, rows=10)
    assert numpy.array_equal(plan.mm(a), a @ kept)
    assert numpy.array_equal(plan.mm(a, bias=bias, activation="relu"), numpy.maximum(a @ kept + bias, 0))
    out = plan.mm(a)
    assert plan.mm(a, out, alpha=2, beta=-2) is out and not out.any()
    gate, x = plan.mm(a, alpha=0.25), (a @ kept).astype("f8") / 4
    assert plan.mm(a, gate, alpha=0.25, activation="silu", gated=True) is gate
    assert numpy.allclose(gate, x / (1 + numpy.exp(-x)) * x, rtol=1e-5, atol=1e-30)
    with pytest.raises(windrow.errors.OptionError, match="give C as out="):
        plan.mm(a, gated=True)
    assert plan.mm(a.astype("f2")).dtype == numpy.float16
    again = pickle.loads(pickle.dumps(plan))
    assert numpy.array_equal(again.mm(a), a @ kept) and again.report.rows == 10
    if device != "cpu":
        on_device = plan.mm(windrow.Array(a, device), bias=windrow.Array(bias, device))
        assert numpy.array_equal(on_device.numpy(), a @ kept + bias)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_tensors(device, dtype, tmp_path):
    rng = numpy.random.default_rng(10)
    shape, nnz = (9, 8, 7), 60
    places = rng.choice(numpy.prod(shape), nnz, replace=False)
    indices, values = numpy.unravel_index(places, shape), whole(nnz, 11, dtype)
    dense = numpy.zeros(shape)
    dense[indices] = values
    tensor = pickle.loads(pickle.dumps(windrow.Tensor(indices, values, shape)))
    assert tensor.shape == list(shape) and tensor.nnz == nnz
    factors = [whole((size, 4), 12 + size, dtype) for size in shape]
    sums = ["ikl,kn,ln->in", "kil,kn,ln->in", "kli,kn,ln->in"]
    for mode, formula in enumerate(sums):
        others = [factors[other] for other in range(3) if other != mode]
        plan = pickle.loads(pickle.dumps(windrow.Mttkrp(tensor, device, mode=mode, width=4)))
        y = plan.run(*others)
        assert y.dtype == numpy.dtype(dtype) and numpy.array_equal(y, numpy.einsum(formula, dense, *others))
        assert plan.run(*others, y, alpha=-1, beta=1) is y and not y.any()
    ttm = windrow.Ttm(tensor, device, width=4)
    y = ttm.run(factors[2])
    stored = numpy.zeros(shape, bool)
    stored[indices] = True
    fibers = numpy.einsum("ikl,ln->ikn", dense, factors[2])[stored.any(2)]
    assert y.shape == (ttm.fibers, 4) and numpy.array_equal(y, fibers)
    tensor.write(tmp_path / "t.tns.gz")
    again = windrow.Tensor.read(tmp_path / "t.tns.gz", shape, "f64")
    assert again.nnz == nnz and again.values.tolist() == values.tolist()
