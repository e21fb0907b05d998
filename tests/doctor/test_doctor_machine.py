"""The machine comes first, and little disk is said."""

from pathlib import Path

import pytest
from examined import advice, findings
from pictures import write_flat


def test_the_machine_comes_first_whatever_is_wrong(tmp_path: Path) -> None:
    write_flat(tmp_path, 2)
    sorted(tmp_path.iterdir())[0].write_text("text")
    for overrides in (
        ("data.name=images", f"data.path={tmp_path}", "data.image_size=8"),
        ("data.name=images", f"data.path={tmp_path / 'nowhere'}"),
        ("run.device=gpu",),
    ):
        first, last = findings(*overrides)
        assert first.text.startswith("machine: ")
        assert "; contune " in first.text
        assert last.is_bad


def test_little_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 2**30})
    monkeypatch.setattr("contune.doctor.machine.shutil.disk_usage", lambda path: usage)
    assert "only 1.0 GiB of disk are free here; checkpoints may not fit" in advice()
