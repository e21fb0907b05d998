"""`contune analyze` on short runs of real digits: what it writes, what it finds, what it refuses."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Outcome, contune, read_json, train
from PIL import Image
from strict_html import Page
from torch import Tensor

from contune import gradients
from contune.gradients import analyze_run, sweep
from contune.losses.responses import coefficients, responses
from contune.run import RunFolder

SHORT = ("optim.epochs=2", "data.val_fraction=0.9", "optim.batch_images=32", "eval.linear=none")
"""Four steps."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    train(place / "digits", "digits", *SHORT)
    for recipe in ("digits-simclr", "digits-ce"):
        train(place / recipe, recipe, *SHORT, "optim.epochs=0")
    return place


@pytest.fixture(scope="module")
def analyzed(place: Path) -> tuple[Outcome, Path]:
    numbers = ("method.k1=5000", "method.k2=1")
    return contune("analyze", place / "digits", *numbers, "--batches", "2", "--out", place / "out"), place / "out"


def test_it_writes_numbers_a_figure_and_a_page(analyzed: tuple[Outcome, Path]) -> None:
    outcome, folder = analyzed
    assert outcome.code == 0, outcome.err
    assert {file.name for file in folder.iterdir()} == {f"gradients.{end}" for end in ("json", "png", "svg", "html")}
    with Image.open(folder / "gradients.png") as image:
        assert image.width > 1000
        assert len(image.convert("L").getcolors() or []) > 20
    page = Page((folder / "gradients.html").read_text())
    page.check_safe()
    assert "nan" not in page.text
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    tuned = [line for line in lines if line.startswith("TCL k1=")]
    assert len(tuned) == 1 + 8 + 5
    assert f"{read_json(folder / 'gradients.json')['tcl']['positive_gradient']:.3g}" in tuned[0]


def test_the_numbers_are_consistent(analyzed: tuple[Outcome, Path]) -> None:
    found = read_json(analyzed[1] / "gradients.json")
    assert (found["method"], found["step"], found["num_batches"], found["embeddings_per_batch"]) == ("tcl", 4, 2, 64)
    by_k1, by_k2 = found["by_k1"], found["by_k2"]
    assert [line["k1"] for line in by_k1] == [0, 1, 10, 100, 1000, 2000, 5000, 10000, 50000]
    assert found["tcl"] in by_k1
    assert found["tcl"] in by_k2
    for name, value in found["supcon"].items():
        assert by_k1[0][name] == pytest.approx(value), f"k1 = 0 is SupCon: {name}"
    for name, lines in (("hard_positive_gradient", by_k1), ("hard_negative_gradient", by_k2)):
        values = [line[name] for line in lines]
        assert values == sorted(values), name
        assert values[-1] > 1.01 * values[0], name
    curve = found["by_similarity"]["negative"]
    assert curve["similarity"] == sorted(curve["similarity"])
    assert 0.9 < sum(curve["share"]) <= 1 + 1e-9
    assert curve["tcl"][-1] > 1.5 * curve["tcl"][0], "the nearest negatives push most"


def test_the_weights_are_the_trained_ones(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The projector's too, which only the checkpoint has."""
    seen: list[Tensor] = []

    def watch(batches: Iterable[tuple[Tensor, Tensor]], *_: Any) -> dict[str, Any]:
        seen.extend(z_ND for z_ND, _ in batches)
        return {}

    monkeypatch.setattr(gradients, "sweep", watch)
    analyze_run(RunFolder(place / "digits"), [], num_batches=3)
    assert [z_ND.shape for z_ND in seen] == [(64, 128)] * 3
    assert not torch.equal(seen[0], seen[1])
    state = torch.load(place / "digits" / "checkpoint.pt", weights_only=True)
    state["method"] = {name: torch.zeros_like(value) for name, value in state["method"].items()}
    monkeypatch.setattr(gradients, "load_checkpoint", lambda folder, device: state)
    analyze_run(RunFolder(place / "digits"), [], num_batches=1)
    assert not seen[-1].any()


@pytest.mark.parametrize(
    ("run", "arguments", "word"),
    [
        ("digits-ce", (), "cross-entropy"),
        ("digits", ("method.name=simclr",), "method.name"),
        ("digits", ("method.projector_dim=64",), "weights"),
        ("digits-simclr", ("method.k1=-1",), "method.k1"),
        ("digits", ("--batches", "0"), "--batches"),
        ("digits", ("--k2", "-1"), "k2"),
        ("digits-simclr", ("--out", "digits-ce"), "--out"),
    ],
)
@pytest.mark.usefixtures("analyzed")
def test_bad_input(
    run: str, arguments: tuple[str, ...], word: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    outcome = contune("analyze", place / run, *arguments)
    assert outcome.code == 2
    assert word in outcome.err
    assert outcome.err.count("\n") == 1
    assert not (place / run / "gradients.json").exists()


def test_a_run_needs_a_checkpoint_but_not_an_end(place: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((place / "digits" / "config.json").read_text())
    assert "checkpoint.pt" in contune("analyze", tmp_path).err
    (tmp_path / "checkpoint.pt").write_bytes((place / "digits" / "checkpoint.pt").read_bytes())
    assert analyze_run(RunFolder(tmp_path), [], num_batches=1)["step"] == 4


def test_a_sweep_is_the_mean_over_batches() -> None:
    batches = [(torch.randn(40, 4, generator=torch.Generator().manual_seed(i)), torch.arange(40) % 4) for i in range(3)]
    found = sweep(batches, 0.1, 10.0, 1.0, (2.0,), (3.0,))
    single = [responses(z, y, k1=2.0, k2=1.0) for z, y in batches]
    line = next(line for line in found["by_k1"] if line["k1"] == 2.0)
    for name in ("positive_gradient", "easy_negative_gradient", "hard_theorem1_share"):
        assert line[name] == pytest.approx(sum(float(one[name]) for one in single) / 3, rel=1e-5), name
    assert [(line["k1"], line["k2"]) for line in found["by_k2"]] == [(10.0, 1.0), (10.0, 3.0)]
    automatic = sweep(batches, 0.1, "auto", "auto", (1e9,), (3.0,), 0.5)
    pull = [float(responses(z, y, k1="auto", k2="auto", r=0.5)["hard_positive_gradient"]) for z, y in batches]
    assert automatic["tcl"] == automatic["by_k1"][0] == automatic["by_k2"][0]
    assert automatic["tcl"]["hard_positive_gradient"] == pytest.approx(sum(pull) / 3, rel=1e-5)
    assert (automatic["tcl"]["k2"], automatic["by_k2"][1]["k2"]) == (1.5, 3.0)
    assert 0.05 < automatic["tcl"]["k1"] < 1e4
    # A bin's mean is that of the coefficients of its pairs.
    terms = [coefficients(z, y, k1=10.0, k2=1.0) for z, y in batches]
    sim = torch.cat(
        [torch.nn.functional.normalize(z, dim=1) @ torch.nn.functional.normalize(z, dim=1).T for z, _ in batches]
    )
    push, negative = torch.cat([each.N_RC for each in terms]), torch.cat([each.N_RC > 0 for each in terms])
    curve = found["by_similarity"]["negative"]
    for place, value in zip(curve["similarity"], curve["tcl"], strict=True):
        inside = negative & ((sim - place).abs() < 0.01)
        assert value == pytest.approx(push[inside].mean().item(), rel=1e-3)
