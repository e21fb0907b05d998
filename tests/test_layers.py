"""Who may import whom: the core never imports an app, and `eval` never imports `training`."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
APPS = {
    "api",
    "check",
    "cli",
    "doctor",
    "embedding",
    "estimator",
    "experiments",
    "export",
    "gradients",
    "report",
    "tune",
}


def room(path: Path) -> str:
    """The part of the package that a file belongs to: a folder, or a module at the top."""
    return path.relative_to(ROOT / "contune").parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Also by imports inside functions."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("contune.")}


FILES = sorted((ROOT / "contune").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: f"{room(p)}/{p.stem}")
def test_imports_point_down(path: Path) -> None:
    if room(path) not in {*APPS, "__init__", "__main__"}:  # which bring all of it together
        assert not imported_rooms(path) & APPS
    if room(path) == "eval":
        assert "training" not in imported_rooms(path)
