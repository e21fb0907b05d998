"""All settings: the fields of config.py and of every method, as `contune settings` describes them."""

import inspect
from dataclasses import fields
from typing import Any

from contune.config import MACHINE_SETTINGS, Config, MethodConfig
from contune.experiments.tables import markdown_table
from contune.methods import METHODS, find_method
from contune.settings import describe

INTRODUCTION = """# Settings

Here you can look up every setting and its default. On the command line a setting is a word `KEY=VALUE`:
`contune train digits optim.epochs=40 method.k1=500 method.k2=1`. The last part of a key is enough where only one
setting has it: `epochs=40`. A recipe is a complete set of settings; the defaults below apply to what a recipe does not
name. Write `none` for no value, and `true` or `false`. Separate the values of a list by
commas, or by semicolons if the values contain commas.

A run saves its settings in `config.json`. You can resume it only with the same settings. Those marked ⚙ say where and
how a run is done, not what is computed, and may change.
"""
METHOD = """## method

`method.name` is one of {names}; default: `{default}`. The other keys of this section belong to the method.
"""


def settings_page() -> str:
    parts = [INTRODUCTION]
    for item in fields(Config):
        settings: Any = item.default_factory
        if item.name == "method":
            names = ", ".join(f"[`{name}`](#{name})" for name in METHODS)
            parts.append(METHOD.format(names=names, default=MethodConfig().name))
            for name in METHODS:
                method = find_method(name)
                text = inspect.cleandoc(method.__doc__ or "").partition("\n\n")[0]
                parts.append(f"### {name}\n\n{text}\n\n{_table(method.Settings, 'method')}\n")
        else:
            parts.append(f"## {item.name}\n\n{_table(settings, item.name)}\n")
    return "\n".join(parts)


def _table(settings: type, section: str) -> str:
    rows = []
    for key, kind, default, text in describe(settings, section):
        mark = " ⚙" if key in MACHINE_SETTINGS else ""
        meaning = " ".join(text.split()).replace("|", "\\|")
        rows.append((f"`{key}`{mark}", f"`{default}`" if default else "empty", kind, meaning))
    return markdown_table(("setting", "default", "values", "meaning"), rows) if rows else "It has no settings."
