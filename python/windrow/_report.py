"""Reports of plans and of orders, as objects."""

from typing import NamedTuple


class Reordering(NamedTuple):
    """An order of rows, and what came of it."""

    order: object
    quality: dict
    stages: list
    kept_original: bool


class Report:
    """What a plan is, what it holds and what it cost to make.

    Its fields are attributes and items, of which `fields()` is a dict; `print` shows the library's own table, and a
    notebook a table of HTML.
    """

    __slots__ = ("_fields", "_plan", "_text")

    def __init__(self, plan, text, fields):
        # json is not imported before somebody looks at a report.
        import json

        self._plan = plan
        self._text = text.rstrip("\n")
        self._fields = json.loads(fields)

    def fields(self):
        """All fields as a dict of plain values."""
        return dict(self._fields)

    def __getattr__(self, name):
        try:
            return object.__getattribute__(self, "_fields")[name]
        except KeyError:
            raise AttributeError(f"a report of {self._plan} has no {name!r}; it has {', '.join(self._fields)}") from None

    def __getitem__(self, name):
        return self._fields[name]

    def __dir__(self):
        return ["fields", *self._fields]

    def __reduce__(self):
        import json

        return Report, (self._plan, self._text, json.dumps(self._fields))

    def __repr__(self):
        return self._text

    def _repr_html_(self):
        from html import escape

        rows = (line.partition(" ") for line in self._text.splitlines())
        cells = (f"<tr><th>{escape(key)}</th><td>{escape(value.strip())}</td></tr>" for key, _, value in rows)
        return f"<table><caption>{escape(self._plan)}</caption>{''.join(cells)}</table>"
