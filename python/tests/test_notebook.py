"""The notebook's cells run, and its outputs are what they give. WINDROW_BLESS=1 writes the outputs anew."""

import ast
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import re

import pytest

NOTEBOOK = pathlib.Path(__file__).parents[1] / "examples" / "windrow.ipynb"


def outputs_of(source, names, count):
    """What a notebook shows below a cell: what is printed, and the value of its last line."""
    *body, last = ast.parse(source).body
    value, printed = None, io.StringIO()
    with contextlib.redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            exec(compile(ast.Module(body, []), "cell", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
        else:
            exec(compile(source, "cell", "exec"), names)
    outputs = []
    if printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = [value._repr_html_()]
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


@pytest.mark.torch
def test_the_notebook_runs():
    text = NOTEBOOK.read_text(encoding="utf-8")
    book, names = json.loads(text), {}
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for count, cell in enumerate(cells, 1):
        found = outputs_of("".join(cell["source"]), names, count)
        # Reports have times, which are others each time.
        timed = any("text/html" in output.get("data", {}) for output in found)
        if os.environ.get("WINDROW_BLESS"):
            cell["execution_count"], cell["outputs"] = count, found
        elif timed:
            assert [output["data"].keys() for output in cell["outputs"]] == [output["data"].keys() for output in found]
        else:
            assert cell["outputs"] == found
    if os.environ.get("WINDROW_BLESS"):
        NOTEBOOK.write_text(json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    assert len(cells) == 8 and len(text) < 20_000
    assert not re.search(r"[\s\"'(]/\w+/", text), "the outputs name a path of a machine"


def test_it_is_a_notebook():
    """As Jupyter's own library says, where that is."""
    if importlib.util.find_spec("nbformat") is None:
        pytest.skip("nbformat is not installed")
    import nbformat

    nbformat.validate(nbformat.read(NOTEBOOK, as_version=4))
