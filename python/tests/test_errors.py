"""What a user can do wrong, and what the exception says to do about it: the table of docs/python.md, row by row.

WINDROW_BLESS=1 writes the last two columns anew, for somebody to read.
"""

import faulthandler
import os
import pathlib
import re
import subprocess
import sys

import numpy
import pytest
import windrow
from windrow import errors

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "python.md"
EXCEPTIONS = PAGE.read_text(encoding="utf-8").partition("## Exceptions")[2].partition("\n## ")[0]
SETUP = EXCEPTIONS.partition("```python\n")[2].partition("```")[0]
ROWS = re.findall(r"^\| `(.+?)` \| (.*?) ?\| (.*?) ?\|$", EXCEPTIONS, re.MULTILINE)


def raised_by(code, names):
    """The class and the text of what a row of the table raises."""
    try:
        eval(code, names)
    except errors.Error as error:
        return f"`{type(error).__name__}`", str(error)
    return "nothing", ""


@pytest.fixture
def names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(SETUP, names)
    return names


def test_the_table_is_whole():
    assert len(ROWS) == EXCEPTIONS.count("\n| `") > 70
    said = {of.strip("`") for _, of, _ in ROWS}
    classes = {name for name, made in vars(errors).items() if isinstance(made, type)}
    assert said == classes - {"Error", "DeviceError", "InternalError"}


@pytest.mark.parametrize("code, of, text", ROWS, ids=[code for code, _, _ in ROWS])
def test_mistakes(code, of, text, names):
    found = raised_by(code, names)
    if os.environ.get("WINDROW_BLESS"):
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page.replace(f"| `{code}` | {of}", f"| `{code}` | {found[0]} | {found[1]} |\n\0", 1), encoding="utf-8")
        PAGE.write_text(re.sub("\n\0.*", "", PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        assert found == (of, text)


def test_no_mistake_ends_the_interpreter(tmp_path):
    """All of them, one after the other, in a process of their own; then it still multiplies."""
    done = subprocess.run([sys.executable, __file__], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr[-3000:]
    assert done.stdout.splitlines() == [code for code, _, _ in ROWS] + ["whole"]


def test_a_gpu_that_there_is_not():
    with pytest.raises(errors.DeviceError, match="use .*CPU"):
        windrow.Device.cuda(97)


def test_what_has_no_class_of_ours():
    """Types and numbers of arguments are Python's own errors."""
    plan = windrow.Spmm(numpy.eye(4, dtype="f4"), "cpu")
    mistakes = [
        lambda: plan.mm(),
        lambda: plan.mm(numpy.eye(4, dtype="f4"), alpha="x"),
        lambda: plan.mm(numpy.eye(4, dtype="f4"), None, 2.0),
        lambda: windrow.Device(3),
        lambda: windrow.Csr(numpy.eye(4)) * 2,
        lambda: windrow.Csr(numpy.eye(4)) + numpy.eye(4),
    ]
    for mistake in mistakes:
        with pytest.raises(TypeError):
            mistake()


@pytest.mark.torch
def test_tensors_that_do_not_lend_their_elements():
    import torch

    a = windrow.Csr(numpy.eye(4, dtype="f4"))
    with pytest.raises(errors.DtypeError, match=r"use tensor.detach\(\); products that have gradients are windrow.torch's"):
        a @ torch.ones(4, 2, requires_grad=True)
    with pytest.raises(errors.DtypeError, match=r"use A.to_scipy\(\) @ B, or make B dense"):
        a @ torch.eye(4).to_sparse_csr()
    with pytest.raises(errors.DtypeError, match=r"torch.sparse_bsr is not taken; use its to_dense\(\).to_sparse_csr"):
        windrow.Csr(torch.eye(4).to_sparse_bsr((2, 2)))
    with pytest.raises(errors.ShapeError, match="a sparse tensor of 3 dimensions is no matrix of numbers"):
        windrow.Csr(torch.ones(2, 2, 2).to_sparse())


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


def test_a_plan_outlives_its_matrix():
    matrix = windrow.Csr(numpy.eye(4, dtype="f4"))
    plan = windrow.Spmm(matrix, "cpu")
    del matrix
    assert (plan @ numpy.ones((4, 2), "f4")).sum() == 8


def main():
    faulthandler.enable()
    names = {}
    exec(SETUP, names)
    for code, of, text in ROWS:
        print(code, flush=True)
        assert raised_by(code, names) == (of, text), code
    assert (names["A"] @ names["B"]).sum() == 6
    print("whole")


if __name__ == "__main__":
    main()
