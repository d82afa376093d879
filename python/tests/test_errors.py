"""What a user can do wrong, and what the exception says to do about it."""

import numpy
import pytest
import scipy.sparse
import windrow
from conftest import random, whole
from windrow import errors

MATRIX = random(50, 40, 0.1)
A = windrow.Csr(MATRIX)
B = whole((40, 8))
PLAN = windrow.Spmm(A, "cpu", width=8)
WEIGHTS = windrow.NmWeights.prune(whole((8, 8)), (1, 2, 8))


def read_only():
    c = numpy.zeros((50, 8), "f4")
    c.flags.writeable = False
    return c


SHARED = numpy.zeros((50, 8), "f4")

# What is done, what is raised, the built-in exception that it also is, and what the text says to do.
MISTAKES = {
    "inner dimensions": (lambda: A @ B[:7], errors.ShapeError, ValueError, "A has 40 columns but B has 7 rows"),
    "shape of C": (lambda: PLAN.mm(B, numpy.zeros((50, 7), "f4")), errors.ShapeError, ValueError, "C is 50 × 7 but must be"),
    "columns of C": (
        lambda: PLAN.mm(B, numpy.zeros((50, 8), "f4", order="F")),
        errors.ShapeError,
        ValueError,
        "rows must be consecutive elements: copy it",
    ),
    "three dimensions": (lambda: A @ numpy.zeros((40, 8, 2)), errors.ShapeError, ValueError, "must have one or two"),
    "C cannot be written": (lambda: PLAN.mm(B, read_only()), errors.ShapeError, ValueError, "give an array that can"),
    "C overlaps B": (
        lambda: windrow.Spmm(windrow.Csr(numpy.eye(50, dtype="f4")), "cpu").mm(SHARED, SHARED),
        errors.ShapeError,
        ValueError,
        "C overlaps B; give it memory of its own",
    ),
    "whole numbers as B": (lambda: A @ B.astype(int), errors.DtypeError, TypeError, "B.astype(numpy.float32)"),
    "strings as B": (lambda: A @ numpy.full((40, 1), "x"), errors.DtypeError, TypeError, "convert it with"),
    "B of the other byte order": (lambda: A @ B.astype(">f4"), errors.DtypeError, TypeError, "convert it with"),
    "C of another sum": (lambda: PLAN.mm(B.astype("f8"), SHARED), errors.DtypeError, TypeError, "give it an array of f64"),
    "a sparse B": (lambda: A @ MATRIX.T, errors.DtypeError, TypeError, "use A.to_scipy() @ B, or B.toarray()"),
    "beta without C": (lambda: PLAN.mm(B, beta=1), errors.OptionError, ValueError, "give C as out="),
    "an option that there is not": (
        lambda: windrow.Spmm(A, widht=8),
        errors.OptionError,
        ValueError,
        "unknown field `widht`, expected one of `width`",
    ),
    "a name that there is not": (
        lambda: windrow.Spmm(A, algorithm="csr"),
        errors.OptionError,
        ValueError,
        "unknown variant `csr`, expected one of `auto`",
    ),
    "an option of another type": (lambda: windrow.Spmm(A, width="wide"), errors.OptionError, ValueError, "expected usize"),
    "a value that is no option": (lambda: windrow.Spmm(A, width=B), errors.OptionError, ValueError, "give text, a number"),
    "a width below 0": (lambda: windrow.Spmm(A, width=-1), errors.OptionError, ValueError, "invalid value"),
    "a device that there is not": (lambda: windrow.Device("gpu"), errors.OptionError, ValueError, "there are `best`, `cpu`"),
    "a GPU that there is not": (lambda: windrow.Device.cuda(97), errors.DeviceError, RuntimeError, "use the CPU|use one of"),
    "memory beyond the limit": (
        lambda: windrow.Spmm(A, "cpu", memory_limit=10),
        errors.OutOfMemoryError,
        MemoryError,
        "raise the limit",
    ),
    "columns beyond the matrix": (
        lambda: windrow.Csr(([1.0], [3], [0, 1]), (1, 3)),
        errors.FormatError,
        ValueError,
        "column 3 is not below 3 columns",
    ),
    "a column below 0": (
        lambda: windrow.Csr(([1.0], [-1], [0, 1]), (1, 3)),
        errors.FormatError,
        ValueError,
        "indices[0] is -1, which is no index: they are counted from 0",
    ),
    "offsets that decrease": (
        lambda: windrow.Csr(([1.0, 2.0], [0, 0], [0, 2, 1, 2]), (3, 3)),
        errors.FormatError,
        ValueError,
        "row_offsets decreases",
    ),
    "values missing": (
        lambda: windrow.Csr(([1.0], [0, 1], [0, 2]), (1, 3)),
        errors.ShapeError,
        ValueError,
        "one for each column index",
    ),
    "indices of another type": (
        lambda: windrow.Csr(([1.0], [0.0], [0, 1]), (1, 3)),
        errors.DtypeError,
        TypeError,
        "indices.astype(numpy.int64)",
    ),
    "no shape": (lambda: windrow.Csr(([1.0], [0], [0, 1])), errors.OptionError, ValueError, "give shape=(rows, columns)"),
    "another shape": (lambda: windrow.Csr(MATRIX, (4, 4)), errors.ShapeError, ValueError, "leave shape out"),
    "what is no matrix": (lambda: windrow.Csr("matrix"), errors.DtypeError, TypeError, "give one of scipy.sparse"),
    "complex values": (lambda: windrow.Csr(MATRIX * 1j), errors.DtypeError, TypeError, "A.real and A.imag"),
    "whole numbers as values": (lambda: windrow.Csr(MATRIX.astype(int)), errors.DtypeError, TypeError, 'give dtype="f32"'),
    "a dtype that there is not": (lambda: A.astype("f8"), errors.DtypeError, TypeError, "there are f32, f64, f16 and bf16"),
    "values of another pattern": (lambda: PLAN.replace_values([1.0]), errors.ShapeError, ValueError, "one for each entry"),
    "an order that is none": (
        lambda: windrow.Spmm(A, "cpu", order=[0] * 50),
        errors.FormatError,
        ValueError,
        "position 1 of the permutation: 0 was already",
    ),
    "a method that there is not": (lambda: windrow.reorder(A, "metis"), errors.OptionError, ValueError, "unknown variant"),
    "X and Y of two types": (
        lambda: windrow.Sddmm(A, "cpu").run(whole((50, 4)), whole((40, 4), dtype="f8")),
        errors.DtypeError,
        TypeError,
        "convert one of them",
    ),
    "X of another length": (
        lambda: windrow.Sddmm(A, "cpu").run(whole((49, 4)), whole((40, 4))),
        errors.ShapeError,
        ValueError,
        "X is 49 × 4 but must be 50 × 4",
    ),
    "a pattern that there is not": (
        lambda: windrow.NmWeights.prune(B, (3, 2, 8)),
        errors.OptionError,
        ValueError,
        "give 1 ≤ N ≤ M ≤ 256",
    ),
    "weights that are not pruned": (
        lambda: windrow.NmWeights.of_dense(numpy.ones((4, 4)), (1, 2, 4)),
        errors.FormatError,
        ValueError,
        "prune the matrix first",
    ),
    "an activation that there is not": (
        lambda: windrow.NmSpmm(WEIGHTS, "cpu").mm(whole((2, 8)), activation="tanh"),
        errors.OptionError,
        ValueError,
        "there are identity, relu and gelu",
    ),
    "activations of f64": (
        lambda: windrow.NmSpmm(WEIGHTS, "cpu").mm(whole((2, 8), dtype="f8")),
        errors.DtypeError,
        TypeError,
        "convert it to f32",
    ),
    "a mode that there is not": (
        lambda: windrow.Mttkrp(windrow.Tensor(([0], [0], [0]), [1.0], (1, 1, 1)), mode=3),
        errors.OptionError,
        ValueError,
        "give 0, 1 or 2",
    ),
    "a tensor's index beyond it": (
        lambda: windrow.Tensor(([5], [0], [0]), [1.0], (1, 1, 1)),
        errors.FormatError,
        ValueError,
        "lies outside of 1 × 1 × 1",
    ),
    "a file that there is not": (lambda: windrow.read("/no/such.mtx"), errors.FileError, OSError, "cannot read"),
    "a format that there is not": (
        lambda: windrow.read("a.mtx", format="xlsx"),
        errors.OptionError,
        ValueError,
        "there are|no format is called",
    ),
    "a name without a format": (lambda: windrow.write("/tmp/a.xlsx", A), errors.OptionError, ValueError, "end it in .mtx"),
    "names of Rust": (lambda: windrow.write("/tmp/a.xlsx", A), errors.OptionError, ValueError, "give format="),
    "a vector of scipy's": (
        lambda: windrow.Csr(scipy.sparse.coo_array(numpy.ones(3))),
        errors.ShapeError,
        ValueError,
        "reshape",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    mistake, exception, built_in, text = MISTAKES[name]
    with pytest.raises(errors.Error) as raised:
        mistake()
    assert type(raised.value) is exception, raised.value
    assert isinstance(raised.value, built_in)
    assert any(part in str(raised.value) for part in text.split("|")), raised.value


def test_a_file_with_a_mistake(tmp_path):
    path = tmp_path / "a.mtx"
    path.write_text("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 x 1\n")
    with pytest.raises(errors.ParseError, match="line 3, column 3: expected") as raised:
        windrow.read(path)
    assert isinstance(raised.value, OSError) and isinstance(raised.value, ValueError)


def test_wrong_types_of_arguments_are_type_errors():
    for mistake in (lambda: PLAN.mm(), lambda: PLAN.mm(B, alpha="x"), lambda: windrow.Device(3)):
        with pytest.raises(TypeError):
            mistake()


def test_a_mistake_of_ours_is_an_exception():
    """A panic does not end the interpreter."""
    from windrow import _windrow

    with pytest.raises(errors.InternalError, match="please report it: on purpose"):
        _windrow.panic_on_purpose()


def test_every_class_is_an_error_and_built_in():
    classes = [c for c in vars(errors).values() if isinstance(c, type) and c is not errors.Error]
    assert len(classes) == 9
    for made in classes:
        assert issubclass(made, errors.Error) and made.__doc__
        assert any(base.__module__ == "builtins" for base in made.__bases__)
