"""Plans of sparse times dense."""

import copy
import pickle

import numpy
import pytest
import windrow
from conftest import random, whole

MATRIX = random(50, 40, 0.1)


def plan(device="cpu", **options):
    return windrow.Spmm(windrow.Csr(MATRIX), device, **{"width": 8, **options})


def operands():
    b = whole((40, 8))
    wide = whole((40, 32))
    return {
        "rows": b,
        "columns": numpy.asfortranarray(b),
        "padded rows": wide[:, 3:11],
        "padded columns": whole((32, 40)).T[:, 3:11],
        "every other row and column": whole((80, 16))[::2, ::2],
        "backwards": b[::-1, ::-1],
        "one row for all": numpy.broadcast_to(b[0], (40, 8)),
        "vector": b[:, 0],
        "vector backwards": b[::-1, 0],
        "f64": b.astype("f8"),
        "f16": b.astype("f2"),
        "read only": numpy.frombuffer(b.tobytes(), "f4").reshape(40, 8),
        "unaligned": numpy.frombuffer(b"x" + b.tobytes(), "f4", offset=1).reshape(40, 8),
        "of records": numpy.zeros((40, 8), "f4, i1")["f0"] + 1,
        "a list": b.tolist(),
    }


@pytest.mark.parametrize("name", operands())
def test_operands(name, device):
    b = operands()[name]
    c = plan(device).mm(b)
    assert numpy.array_equal(c, MATRIX @ numpy.asarray(b, "f8"))
    if name != "a list":
        assert c.dtype == b.dtype
    assert c.shape == (50, *numpy.shape(b)[1:])
    windrow.default_device(device)
    assert numpy.array_equal(windrow.Csr(MATRIX) @ b, c)


def test_the_wider_type_is_the_result_of_a_product():
    a = windrow.Csr(MATRIX)
    for of_a, of_b, of_c in [("f32", "f2", "f4"), ("f64", "f4", "f8"), ("f16", "f2", "f2"), ("f32", "f8", "f8")]:
        c = a.astype(of_a) @ whole((40, 3), dtype=of_b)
        assert c.dtype == numpy.dtype(of_c) and numpy.array_equal(c, MATRIX @ whole((40, 3)))


def test_from_the_left():
    b = whole((6, 50))
    assert numpy.array_equal(b @ windrow.Csr(MATRIX), b @ MATRIX.toarray())
    assert numpy.array_equal(b[0] @ windrow.Csr(MATRIX), b[0] @ MATRIX.toarray())


def test_out_alpha_and_beta(device):
    b, product = whole((40, 8)), MATRIX @ whole((40, 8))
    c = numpy.full((50, 8), numpy.nan, "f4")
    assert plan(device).mm(b, c, alpha=2) is c
    assert numpy.array_equal(c, 2 * product)
    plan(device).mm(b, out=c, alpha=-1, beta=0.5)
    assert not c.any()
    wide = numpy.full((50, 12), 7, "f4")
    plan(device).mm(b, wide[:, 2:10])
    assert numpy.array_equal(wide[:, 2:10], product) and (wide[:, :2] == 7).all() and (wide[:, 10:] == 7).all()
    half = numpy.zeros((50, 8), "f2")
    plan(device).mm(b, half)
    assert numpy.array_equal(half, product)


@pytest.mark.parametrize("precision", ["f32", "tf32", "f16", "bf16", "f64"])
def test_precisions(precision, device):
    made = plan(device, precision=precision)
    # f32 may serve where tf32 is asked for: it is more exact.
    assert made.precision == precision or (made.precision, precision) == ("f32", "tf32")
    assert numpy.array_equal(made @ whole((40, 8)), MATRIX @ whole((40, 8)))


def test_operands_on_the_device(device):
    b = whole((40, 8))
    c = plan(device).mm(windrow.Array(b, device))
    assert numpy.array_equal(c.numpy() if device != "cpu" else c, MATRIX @ b)
    out = windrow.Array(numpy.full((50, 8), 9, "f4"), device)
    assert plan(device).mm(windrow.Array(b, device), out) is out
    assert numpy.array_equal(out.numpy(), MATRIX @ b)


def test_new_values(device):
    made = plan(device)
    made.replace_values(MATRIX.data * 3)
    b = whole((40, 8))
    assert numpy.array_equal(made @ b, 3 * (MATRIX @ b))
    assert numpy.array_equal(pickle.loads(pickle.dumps(made)) @ b, 3 * (MATRIX @ b))
    if device != "cpu":
        made.replace_values(windrow.Array(MATRIX.data, device))
        assert numpy.array_equal(made @ b, MATRIX @ b)


def test_orders(device):
    b = whole((40, 8))
    order = windrow.reorder(MATRIX, "rcm").order
    made = plan(device, order=order)
    assert numpy.array_equal(made @ b, MATRIX @ b)
    again = pickle.loads(pickle.dumps(made))
    assert numpy.array_equal(again @ b, MATRIX @ b) and again.report.order == made.report.order
    assert numpy.array_equal(plan(device, reorder={"method": "degree"}) @ b, MATRIX @ b)


def test_reports(device):
    report = plan(device).report
    assert report.rows == 50 and report["cols"] == 40 and report.nnz == MATRIX.nnz
    assert "algorithm" in report.fields() and "rows" in dir(report)
    assert repr(report).startswith("matrix         50 × 40")
    assert report._repr_html_().startswith("<table><caption>Spmm</caption><tr><th>matrix</th><td>50 × 40")
    with pytest.raises(AttributeError, match="a report of Spmm has no 'colour'; it has algorithm, arrays, cols"):
        report.colour
    assert pickle.loads(pickle.dumps(report)).fields() == report.fields()


def test_pickles_and_copies(device):
    made = plan(device, precision="f16")
    b = whole((40, 8))
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert again.precision == "f16" and again.device == made.device and again.report.width == 8
        assert numpy.array_equal(again @ b, made @ b)


def test_plans_are_kept_by_the_matrix():
    a = windrow.Csr(MATRIX)
    for width, kept in [(5, 1), (8, 1), (6, 1), (1, 2), (9, 3), (16, 3), (64, 4), (128, 4)]:
        b = whole((40, width))
        assert numpy.array_equal(a @ b, MATRIX @ b) and a.kept_plans == kept
    assert (a @ whole((40, 128), dtype="f8")).dtype == numpy.float64


def test_numpy_leaves_products_to_the_matrix():
    with pytest.raises(TypeError):
        numpy.ones((50, 50), "f4") + windrow.Csr(MATRIX)
