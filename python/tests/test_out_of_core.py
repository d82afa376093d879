"""Products whose operands need not fit in a device's memory."""

import numpy
import pytest
import windrow
from conftest import random, whole

MATRIX = random(300, 40, 0.1)


def plan(device, **options):
    limit = {} if device == "cpu" else {"memory_limit": 60 << 10}
    return windrow.OutOfCoreSpmm(windrow.Csr(MATRIX), device, **{"width": 24, **limit, **options})


@pytest.mark.parametrize("of_b", ["f4", "f2", "f8"])
def test_products_are_those_of_the_matrix(device, of_b):
    b = whole((40, 24)).astype(of_b)
    a = plan(device)
    want = MATRIX @ b.astype("f8")
    for _ in range(2):
        c = a.mm(b)
        assert c.dtype == b.dtype and numpy.array_equal(c, want)
    out = numpy.ones((300, 30), "f8" if of_b == "f8" else "f4")[:, 3:27]
    assert a.mm(numpy.asfortranarray(b), out, alpha=2, beta=-1) is out
    assert numpy.array_equal(out, 2 * want - 1)
    assert numpy.array_equal(a @ b[:, 0], want[:, 0]) and numpy.array_equal(a(b), want)


def test_what_it_is(device):
    a = plan(device, precision="f16")
    assert (a.shape, a.nnz, a.precision) == ((300, 40), MATRIX.nnz, "f16")
    assert "OutOfCoreSpmm" in repr(a) and str(a.device).startswith(device.split(":")[0])
    report = a.report
    assert report["blocks"] >= 1 and report["slices"] >= 1
    if device != "cpu":
        assert report["device_bytes"] <= 60 << 10
        assert plan(device).report["a_bytes_up"] > 0


def test_errors():
    a = plan("cpu")
    with pytest.raises(windrow.errors.ShapeError, match="40 columns but B has 41 rows"):
        a.mm(whole((41, 2)))
    with pytest.raises(windrow.errors.OptionError, match="unknown field `widht`"):
        plan("cpu", widht=1)
    with pytest.raises(windrow.Error, match="give C as out="):
        a.mm(whole((40, 2)), beta=1)
