"""What windrow.torch says of itself: texts, and types that a checker takes."""

import importlib.util
import inspect
import os
import pathlib
import subprocess
import sys

import pytest
import windrow
from torch_support import torch  # noqa: F401 (skips all without it)

import windrow.torch as wt


def named():
    for module, prefix in ((wt, ""), (wt.nn, "nn.")):
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                continue
            yield prefix + name, thing
            kind = thing if inspect.isclass(thing) else type(thing)
            if kind.__module__.startswith("windrow."):
                for member, value in vars(kind).items():
                    if not member.startswith("_") and (callable(value) or isinstance(value, (property, classmethod))):
                        yield f"{prefix}{name}.{member}", getattr(kind, member)


# Those that torch.nn.Module documents, and a tuple's fields.
PLAIN = {"extra_repr", "rowptr", "col", "value", "num_cols"}


def test_modules_name_what_they_have():
    for module in (wt, wt.nn):
        assert module.__doc__ and sorted(module.__all__) == list(module.__all__)
        assert set(module.__all__) <= set(dir(module))


@pytest.mark.parametrize("name, thing", list(named()), ids=[name for name, _ in named()])
def test_names_have_texts(name, thing):
    assert inspect.getdoc(thing) or name.split(".")[-1] in PLAIN


@pytest.mark.parametrize("name, thing", list(named()), ids=[name for name, _ in named()])
def test_names_have_types(name, thing):
    if isinstance(thing, property):
        thing = thing.fget
    if inspect.isclass(thing):
        if issubclass(thing, tuple):
            assert set(thing.__annotations__) == set(thing._fields)
            return
        thing = thing.__init__
    if not callable(thing):
        assert type(thing).__annotations__, name
        return
    signature = inspect.signature(thing)
    assert signature.return_annotation is not inspect.Signature.empty, name
    for parameter in signature.parameters.values():
        assert parameter.name == "self" or parameter.annotation is not parameter.empty, f"{name}({parameter.name})"


PROGRAM = """
import torch

import windrow.torch as wt


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = wt.nn.GATConv(7, 8, heads=2, edge_dim=3, fill_value=0.5)
        self.two = wt.nn.GCNConv(16, 4, improved=True)
        self.three = wt.nn.NmLinear.from_linear(torch.nn.Linear(4, 4), (2, 4, 4))

    def forward(self, x: torch.Tensor, index: torch.Tensor, attributes: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.two(self.one(x, index, attributes), index)
        return self.three.forward(out)


def product(rowptr: torch.Tensor, col: torch.Tensor, value: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    a = wt.Csr(rowptr, col, value, num_cols=x.shape[0])
    wt.check(a)
    with wt.pin(a), wt.pin((rowptr, col), num_cols=4):
        scores = wt.edge_softmax((rowptr, col), wt.sddmm(a, x, x, scale=True), num_cols=x.shape[0])
        y = wt.spmm((rowptr, col, scores), x, reduce="mean") + wt.spmm(a, x) + a @ x
    wt.cache.size = 2 * len(wt.cache)
    wt.cache.clear()
    wt.prepare_capture(torch.cuda.current_stream())
    wt.patch_pyg()
    return y + wt.spmm(x.to_sparse_csr(), x)


hits: int = wt.cache.hits
"""
WRONG = {
    'wt.spmm("A", torch.ones(2))': "arg-type",
    "wt.spmm(torch.ones(2))": "call-arg",
    'wt.nn.GATConv(7, "8")': "arg-type",
    "wt.nn.GCNConv(7)": "call-arg",
    "wt.check(torch.ones(2)) + 1": "func-returns-value",
    "wt.cache.sizes": "attr-defined",
    "wt.spmv": "attr-defined",
    "wt.pin(torch.ones(2), num_cols=0.5)": "arg-type",
}


def test_a_checker_takes_it(tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    folder = pathlib.Path(windrow.__file__).parent
    assert (folder / "py.typed").exists()
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text("import torch\n\nimport windrow.torch as wt\n\n" + "\n".join(WRONG) + "\n")
    options = ["--strict", "--follow-imports=silent", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    path = os.pathsep.join(filter(None, [str(folder.parent), os.environ.get("MYPYPATH")]))

    def mypy(*files):
        command = [sys.executable, "-m", "mypy", *options, *files]
        done = subprocess.run(
            command, cwd=tmp_path, env={**os.environ, "MYPYPATH": path}, capture_output=True, text=True
        )
        return done.stdout + done.stderr

    found = mypy("right.py", "wrong.py").splitlines()
    assert [line for line in found if "right.py" in line] == []
    for at, (line, kind) in enumerate(WRONG.items(), start=5):
        assert any(text.startswith(f"wrong.py:{at}:") and f"[{kind}]" in text for text in found), (line, found)
