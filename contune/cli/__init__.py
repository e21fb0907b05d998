"""The command line: parse, call, print. Each module adds its commands to the application, in the order of `--help`."""

from contune.cli import train, embed, search, predict, export, analyze, report, tune, experiment, look, check, bench  # noqa: F401, I001  # the order in which --help lists them
from contune.cli.app import app, main

__all__ = ["app", "main"]
