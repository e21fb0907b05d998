"""`contune embed` and `predict`: the right numbers for the right names, from any source, and files that agree."""

import csv
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command_line import contune
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load, save_file
from small_run import CLASSES, expected, in_order, pixels, png, write_images, write_run

import contune as library
from contune.embedding import open_source
from contune.errors import UserError
from contune.models import save_encoder
from contune.models.saved import load_classifier


def write_shards(folder: Path, counts: tuple[int, ...] = (7, 0, 13), group: int = 5) -> Path:
    """Images 0, 1, 2, … with the labels 0, 1, 2, 0, … and names for them."""
    folder.mkdir()
    features = {"label": {"_type": "ClassLabel", "names": list(CLASSES)}}
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    start = 0
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    for number, count in enumerate(counts):
        seeds = range(start, start + count)
        images = pa.array([{"bytes": png(seed), "path": None} for seed in seeds], type=kind)
        labels = pa.array([seed % 3 for seed in seeds], type=pa.int64())
        rows = pa.table({"image": images, "label": labels}).replace_schema_metadata(metadata)
        pq.write_table(rows, folder / f"{number}.parquet", row_group_size=group)
        start += count
    return folder


def embeddings_in(path: Path) -> tuple[list[str], list[str | None], np.ndarray]:
    rows = pq.read_table(path)
    values = np.array(rows["embedding"].to_pylist(), dtype=np.float32)
    return rows["path"].to_pylist(), rows["label"].to_pylist(), values


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 2e-3)])
def test_a_folder_becomes_a_table(run: Path, photos: Path, tmp_path: Path, dtype: str, tolerance: float) -> None:
    out = tmp_path / "x.parquet"
    for _ in range(2):  # a table replaces its like
        outcome = contune("embed", run, photos, "--out", out, "--batch", "7", "--dtype", dtype)
        assert outcome.code == 0, outcome.err
    paths, labels, values = embeddings_in(out)
    assert paths == [f"{photos}/{CLASSES[number % 3]}/{number:03}.png" for number in in_order()]
    assert labels == [CLASSES[number % 3] for number in in_order()]
    np.testing.assert_allclose(values, expected(run, in_order()), rtol=tolerance, atol=tolerance)
    assert pq.read_schema(out).field("embedding").type == pa.list_(getattr(pa, dtype)(), 256)
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("workers", [0, 2])
def test_parquet(run: Path, tmp_path: Path, workers: int) -> None:
    shards = write_shards(tmp_path / "shards")
    parts = list(library.embed(run, shards, batch=8, workers=workers))
    assert [len(part.paths) for part in parts] == [8, 8, 4]
    together = np.concatenate([part.embeddings for part in parts])
    np.testing.assert_allclose(together, expected(run, list(range(20))), rtol=1e-4, atol=1e-5)
    paths = [path for part in parts for path in part.paths]
    assert paths[8] == f"{shards}/2.parquet#1"
    assert [label for part in parts for label in part.labels] == [CLASSES[number % 3] for number in range(20)]


def test_a_list_of_paths_or_pictures(run: Path, photos: Path, tmp_path: Path) -> None:
    given: list[str | Path | Image.Image] = [
        str(photos / "cat" / "000.png"),
        photos / "dog" / "001.png",
        Image.fromarray(pixels(2)),
    ]
    for mode in ("RGBa", "HSV", "CMYK", "1", "I;16"):
        between = {"RGBa": "RGBA", "I;16": "I"}.get(mode, "RGB")
        (part,) = library.embed(run, [Image.fromarray(pixels(0)).convert(between).convert(mode)], broken="stop")
        assert len(part.paths) == 1
    (part,) = library.embed(run, given)
    assert part.paths == [str(given[0]), str(given[1]), "images#2"]
    assert part.labels == [None] * 3
    np.testing.assert_allclose(part.embeddings, expected(run, [0, 1, 2]), rtol=1e-4, atol=1e-5)


def test_every_part_of_a_model_keeps_its_mode(run: Path, photos: Path) -> None:
    encoder = library.load_encoder(run).train()
    frozen = next(module for module in encoder.modules() if isinstance(module, torch.nn.BatchNorm2d))
    frozen.eval()
    modes = [module.training for module in encoder.modules()]
    assert True in modes
    assert False in modes
    embeddings = []
    for part in library.embed(encoder, photos, batch=10):
        assert [module.training for module in encoder.modules()] == modes  # also where somebody stops half-way
        embeddings.append(part.embeddings)
    np.testing.assert_allclose(np.concatenate(embeddings), expected(run, in_order()), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("files", "labels"),
    [
        (("a.png", "b.png"), [[], []]),
        (("train/x/a.png", "test/y/b.png"), [["y"], ["x"]]),
        (("train/x/a.png", "zebra/b.png"), [["train"], ["zebra"]]),
        (("train/x/a.png", "test/y/b.png", "zebra/c.png"), [["y"], ["x"], ["zebra"]]),
        (("test/y/b.png", "c.png"), [[], ["y"]]),
        (("x/deep/a.png", "b.png"), [[], ["x"]]),
    ],
)
def test_labels_are_class_folders(tmp_path: Path, files: tuple[str, ...], labels: list[list[str]]) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(png(0))
    assert [found for _, found in open_source(tmp_path).parts] == [labels]


@pytest.mark.parametrize(
    ("images", "options", "word"),
    [
        ([], {}, "must be a path"),
        (pixels(0), {}, "must be a path"),
        (None, {}, "must be a path"),
        (["nowhere.png"], {}, "item 0"),
        ([Image.fromarray(pixels(0)), 1], {}, "item 1"),
        ("photos", {"label_column": "kind"}, "only for parquet"),
        ("x.parquet", {"label_column": "kind"}, "unknown label column"),
        ("nowhere", {}, "no file or folder"),
        ("empty", {}, "holds no image"),
        ("none.parquet", {}, "holds no image"),
        ("half.parquet", {}, "not a complete parquet file"),
        ("photos", {"broken": "ignore"}, "ignore"),
        ("photos", {"batch": 0}, "batch=0"),
        ("photos", {"device": "meta"}, "meta"),
        ("~nosuchuser/photos", {}, "no file or folder"),
    ],
)
def test_bad_input(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: Any, options: Any, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").symlink_to(photos)
    (tmp_path / "empty").mkdir()
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    pq.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "none.parquet")
    pq.write_table(pa.table({"image": [png(0)]}), tmp_path / "x.parquet")
    with pytest.raises(UserError, match=word):
        library.embed(run, images, **options)


def test_hostile_file_names_and_numbers(run: Path, tmp_path: Path) -> None:
    """Other bytes than UTF-8 are written as \\xff. A spreadsheet would run a cell that begins with =, +, - or @."""
    for name in (b"=1+1/-x.png", b"cl\xff/\xfe.png", b"@x/y.png"):
        path = os.path.join(os.fsencode(tmp_path), b"in", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        Path(os.fsdecode(path)).write_bytes(png(0))
    huge = str(10**20)
    for out, more in (("e.parquet", ()), ("p.csv", ()), ("p.json", ()), ("p.parquet", ()), ("s.html", ("-k", huge))):
        command = {"e": "embed", "p": "predict", "s": "search"}[out[0]]
        images = (
            (tmp_path / "in", tmp_path / "in" / "@x") if command == "search" else (tmp_path / "in", "--batch", huge)
        )
        outcome = contune(command, run, *images, *more, "--out", tmp_path / out)
        assert outcome.code == 0, outcome.err
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == ["'=1+1", "'@x", r"cl\xff"]
    assert rows[2]["path"] == rf"{tmp_path}/in/cl\xff/\xfe.png"
    assert [row["label"] for row in json.loads((tmp_path / "p.json").read_text())] == ["=1+1", "@x", r"cl\xff"]


@pytest.mark.parametrize(("command", "out"), [("embed", "x.parquet"), ("predict", "p.csv"), ("predict", "p.json")])
def test_broken_images_are_listed_or_stop_the_command(run: Path, tmp_path: Path, command: str, out: str) -> None:
    photos = write_images(tmp_path / "photos", 6)
    (photos / "dog" / "001.png").write_text("text")
    listed = tmp_path / f"{out}.skipped.json"
    stopped = contune(command, run, photos, "--out", tmp_path / out, "--broken", "stop")
    assert stopped.code == 2
    assert "dog/001.png" in stopped.err
    assert list(tmp_path.iterdir()) == [photos]
    outcome = contune(command, run, photos, "--out", tmp_path / out)
    assert outcome.code == 0, outcome.err
    assert [one["name"] for one in json.loads(listed.read_text())] == [str(photos / "dog" / "001.png")]
    assert contune(command, run, photos / "cat", "--out", tmp_path / out).code == 0
    assert not listed.exists()
    before = (tmp_path / out).read_bytes()
    outcome = contune(command, run, photos / "dog" / "001.png", "--out", tmp_path / out)
    assert (outcome.code, outcome.out) == (2, "")
    assert "no image can be decoded" in outcome.err
    assert (tmp_path / out).read_bytes() == before


def test_features_that_are_no_numbers_or_too_large(photos: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    encoder = library.load_encoder(run)
    for module in encoder.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight.data.fill_(1e4)
    save_encoder(run / "encoder.safetensors", encoder.backbone, encoder.spec)
    outcome = contune("embed", run, photos, "--dtype", "float16", "--out", tmp_path / "e.parquet")
    assert outcome.code == 2
    assert "use float32" in outcome.err
    assert not (tmp_path / "e.parquet").exists()
    next(encoder.parameters()).data.fill_(float("nan"))
    with pytest.raises(UserError, match=r"000\.png.* diverged"):
        list(library.embed(encoder, photos))


def test_a_flipped_bit_is_found_and_files_without_a_checksum_load(photos: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for name, described in (("encoder.safetensors", b"25,"), ("classifier.safetensors", b"cat")):
        content = (run / name).read_bytes()
        for place in (content.find(described), len(content) // 2, -1):
            changed = bytearray(content)
            changed[place] ^= 1
            (run / name).write_bytes(changed)
            with pytest.raises(UserError, match="checksum"):
                library.predict(run, photos)
        with safe_open(tmp_path / "run" / name, "pt") as file:
            about = {"contune": file.metadata()["contune"]}
        save_file(load(content), run / name, metadata=about)  # as older versions wrote it
        library.predict(run, photos)


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
        right = sum(a == b for a, b in zip(part.classes, part.labels, strict=True))
        assert f"accuracy     {100 * right / 30:.2f} %, by the labels of 30 images" in outcome.out
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
