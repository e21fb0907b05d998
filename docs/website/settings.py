"""All settings: the fields of config.py and of every method, with their defaults, rules and docstrings."""

import ast
import inspect
import textwrap
from dataclasses import MISSING, Field, fields
from typing import Any

from contune.config import MACHINE_SETTINGS, Config, MethodConfig
from contune.methods import METHODS, find_method

INTRODUCTION = """# Settings

Here you find every setting with its default. On the command line a setting is a word `KEY=VALUE`:
`contune train digits optim.epochs=40 method.k1=1000`. A recipe is a complete set of settings; the defaults below apply
to what a recipe does not name. Write `none` for no value, and `true` or `false`. Separate the values of a list by
commas, or by semicolons if the values contain commas.

A run saves its settings in `config.json`. You can resume it only with the same settings. Those marked ⚙ say where and
how a run is done, not what is computed, and may change.
"""


def settings_page() -> str:
    sections = [
        _section(f"## {item.name}", item.name, item.default_factory)
        for item in fields(Config)
        if item.name != "method" and item.default_factory is not MISSING
    ]
    sections.insert(3, _methods())
    return "\n".join([INTRODUCTION, *sections])


def docstrings(cls: type) -> dict[str, str]:
    """The text under each field of a dataclass, its bases' included; a class keeps only its own docstring."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        tree = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                text = below.value if isinstance(below, ast.Expr) else None
                if isinstance(text, ast.Constant) and isinstance(text.value, str):
                    found[field.target.id] = inspect.cleandoc(text.value)
    return found


def _methods() -> str:
    parts = [
        "## method\n",
        "`method.name` is one of " + ", ".join(f"[`{name}`](#{name})" for name in METHODS) + "; "
        f"default: `{MethodConfig().name}`. The other keys of this section belong to the method.\n",
    ]
    for name in METHODS:
        method = find_method(name)
        text = inspect.cleandoc(method.__doc__ or "").partition("\n\n")[0]
        heading = f"### {name}\n\n{text}"
        parts.append(_section(heading, "method", method.Settings))
    return "\n".join(parts)


def _section(heading: str, section: str, cls: Any) -> str:
    texts = docstrings(cls)
    rows = [
        f"| `{section}.{item.name}`{_mark(section, item)} | {_shown(item)} | {_cell(texts.get(item.name, ''), item)} |"
        for item in fields(cls)
    ]
    table = ["| setting | default | meaning |", "| --- | --- | --- |", *rows] if rows else ["It has no settings."]
    return "\n".join([heading, "", *table, ""])


def _mark(section: str, item: "Field[Any]") -> str:
    return " ⚙" if f"{section}.{item.name}" in MACHINE_SETTINGS else ""


def _shown(item: "Field[Any]") -> str:
    value = item.default
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`" if value else "empty"
    return "`none`" if value is None else f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _cell(text: str, item: "Field[Any]") -> str:
    """The docstring and the rule, in one line without the bars that part cells."""
    rule = _rule(item)
    joined = " ".join(text.split()).replace("|", "\\|")
    return f"{joined}{' ' if joined and rule else ''}{rule}"


def _rule(item: "Field[Any]") -> str:
    rule = item.metadata
    if "choices" in rule:
        return "One of " + ", ".join(f"`{choice}`" for choice in rule["choices"]) + "."
    low, above, high = (rule.get(bound) for bound in ("low", "above", "high"))
    words = [f"{low:g} or more"] if low is not None else [f"above {above:g}"] if above is not None else []
    words += [f"{high:g} or less"] if high is not None else []
    return f"*{', '.join(words)}.*" if words else ""
