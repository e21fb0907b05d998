"""The commands from end to end, on data that every test can make."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command_line import PLAIN, contune, read_json, train
from pictures import write_classes, write_flat
from PIL import Image

import contune as library
from contune.recipes import RECIPES

QUICK = ("model.encoder=resnet-mini", "data.image_size=8", "optim.batch_images=16", "optim.epochs=1")
EXAMPLES = {
    "train": "contune train digits",
    "eval": "contune eval runs/",
    "experiment": "contune experiment ssl-digits",
    "recipes": "contune recipes",
    "doctor": "contune doctor cifar100-tcl",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A whole run with everything on, and what it printed."""
    folder = tmp_path_factory.mktemp("cli") / "run"
    outcome = contune("train", "optim.epochs=2", "run.log_every=5", "--out", folder)
    assert outcome.code == 0, outcome.err
    return folder, outcome.out


def test_a_run_folder_has_every_file_of_its_contract(run: tuple[Path, str]) -> None:
    folder, _ = run
    names = {path.name.partition(".tfevents")[0] for path in folder.iterdir()}
    assert names == {
        "config.json", "metrics.jsonl", "checkpoint.pt", "encoder.safetensors", "result.json", "report.html",
        "classifier.safetensors", "events.out", "trained_on.npz",
    }  # fmt: skip
    result = read_json(folder / "result.json")
    assert result["linear_top1"] > 80
    assert result["knn_top1"] > 70
    assert {
        "linear_protocol", "knn_protocol", "seconds", "views_per_second", "versions", "seed", "git_revision",
        "hardware", "split", "epochs", "measures", "method", "data", "encoder",
    } <= result.keys()  # fmt: skip
    assert result["seconds"] > 0
    assert result["views_per_second"] > 0
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [5, 10, 15, 20, 25, 28]
    assert "<html" in (folder / "report.html").read_text()


def test_what_is_printed_is_what_was_measured(run: tuple[Path, str]) -> None:
    folder, printed = run
    assert "digits: 898 training and 899 test images of 8×8×1, 10 classes" in printed
    assert "tcl with resnet-mini (1.2 M parameters), 2 epochs of 64 images × 2 views = 128 embeddings" in printed
    measures = read_json(folder / "result.json")["measures"]
    assert [measure["name"] for measure in measures] == ["linear-fast", "knn", "pixels-linear-fast", "pixels-knn"]
    for measure in measures:
        assert f"{measure['top1']:.2f}" in printed
        assert measure["protocol"] in printed
    assert f"encoder  {folder}/encoder.safetensors" in printed
    assert f"report   {folder}/report.html" in printed


def test_the_encoder_taken_home_gives_the_features_that_were_measured(run: tuple[Path, str]) -> None:
    encoder = library.load_encoder(run[0])
    features_ND = encoder(torch.zeros(3, 1, 20, 20, dtype=torch.uint8))
    assert features_ND.shape == (3, 256)


def test_eval_measures_the_same_again(run: tuple[Path, str]) -> None:
    folder, _ = run
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    outcome = contune("eval", folder)
    assert outcome.code == 0, outcome.err
    for measure in read_json(folder / "result.json")["measures"]:
        assert f"{measure['top1']:.2f}" in outcome.out
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_eval_under_another_protocol(run: tuple[Path, str]) -> None:
    outcome = contune("eval", run[0], "eval.linear=paper", "eval.linear_epochs=2", "eval.knn_k=3")
    assert outcome.code == 0, outcome.err
    assert "linear probe, the paper's" in outcome.out
    assert "2 epochs of SGD (lr 0.5" in outcome.out
    assert "k=3, T=0.1" in outcome.out


def test_eval_on_other_images(run: tuple[Path, str], tmp_path: Path) -> None:
    write_classes(tmp_path / "photos", num_classes=3)
    outcome = contune("eval", run[0], "data.name=images", f"data.path={tmp_path / 'photos'}")
    assert outcome.code == 0, outcome.err
    assert "kNN" in outcome.out


@pytest.mark.parametrize("command", ["eval", "analyze"])
def test_a_broken_image_is_told_with_the_way_around_it(run: tuple[Path, str], tmp_path: Path, command: str) -> None:
    photos = write_classes(tmp_path / "photos", num_classes=2, each=50)
    (photos / "class0" / "3.png").write_text("text")
    images: list[str | Path] = [command, run[0], "data.name=images", f"data.path={photos}"]
    if command == "analyze":
        images += ["--batches", "1", "--out", tmp_path]
    stopped = contune(*images)
    assert stopped.code == 2
    assert stopped.err.endswith("save it again; data.broken=skip leaves such files out\n")
    skipping = contune(*images, "data.broken=skip")
    assert skipping.code == 0, skipping.err
    if command == "eval":
        assert f"1 broken image is left out, such as '{photos}/class0/3.png'" in skipping.out


def test_eval_without_a_split_says_how_to_have_one(run: tuple[Path, str]) -> None:
    outcome = contune("eval", run[0], "eval.split=val")
    assert outcome.err == "contune: eval.split=val needs a validation split; set data.val_fraction=0.2\n"


def test_the_folder_is_named_after_the_recipe_and_what_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert contune("train", "optim.epochs=0", "eval.linear=none", *PLAIN).code == 0
    assert contune("train", "digits-ce", "optim.epochs=0", "eval.linear=none", *PLAIN).code == 0
    names = {path.name for path in (tmp_path / "runs").iterdir()}
    assert {len(name) for name in names} == {len("digits-") + 8, len("digits-ce-") + 8}
    assert all(name.startswith("digits-") for name in names)


def test_cross_entropy_measures_its_own_classifier(tmp_path: Path) -> None:
    result = train(tmp_path / "run", "digits-ce", "optim.epochs=2")
    assert result["classifier_top1"] > 60
    assert "classifier trained with the encoder" in result["classifier_protocol"]


@pytest.mark.parametrize(("num_classes", "gray"), [(2, True), (7, False)])
def test_a_folder_of_labelled_images(num_classes: int, gray: bool, tmp_path: Path) -> None:
    write_classes(tmp_path / "photos", num_classes=num_classes, gray=gray)
    result = train(tmp_path / "run", "images", f"data.path={tmp_path / 'photos'}", *QUICK)
    assert library.load_encoder(tmp_path / "run").spec.channels == (1 if gray else 3)
    assert (result["knn_top5"] is None) == (num_classes == 2)
    knn = next(measure for measure in result["measures"] if measure["name"] == "knn")
    assert set(knn["per_class"]) <= {f"class{label}" for label in range(num_classes)}
    if num_classes == 2:
        assert result["linear_top1"] == 100.0, "dark and bright"


def test_a_flat_folder_without_labels(tmp_path: Path) -> None:
    write_flat(tmp_path / "photos")
    outcome = contune(
        "train", "images-ssl", f"data.path={tmp_path / 'photos'}", *QUICK, "run.tensorboard=false",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    assert "nothing was measured: there are no labels, or no split to measure on" in outcome.out
    assert read_json(tmp_path / "run" / "result.json")["measures"] == []
    assert "These images have no labels" in (tmp_path / "run" / "report.html").read_text()

    labelled = write_classes(tmp_path / "labelled")
    refused = contune("predict", tmp_path / "run", labelled)
    assert f"`contune eval {tmp_path / 'run'} data.path=FOLDER` with images that have labels" in refused.err
    measured = contune("eval", tmp_path / "run", f"data.path={labelled}")
    assert measured.code == 0, measured.err
    assert f"classifier {tmp_path / 'run' / 'classifier.safetensors'}" in measured.out
    assert contune("predict", tmp_path / "run", labelled).code == 0


def test_a_validation_split_of_its_own_is_measured_on(tmp_path: Path) -> None:
    for split, each in (("train", 12), ("val", 5), ("test", 6)):
        write_classes(tmp_path / "photos" / split, each=each)
    outcome = contune(
        "train", "images", f"data.path={tmp_path / 'photos'}", *QUICK, "run.tensorboard=false", "eval.split=val",
        "--out", tmp_path / "run",
    )  # fmt: skip
    assert outcome.code == 0, outcome.err
    measure = read_json(tmp_path / "run" / "result.json")["measures"][0]
    assert (measure["split"], measure["num_images"]) == ("val", 10)


def write_parquet(path: Path, num: int = 40) -> None:
    """As the hub has them: image bytes in a struct, integer labels."""
    rows = []
    for number in range(num):
        stream = io.BytesIO()
        Image.new("RGB", (9, 9), (number, 200 * (number % 2), 30)).save(stream, "PNG")
        rows.append({"bytes": stream.getvalue(), "path": None})
    pq.write_table(pa.table({"image": rows, "label": [number % 2 for number in range(num)]}), path)


def test_a_parquet_and_streaming_it_measures_the_same(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet")
    data = ("images", f"data.path={tmp_path / 'train.parquet'}", *QUICK, "run.log_every=1", "augment.policy=crop-flip")
    resident = train(tmp_path / "resident", *data)
    streamed = train(tmp_path / "streamed", *data, "data.resident_gib=0", "data.workers=0")
    for key in ("linear_top1", "knn_top1", "linear_protocol"):
        assert resident[key] == streamed[key]
    weights = [library.load_encoder(tmp_path / name).state_dict() for name in ("resident", "streamed")]
    assert all(torch.equal(tensor, weights[1][name]) for name, tensor in weights[0].items())


def test_no_test_split_trains_all_the_same(tmp_path: Path) -> None:
    write_classes(tmp_path / "photos")
    result = train(tmp_path / "run", "images", f"data.path={tmp_path / 'photos'}", *QUICK, "data.test_fraction=0")
    assert result["measures"] == []
    assert "linear_top1" not in result


def test_colour_and_size_may_be_chosen(tmp_path: Path) -> None:
    write_classes(tmp_path / "photos")
    train(tmp_path / "run", "images", f"data.path={tmp_path / 'photos'}", *QUICK, "data.channels=1")
    spec = library.load_encoder(tmp_path / "run").spec
    assert (spec.channels, spec.image_size, len(spec.mean)) == (1, 8, 1)


def test_recipes_lists_them_all() -> None:
    outcome = contune("recipes")
    assert outcome.code == 0
    rows = [line.split() for line in outcome.out.splitlines()[1:] if line.strip() and not line.startswith("start")]
    assert [words[0] for words in rows] == list(RECIPES)
    fewer = contune("recipes", "fmnist").out
    assert "fmnist-tcl" in fewer
    assert "cifar" not in fewer
    assert contune("recipes", "cifar").err == "contune: unknown data set 'cifar'; did you mean cifar10 or cifar100?\n"


@pytest.mark.parametrize("command", EXAMPLES)
def test_help_has_an_example(command: str) -> None:
    outcome = contune(command, "--help")
    assert outcome.code == 0
    assert EXAMPLES[command] in " ".join(outcome.out.split())


def test_version_and_help() -> None:
    assert contune("--version").out == f"contune {library.__version__}\n"
    outcome = contune("--help")
    assert outcome.code == 0
    assert all(command in outcome.out for command in EXAMPLES)
