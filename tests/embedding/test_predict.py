"""`contune predict`: the classifier that a run keeps, and files that agree with it."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command_line import contune, read_json, train
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits
from small_run import CLASSES, expected, in_order, png, write_images, write_run

import contune as library
from contune.data import load_dataset
from contune.errors import UserError
from contune.models.saved import load_classifier

QUICK = ("optim.epochs=1", "optim.batch_images=128")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images") / "photos")


def test_probabilities_are_the_classifiers(run: Path, photos: Path) -> None:
    (part,) = library.predict(run, photos)
    classifier = load_classifier(run)
    logits = torch.from_numpy(expected(run, in_order())) @ classifier.weight_KD.T + classifier.bias_K
    np.testing.assert_allclose(part.probabilities, logits.softmax(1).numpy(), rtol=1e-4, atol=1e-5)
    assert part.classes == [CLASSES[index] for index in logits.argmax(1).tolist()]


def test_the_three_files_say_the_same(run: Path, photos: Path, tmp_path: Path) -> None:
    (part,) = library.predict(run, photos)
    for kind in ("csv", "json", "parquet"):
        outcome = contune("predict", run, photos, "--out", tmp_path / f"p.{kind}")
        assert outcome.code == 0, outcome.err
        assert "and 10 more" in outcome.out
    with (tmp_path / "p.csv").open(newline="") as file:
        from_csv = list(csv.DictReader(file))
    from_json = json.loads((tmp_path / "p.json").read_text())
    from_parquet = pq.read_table(tmp_path / "p.parquet")
    assert json.loads(from_parquet.schema.metadata[b"class_names"]) == list(CLASSES)
    for rows in (from_csv, from_json, from_parquet.to_pylist()):
        assert [row["path"] for row in rows] == part.paths
        assert [row["label"] for row in rows] == part.labels
        assert [row["class"] for row in rows] == part.classes
        assert [float(row["probability"]) for row in rows] == pytest.approx(part.probabilities.max(1), abs=1e-5)
    for number, name in enumerate(CLASSES):
        column = part.probabilities[:, number]
        assert [float(row[f"p({name})"]) for row in from_csv] == pytest.approx(column, abs=1e-5)
        assert [row["probabilities"][name] for row in from_json] == pytest.approx(column, abs=1e-5)
        assert [row[number] for row in from_parquet["probabilities"].to_pylist()] == pytest.approx(column)


def test_a_run_keeps_the_probe_that_it_measured(tmp_path: Path) -> None:
    result = train(tmp_path / "run", "digits", *QUICK)
    test = load_dataset("digits").test
    assert test is not None
    assert test.labels is not None
    for number in range(len(test)):
        pixels = test.images.decode(number, None, 1)[0]
        path = tmp_path / "photos" / str(int(test.labels[number])) / f"{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    parts = list(library.predict(tmp_path / "run", tmp_path / "photos"))
    right = [name == label for part in parts for name, label in zip(part.classes, part.labels, strict=True)]
    assert 100 * np.mean(right) == pytest.approx(result["linear_top1"], abs=0.3)
    assert load_classifier(tmp_path / "run").measure == "linear-fast"


def test_cross_entropy_keeps_its_own_and_eval_leaves_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(folder, "digits", "method.name=cross-entropy", *QUICK)
    state = torch.load(folder / "checkpoint.pt", weights_only=True)["method"]
    for _ in range(2):
        kept = load_classifier(folder)
        assert kept.measure == "classifier"
        assert torch.equal(kept.weight_KD, state["classifier.weight"])
        assert contune("eval", folder).code == 0
    assert len(load_digits().target_names) == len(kept.class_names) == 10


def test_eval_writes_a_missing_one_but_not_of_other_data(photos: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    train(folder, "digits", "optim.epochs=0", "eval.linear=none")
    outcome = contune("predict", folder, photos)
    assert outcome.code == 2
    assert f"where its data has labels, `contune eval {folder} eval.linear=fast` writes one" in outcome.err
    assert contune("eval", folder, "eval.linear=fast", "data.test_fraction=0.3").code == 0
    assert not (folder / "classifier.safetensors").exists()
    assert contune("eval", folder, "eval.linear=fast").code == 0
    assert load_classifier(folder).class_names == tuple(map(str, range(10)))
    assert read_json(folder / "config.json")["eval"]["linear"] == "none"


def test_files_that_are_no_classifier(run: Path, photos: Path, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", classifier=False)
    file = folder / "classifier.safetensors"
    file.write_bytes(b"text")
    with pytest.raises(UserError, match="is not a classifier that contune wrote"):
        load_classifier(folder)
    about = {"contune": json.dumps({"class_names": ["a", "b"], "measure": "linear"})}
    save_file({"weight": torch.zeros(3, 4), "bias": torch.zeros(3)}, file, metadata=about)
    with pytest.raises(UserError, match="names 2 classes for weights of another number"):
        load_classifier(folder)
    save_file({"weight": torch.zeros(2, 4), "bias": torch.zeros(2)}, file, metadata=about)
    with pytest.raises(UserError, match="takes 4 features and its encoder gives 256"):
        library.predict(folder, photos)
    assert "no ending that says how to write it" in contune("predict", run, photos, "--out", "p.txt").err


def test_images_are_not_written_over(run: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    pq.write_table(pa.table({"image": [png(number) for number in range(3)]}), shards / "0.parquet")
    before = (shards / "0.parquet").read_bytes()
    over = contune("predict", run, shards / "0.parquet", "--out", shards / ".." / "shards" / "0.parquet")
    among = contune("predict", run, shards, "--out", shards / "1.parquet")
    assert over.code == among.code == 2
    assert "0.parquet is what is read; give another file" in over.err
    assert "1.parquet would be one of the images in" in among.err
    assert list(shards.iterdir()) == [shards / "0.parquet"]
    assert (shards / "0.parquet").read_bytes() == before
    for _ in range(2):
        assert contune("predict", run, shards, "--out", shards / "p.csv").code == 0


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_predictions_are_written_over_their_like_alone(run: Path, photos: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"p.{kind}"
    for content in (
        b"",
        b"path,label\na.png,cat\n",
        b'[\n{"path": "a.png", "label": "cat"}\n]\n',
        b"5\n5\n",
        b"\xff\0",
    ):
        out.write_bytes(content)
        outcome = contune("predict", run, photos, "--out", out)
        assert outcome.code == 2
        assert f"{out} is there already and is not what this command writes; remove it, or give another" in outcome.err
        assert out.read_bytes() == content
    out.unlink()
    for _ in range(2):
        assert contune("predict", run, photos, "--out", out).code == 0


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_nothing_but_broken_images_is_no_prediction(run: Path, tmp_path: Path, kind: str) -> None:
    photo = tmp_path / "zero.jpg"
    photo.write_bytes(b"")
    outcome = contune("predict", run, photo, "--out", tmp_path / f"p.{kind}")
    assert outcome.code == 2
    assert f"no image can be decoded; the first, '{photo}', is not an image in a known format" in outcome.err
    assert outcome.out == ""
    assert list(tmp_path.iterdir()) == [photo]


def test_broken_images_are_left_out(run: Path, tmp_path: Path) -> None:
    photos = write_images(tmp_path / "photos", 3)
    (photos / "cat" / "000.png").write_text("text")
    outcome = contune("predict", run, photos, "--out", tmp_path / "p.json")
    assert outcome.code == 0
    assert "1 that cannot be decoded" in outcome.out
    assert len(json.loads((tmp_path / "p.json").read_text())) == 2


def test_the_list_of_what_was_left_out_is_of_this_call(run: Path, photos: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "1.png").write_text("text")
    (broken / "2.png").write_bytes(next(photos.rglob("*.png")).read_bytes())
    out, listed = tmp_path / "classes.csv", tmp_path / "classes.csv.skipped.json"
    assert contune("predict", run, broken, "--out", out).code == 0
    assert [one["name"] for one in json.loads(listed.read_text())] == [str(broken / "1.png")]
    assert contune("predict", run, photos, "--out", out).code == 0
    assert not listed.exists(), "nothing was left out"
    listed.write_text('{"mine": 1}')
    refused = contune("predict", run, broken, "--out", out)
    assert refused.code == 2
    assert f"{listed} is there already and is not what this command writes" in refused.err
    assert listed.read_text() == '{"mine": 1}'
