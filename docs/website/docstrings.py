"""How mkdocstrings reads our docstrings: lines such as `name: what it is` become items of a list.

Docstrings are written to be read in the code, where such lines need no marks; in Markdown they would run together.
"""

import re
from textwrap import indent
from typing import Any

from griffe import Extension, Object

DESCRIBED = re.compile(r"( {4})?((?:\w+, )*[a-z_]\w*): (?=\S)")
AS_ELSEWHERE = re.compile(r"^Args: (?=as )", flags=re.MULTILINE)
LOOP = re.compile(r"^for each .*:\n(?: .*(?:\n|$))+", flags=re.MULTILINE)
"""Pseudocode at the end of a docstring, from which Python removes the indentation that marks code."""


class DescribedNames(Extension):
    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = LOOP.sub(lambda loop: indent(loop[0], "    "), obj.docstring.value)
            obj.docstring.value = with_lists(text)


def with_lists(text: str) -> str:
    """Runs of `name: text` lines as Markdown lists; code (indented after a blank line) and `Args:` stay."""
    lines: list[str] = []
    in_list = in_arguments = False
    before = ""
    for line in AS_ELSEWHERE.sub("Arguments ", text).splitlines():
        if line and not line.startswith(" "):
            in_arguments = line == "Args:"
        found = None if in_arguments else DESCRIBED.match(line)
        begins = found is not None and (in_list or before == "" if found[1] is None else in_list or before != "")
        if found is not None and begins:
            lines += [] if in_list else [""]
            lines.append(f"- `{found[2]}`: {line[found.end() :]}")
            in_list = True
        elif in_list and line.startswith("    "):
            lines.append(f"    {line.strip()}")
        else:
            lines += ["", line] if in_list and line else [line]
            in_list = False
        before = line
    return "\n".join(lines)
