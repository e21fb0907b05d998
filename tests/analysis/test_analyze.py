"""`contune analyze` on short runs of real digits: what it writes, what it finds, what it refuses."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from command_line import Outcome, contune, read_json, train
from PIL import Image
from strict_html import Page
from torch import Tensor

from contune.analysis.gradients import responses
from contune.analysis.gradients.sweep import Plan, sweep
from contune.analyze import analyze_run
from contune.data import load_dataset
from contune.errors import UserError
from contune.run import RunFolder

SHORT = ("optim.epochs=2", "data.val_fraction=0.85", "eval.linear=none")
"""Four steps."""
QUICK = ("--batches", "2")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for recipe in ("digits", "digits-supcon", "digits-simclr", "digits-ce"):
        train(place / recipe, recipe, *SHORT)
    return place


@pytest.fixture(scope="module")
def analysed(place: Path) -> tuple[Outcome, Path]:
    return contune("analyze", place / "digits", *QUICK, "--out", place / "out"), place / "out"


def test_it_writes_numbers_a_drawing_and_a_page(analysed: tuple[Outcome, Path]) -> None:
    outcome, folder = analysed
    assert outcome.code == 0, outcome.err
    assert {file.name for file in folder.iterdir()} == {
        *(f"gradients.{end}" for end in ("json", "png", "svg", "html")),
        *(f"gradients-anchors.{end}" for end in ("parquet", "png", "svg")),
    }
    for name in ("gradients.png", "gradients-anchors.png"):
        with Image.open(folder / name) as image:
            assert image.width > 1000
            assert len(image.convert("L").getcolors() or []) > 20
    page = Page((folder / "gradients.html").read_text())
    assert "TCL k1=500 k2=1" in " ".join(page.text.split())
    assert "Pull towards a positive" in page.text
    assert "Response of an anchor from its positives" in page.text
    assert "P_in: push of a negative" in page.text
    assert not page.all("script")
    assert "nan" not in page.text
    assert all("aria-label" in attributes for attributes in page.all("svg"))


def test_its_table_has_both_losses_and_every_value(analysed: tuple[Outcome, Path]) -> None:
    outcome, folder = analysed
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert lines[0].startswith("loss positives hard pos. easy pos. negatives hard neg.")
    assert lines[1].startswith("SupCon 0.")
    assert lines[2].startswith("TCL k1=500 k2=1 0.")
    assert sum(line.startswith("TCL k1=") for line in lines) == 1 + 9 + 5
    found = read_json(folder / "gradients.json")
    assert f"{found['tcl']['positive_gradient']:.3g}" in lines[2]
    assert str(folder / "gradients.html") in outcome.out


def test_the_numbers_hang_together(analysed: tuple[Outcome, Path]) -> None:
    found = read_json(analysed[1] / "gradients.json")
    assert (found["method"], found["step"], found["num_batches"], found["embeddings_per_batch"]) == ("tcl", 4, 2, 128)
    by_k1, by_k2, supcon = found["by_k1"], found["by_k2"], found["supcon"]
    assert [line["k1"] for line in by_k1] == [0, 1, 10, 100, 500, 1000, 2000, 5000, 10000, 50000]
    assert {line["k2"] for line in by_k1} == {1}
    assert found["tcl"] in by_k1
    assert found["tcl"] in by_k2
    for name, value in supcon.items():
        assert by_k1[0][name] == pytest.approx(value), f"k1 = 0 is SupCon: {name}"
    for name, lines in (("hard_positive_gradient", by_k1), ("hard_negative_gradient", by_k2)):
        values = [line[name] for line in lines]
        assert values == sorted(values), name
        assert values[-1] > 1.01 * values[0], name
    curve = found["by_similarity"]["negative"]
    assert curve["similarity"] == sorted(curve["similarity"])
    assert 0.9 < sum(curve["share"]) <= 1 + 1e-9
    assert curve["tcl"][-1] > 1.5 * curve["tcl"][0], "the nearest negatives push most"


def test_the_table_of_anchors_averages_to_the_means_of_the_page(analysed: tuple[Outcome, Path]) -> None:
    outcome, folder = analysed
    rows = pq.read_table(folder / "gradients-anchors.parquet").to_pylist()
    assert f"gradients-anchors.parquet, {len(rows)} rows" in outcome.out
    found = read_json(folder / "gradients.json")
    batches = [[row for row in rows if row["batch"] == number] for number in range(found["num_batches"])]
    assert [len(batch) for batch in batches] == [128, 128]

    def mean(name: str, batch: list[dict[str, Any]]) -> float:
        count = "num_hard_positives" if name.startswith("hard_theorem1") else "num_positives"
        known = [row for row in batch if row[name] is not None]
        weights = [row[count] if name.endswith("_share") else 1 for row in known]
        return float(sum(row[name] * weight for row, weight in zip(known, weights, strict=True)) / sum(weights))

    for loss, before in (("tcl", ""), ("supcon", "supcon_")):
        names = [name for name in found[loss] if name not in ("k1", "k2")]
        assert len(names) == {"tcl": 9, "supcon": 7}[loss]
        for name in names:
            average = sum(mean(f"{before}{name}", batch) for batch in batches) / len(batches)
            assert average == pytest.approx(found[loss][name], rel=1e-5), (loss, name)
    shown = [" ".join(line.split()) for line in outcome.out.splitlines()][2]
    assert f"{sum(mean('positive_gradient', batch) for batch in batches) / 2:.3g}" in shown


@pytest.mark.parametrize(("recipe", "group"), [("digits", "label"), ("digits-simclr", "image")])
def test_the_table_says_who_each_anchor_is(recipe: str, group: str, place: Path) -> None:
    """Its counts follow from whose views and of which class the rows say they are."""
    table = analyze_run(RunFolder(place / recipe), [], k1_values=(), k2_values=(), num_batches=1).anchors.to_pylist()
    train_set = load_dataset("digits", val_fraction=0.85).train
    assert train_set.labels is not None
    classes = {name: str(label) for name, label in zip(train_set.names, train_set.labels.tolist(), strict=True)}
    assert len({(row["image"], row["view"]) for row in table}) == 128
    assert {row["view"] for row in table} == {0, 1}
    for row in table:
        assert row["label"] == classes[row["image"]]
        alike = sum(other[group] == row[group] for other in table)
        assert (row["num_positives"], row["num_negatives"]) == (alike - 1, 128 - alike)
        assert row["X_ip"] == pytest.approx(1 / row["num_positives"])


def test_the_same_command_gives_the_same_files(analysed: tuple[Outcome, Path], place: Path, tmp_path: Path) -> None:
    contune("analyze", place / "digits", *QUICK, "--out", tmp_path / "again")
    for file in analysed[1].iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes(), file.name
    other = analyze_run(RunFolder(place / "digits"), ["run.seed=1"], num_batches=2)
    assert other.numbers["tcl"] != read_json(analysed[1] / "gradients.json")["tcl"]


@pytest.mark.parametrize(
    ("recipe", "arguments", "k1", "k2", "positives"),
    [
        ("digits-supcon", (), 5000, 1, "same label"),
        ("digits-simclr", (), 1, 1.5, "views of one image"),
        ("digits-simclr", ("method.k1=7", "method.k2=3"), 7, 3, "views of one image"),
        ("digits", ("method.k1=7", "method.temperature=0.3"), 7, 1, "same label"),
    ],
)
def test_tcl_is_asked_of_other_runs_too(
    recipe: str, arguments: tuple[str, ...], k1: float, k2: float, positives: str, place: Path
) -> None:
    run = RunFolder(place / recipe)
    found = analyze_run(run, list(arguments), k1_values=(0.0,), k2_values=(1.0,), num_batches=1).numbers
    assert (found["tcl"]["k1"], found["tcl"]["k2"], found["positives"]) == (k1, k2, positives)
    assert found["temperature"] == {"digits-supcon": 0.1, "digits-simclr": 0.2, "digits": 0.3}[recipe]
    assert found["tcl"]["theorem1_share"] > 0.5


def test_the_weights_are_the_trained_ones(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The projector's too, which only the checkpoint has."""
    seen: list[Tensor] = []

    def watched(batches: Iterable[tuple[Tensor, Tensor]], plan: Plan) -> dict[str, Any]:
        seen.extend(z_ND for z_ND, _ in batches)
        return {}

    monkeypatch.setattr("contune.analyze.sweep", watched)
    analyze_run(RunFolder(place / "digits"), [], num_batches=3)
    assert [z_ND.shape for z_ND in seen] == [(128, 128)] * 3
    assert not torch.equal(seen[0], seen[1])
    state = torch.load(place / "digits" / "checkpoint.pt")
    state["method"] = {name: torch.zeros_like(value) for name, value in state["method"].items()}
    monkeypatch.setattr("contune.analyze.load_checkpoint", lambda folder, device: state)
    analyze_run(RunFolder(place / "digits"), [], num_batches=1)
    assert not seen[-1].any()


@pytest.mark.parametrize(
    ("run", "arguments", "sentence"),
    [
        ("nowhere", (), "nowhere is not a run folder: it has no config.json; `contune train` makes one"),
        ("digits-ce", (), "digits-ce was trained with cross-entropy, whose loss is no sum over"),
        ("digits", ("method.name=simclr",), "was trained with tcl, so method.name=simclr has no run"),
        ("digits", ("method.projector_dim=64",), "the weights in"),
        ("digits", ("optim.batch_images=9999",), "optim.batch_images=9999 is more than the"),
        ("digits", ("method.k3=1",), "unknown setting 'method.k3'; did you mean method.k2 or method.k1 or"),
        ("digits-supcon", ("method.k3=1",), "unknown setting 'method.k3'; did you mean method.k2 or method.k1 or"),
        ("digits-simclr", ("methd.k1=1",), "unknown setting 'methd.k1'; did you mean method.k1 or method.k2"),
        ("digits", ("method.name=supcon", "method.variant=in"), "was trained with tcl, so method.name=supcon has no"),
        ("digits-supcon", ("method.k1=-1",), "method.k1 must be 0 or more, got -1.0"),
        ("digits-supcon", ("method.k1=much",), "method.k1 must be a number, got 'much'"),
        ("digits", ("--batches", "0"), "--batches must be 1 or more, got 0"),
        ("digits", ("--k1", "1,a"), "'1,a' is not a list of numbers; write for example 0,500,5000"),
        ("digits", ("--k2", "-1"), "k2 must be 0 or above and finite, got -1"),
    ],
)
def test_what_is_refused_in_one_sentence(run: str, arguments: tuple[str, ...], sentence: str, place: Path) -> None:
    outcome = contune("analyze", place / run, *arguments)
    assert outcome.code == 2
    assert sentence in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (place / run / "gradients.json").exists()


def test_a_run_without_a_checkpoint(place: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((place / "digits" / "config.json").read_text())
    outcome = contune("analyze", tmp_path)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert "has no checkpoint.pt, which holds the projector" in outcome.err
    (tmp_path / "checkpoint.pt").write_bytes((place / "digits" / "checkpoint.pt").read_bytes())
    assert contune("analyze", tmp_path, "--batches", "1", "--k1", "0", "--k2", "1").code == 0, "a run not ended yet"
    assert json.loads((tmp_path / "gradients.json").read_text())["step"] == 4


def test_a_file_in_the_place_of_the_folder(place: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    outcome = contune("analyze", place / "digits", *QUICK, "--out", tmp_path / "file")
    assert (outcome.code, outcome.err) == (2, f"contune: {tmp_path / 'file'} is a file; give a folder with --out\n")


def test_the_analysis_of_another_run_is_left_alone(place: Path, tmp_path: Path) -> None:
    of_one = (place / "digits", "--batches", "1", "--k1", "0", "--k2", "1", "--out")
    of_another = (place / "digits-supcon", *of_one[1:])
    for _ in range(2):
        assert contune("analyze", *of_one, tmp_path / "out").code == 0, "its own is written over"
    before = {file: file.read_bytes() for file in (tmp_path / "out").iterdir()}
    outcome = contune("analyze", *of_another, tmp_path / "out")
    sentence = f"{tmp_path}/out holds the analysis of {place}/digits, not of {place}/digits-supcon; give another folder"
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert sentence in outcome.err
    assert {file: file.read_bytes() for file in (tmp_path / "out").iterdir()} == before
    outcome = contune("analyze", *of_another, place / "digits-ce")
    assert outcome.code == 2
    assert f"{place}/digits-ce is the folder of another run than {place}/digits-supcon; give another" in outcome.err
    assert not (place / "digits-ce" / "gradients.json").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [("gradients.json", "[1]"), ("gradients.json", "{"), ("gradients.html", "mine"), ("gradients.png", "mine")],
)
def test_files_of_others_are_not_written_over(name: str, content: str, place: Path, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    outcome = contune("analyze", place / "digits", *QUICK, "--out", tmp_path)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert f"{tmp_path / name} is not what this command wrote; give another folder with --out" in outcome.err
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [(name, content)]


def test_a_sweep_is_the_mean_over_batches() -> None:
    batches = [(torch.randn(20, 4, generator=torch.Generator().manual_seed(i)), torch.arange(20) % 4) for i in range(3)]
    found = sweep(batches, Plan(0.1, 10.0, 1.0, (2.0,), (3.0,)))
    single: list[dict[str, Any]] = [responses(z, y, k1=2.0, k2=1.0) for z, y in batches]
    line = next(line for line in found["by_k1"] if line["k1"] == 2.0)
    for name in ("positive_gradient", "easy_negative_gradient", "hard_theorem1_share"):
        assert line[name] == pytest.approx(sum(float(one[name]) for one in single) / 3, rel=1e-5), name
    assert [(line["k1"], line["k2"]) for line in found["by_k2"]] == [(10.0, 1.0), (10.0, 3.0)]
    with pytest.raises(UserError, match="there is no batch to analyze"):
        sweep([], Plan(0.1, 10.0, 1.0))
