"""The command-line reference, from the objects that `--help` is printed from."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from contune.cli import app
from contune.experiments.tables import markdown_table

INTRODUCTION = """# Commands

Here you can look up every command with its arguments and options; `contune COMMAND --help` says the same. Bad input
ends a command with one sentence and exit code 2; `check` and `doctor` exit with 1 if they find an error. A bug ends a
command with code 1 and the name of a traceback file. `contune --debug COMMAND` prints the traceback.
"""


def commands_page() -> str:
    return "\n".join([INTRODUCTION, *(_section(name, command) for name, command in commands())])


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by name, in the order of `--help`."""
    group: Any = typer.main.get_command(app)
    yield from group.commands.items()


def _section(name: str, command: Any) -> str:
    text, examples = _help_and_examples(command.help)
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
    words = [f"contune {name}", *(_argument_name(p) for p in arguments), *(["[OPTIONS]"] if options else [])]
    rows = [
        *((f"`{_argument_name(p)}`", p.help) for p in arguments),
        *((f"`{_option_name(p)}`", p.help + _default(p)) for p in options),
    ]
    table = markdown_table(("argument or option", "meaning"), rows)
    shown = ["```bash", *examples, "```", ""] if examples else []
    return "\n".join([f"## contune {name}\n", f"`{' '.join(words)}`\n", text, "", *shown, table, ""])


def _help_and_examples(help_text: str) -> tuple[str, list[str]]:
    """The paragraphs before `Example:` or `Examples:`, and the examples one by one."""
    text, *examples = re.split("Examples?:", help_text)
    return text.strip(), re.findall(r"`([^`]+)`", "".join(examples))


def _argument_name(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def _option_name(parameter: Any) -> str:
    names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    return names if parameter.is_flag else f"{names} {parameter.metavar or parameter.name.upper()}"


def _default(parameter: Any) -> str:
    """As `--help` shows it: the default, or what `show_default` says in words."""
    if parameter.required:
        return " Required."
    if isinstance(parameter.show_default, str):
        return f" Default: {parameter.show_default}."
    return "" if parameter.default in (None, "", False) else f" Default: `{parameter.default}`."
