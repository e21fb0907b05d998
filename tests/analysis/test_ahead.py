from pathlib import Path

import torch
from finished_runs import finished_run

from contune.analysis.ahead import MapAhead
from contune.analysis.report import write_report


def test_a_map_begun_ahead_is_the_map(tmp_path: Path) -> None:
    run = finished_run()
    points_N2 = MapAhead(run["features_MD"]).points()
    write_report(tmp_path / "ahead.html", **run, points_N2=points_N2)
    write_report(tmp_path / "usual.html", **run)
    assert (tmp_path / "ahead.html").read_bytes() == (tmp_path / "usual.html").read_bytes()


def test_what_cannot_be_mapped_is_not_begun() -> None:
    assert MapAhead(torch.ones(40, 8)).points() is None
