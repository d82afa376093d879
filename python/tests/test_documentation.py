"""Every example of the documentation runs, and everything is documented and has its type."""

import __future__
import doctest
import importlib.util
import inspect
import pathlib
import runpy
import sys

import numpy
import pytest
import windrow


def documented():
    for name in windrow.__all__:
        thing = getattr(windrow, name)
        if inspect.ismodule(thing):
            continue
        yield name, thing
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_"):
                    yield f"{name}.{member}", value


@pytest.mark.parametrize("name, thing", list(documented()), ids=[name for name, _ in documented()])
def test_docstrings(name, thing):
    text = inspect.getdoc(thing)
    names = {"windrow": windrow, "numpy": numpy}
    test = doctest.DocTestParser().get_doctest(text or "", names, name, None, None)
    if test.examples:
        outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
        assert outcome.failed == 0


def test_classes_and_functions_are_documented():
    plain = {"shape", "nnz", "ndim", "device", "precision"}
    for name, thing in documented():
        assert inspect.getdoc(thing) or name.split(".")[-1] in plain, f"{name} has no docstring"


def test_the_stubs_say_what_there_is():
    folder = pathlib.Path(windrow.__file__).parent
    assert (folder / "py.typed").exists()
    stubs = (folder / "__init__.pyi").read_text()
    names = {}
    # As in any stub, types may be named before they are made.
    exec(compile(stubs, "__init__.pyi", "exec", __future__.annotations.compiler_flag), {"__name__": "stubs"}, names)
    for name, thing in documented():
        made = names
        for part in name.split("."):
            made = made[part] if isinstance(made, dict) else vars(made)[part]
    for name in windrow.__all__:
        thing, stub = getattr(windrow, name), names[name]
        if inspect.isclass(thing) and not issubclass(thing, Exception):
            said = {member for member in vars(stub) if not member.startswith("_")}
            assert said == {member for member in vars(thing) if not member.startswith("_")}, name


EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples(path, monkeypatch, capsys):
    if "torch" in path.read_text() and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    monkeypatch.setattr(sys, "argv", [str(path)])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
