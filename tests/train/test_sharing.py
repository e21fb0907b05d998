"""NVIDIA's service for several processes, here a script that writes down how it was called."""

import os
from pathlib import Path

import pytest

from contune.recipes import RECIPES
from contune.train import many, sharing
from contune.train.many import Job, run_many
from contune.train.sharing import CONTROL, LOGS, PIPES, side_by_side


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the pretended service writes its arguments, its input and its folder."""
    folder, written = tmp_path / "bin", tmp_path / "calls"
    folder.mkdir()
    program = folder / CONTROL
    program.write_text(f'#!/bin/sh\necho "$* $(cat) ${PIPES} ${LOGS}" >> {written}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr(sharing, "FIRST_CONTEXT", "")
    monkeypatch.setattr(sharing, "USUAL_PIPES", tmp_path / "nobody")
    return written


def test_it_is_started_for_as_long_as_it_is_needed(calls: Path) -> None:
    with side_by_side() as environment:
        folder = environment[PIPES]
        assert environment == {PIPES: folder, LOGS: folder}
        assert Path(folder).is_dir()
        assert calls.read_text().split() == ["-d", folder, folder]
    assert calls.read_text().splitlines()[1].split() == ["quit", folder, folder]
    assert not Path(folder).exists()


def test_it_ends_with_an_error_too(calls: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        _interrupted()
    assert calls.read_text().splitlines()[-1].split()[0] == "quit"


def _interrupted() -> None:
    with side_by_side():
        raise KeyboardInterrupt


def test_a_service_that_runs_already_is_left_alone(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv(PIPES, "theirs")
        with side_by_side() as environment:
            assert environment == {}
    monkeypatch.setattr(sharing, "USUAL_PIPES", tmp_path)
    with side_by_side() as environment:
        assert environment == {}
    assert not calls.exists()


def test_a_service_that_serves_nobody_is_not_used(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "FIRST_CONTEXT", "raise SystemExit(805)")
    with side_by_side() as environment:
        assert environment == {}
    assert calls.read_text().splitlines()[-1].split()[0] == "quit"


@pytest.mark.parametrize("program", ["", "#!/bin/sh\nexit 1\n"])
def test_where_it_is_missing_or_refuses_nothing_is_different(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(PIPES, raising=False)
    if program:
        (tmp_path / CONTROL).write_text(program)
        (tmp_path / CONTROL).chmod(0o755)
    with side_by_side() as environment:
        assert environment == {}


def _where(config: object, folder: object) -> dict[str, str]:
    raise AssertionError(os.environ.get(PIPES, "nowhere"))


def test_runs_are_told_of_it_only_where_several_share_a_gpu(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job(RECIPES["digits"](), tmp_path / name, work=_where) for name in "ab"]
    assert all("nowhere" in result["error"] for result in run_many(jobs, parallel=2)), "on a CPU"
    monkeypatch.setattr(many, "_on_gpu", lambda jobs: True)
    assert all("nowhere" in result["error"] for result in run_many(jobs, parallel=1)), "one at a time"
    assert all("contune-mps-" in result["error"] for result in run_many(jobs, parallel=2))
