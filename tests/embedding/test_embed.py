"""`contune embed`: the right numbers beside the right names, from any source, in one go or in several."""

import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from command_line import contune
from PIL import Image
from small_run import CLASSES, expected, in_order, pixels, png, write_images, write_run

import contune as library
from contune.data import pool
from contune.data.datasets import Request, open_splits
from contune.embedding import table
from contune.embedding.parts import Parts
from contune.embedding.source import open_source
from contune.errors import UserError
from contune.models import save_encoder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images") / "photos")


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


def test_a_folder_becomes_a_table(run: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    outcome = contune("embed", run, photos, "--out", out, "--batch", "7")
    assert outcome.code == 0, outcome.err
    assert f"{out}: 30 images × 256 numbers, float32" in outcome.out
    assert "images/s" in outcome.out
    paths, labels, values = embeddings_in(out)
    assert paths == [f"{photos}/{CLASSES[number % 3]}/{number:03}.png" for number in in_order()]
    assert labels == [CLASSES[number % 3] for number in in_order()]
    np.testing.assert_allclose(values, expected(run, in_order()), rtol=1e-4, atol=1e-5)
    assert pq.read_schema(out).field("embedding").type == pa.list_(pa.float32(), 256)
    assert list(tmp_path.iterdir()) == [out]


def test_half_the_bytes(run: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "x.parquet"
    assert contune("embed", run, photos, "--out", out, "--dtype", "float16").code == 0
    assert pq.read_schema(out).field("embedding").type == pa.list_(pa.float16(), 256)
    np.testing.assert_allclose(embeddings_in(out)[2], expected(run, in_order()), rtol=2e-3, atol=1e-3)


def test_parquet_from_any_row_on(run: Path, tmp_path: Path) -> None:
    source = open_source(write_shards(tmp_path / "shards"))
    assert source.num == 20
    everything = list(source.images(0))
    assert [item.content for item in everything] == [png(number) for number in range(20)]
    assert [item.label for item in everything] == [CLASSES[number % 3] for number in range(20)]
    assert everything[8].name == f"{tmp_path}/shards/2.parquet#1"
    for start in range(21):
        assert list(source.images(start)) == everything[start:]


def test_the_library_gives_batches(run: Path, tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards")
    parts = list(library.embed(run, shards, batch=8))
    assert [len(part.paths) for part in parts] == [8, 8, 4]
    together = np.concatenate([part.embeddings for part in parts])
    np.testing.assert_allclose(together, expected(run, list(range(20))), rtol=1e-4, atol=1e-5)
    one = list(library.embed(library.load_encoder(run), shards / "2.parquet", start=12))
    assert [part.paths for part in one] == [[f"{shards}/2.parquet#12"]]
    assert list(library.embed(run, shards, start=20)) == []


@pytest.mark.parametrize("start", [-1, 21])
def test_a_start_outside_of_the_images(start: int, run: Path, tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "shards")
    with pytest.raises(UserError, match=rf"^start={start} does not fit 20 images; leave out 0 to 20 of them$"):
        library.embed(run, shards, start=start)


@pytest.mark.parametrize("batch", [1, 7, 33, 1000])
def test_the_encoder_gets_as_many_at_a_time_as_asked_for(run: Path, tmp_path: Path, batch: int) -> None:
    photos = write_images(tmp_path / "photos", 70)
    (photos / "cat" / "003.png").write_text("text")
    encoder = library.load_encoder(run)
    sizes: list[int] = []
    encoder.register_forward_hook(lambda module, inputs, output: sizes.append(len(inputs[0])))
    parts = list(library.embed(encoder, photos, batch=batch))
    seen = [part.num_seen for part in parts]
    assert seen == [min(batch, 70 - start) for start in range(0, 70, batch)]
    assert sizes == [len(part.paths) for part in parts if part.paths]
    assert max(sizes) <= batch
    numbers = [number for number in in_order(70) if number != 3]
    assert [int(Path(path).stem) for part in parts for path in part.paths] == numbers
    together = np.concatenate([part.embeddings for part in parts])
    np.testing.assert_allclose(together, expected(run, numbers), rtol=1e-4, atol=1e-5)
    (number,) = [number for number, part in enumerate(parts) if part.broken]
    assert number == 1 // batch  # cat/003.png is the second file: its batch can be gone on from


def test_a_list_of_paths_or_pictures(run: Path, photos: Path, tmp_path: Path) -> None:
    given: list[str | Path | Image.Image] = [
        str(photos / "cat" / "000.png"),
        photos / "dog" / "001.png",
        Image.fromarray(pixels(2)),
    ]
    (part,) = library.embed(run, given)
    assert part.paths == [str(given[0]), str(given[1]), "images#2"]
    assert part.labels == [None] * 3
    np.testing.assert_allclose(part.embeddings, expected(run, [0, 1, 2]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["P", "RGB", "L"])
def test_a_picture_with_a_transparent_colour_is_as_its_file(mode: str, run: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    picture = Image.fromarray(pixels(0)).convert(mode)
    picture.save(path, transparency=picture.getpixel((0, 0)))
    with Image.open(path) as opened:
        (part,) = library.embed(run, [path, opened])
    np.testing.assert_array_equal(*part.embeddings)


@pytest.mark.parametrize("mode", ["La", "RGBa", "HSV", "CMYK", "1", "I;16"])
def test_pictures_of_any_mode(mode: str, run: Path) -> None:
    between = {"La": "LA", "RGBa": "RGBA", "I;16": "I"}.get(mode, "RGB")
    (part,) = library.embed(run, [Image.fromarray(pixels(0)).convert(between).convert(mode)])
    assert np.isfinite(part.embeddings).all()


def test_a_picture_that_is_damaged_is_left_out_as_its_file_is(run: Path, tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(png(0)[:-40])
    closed = Image.fromarray(pixels(0))
    closed.close()
    given: list[Path | Image.Image] = [
        Image.open(io.BytesIO(png(0)[:-40])),
        tmp_path / "x.png",
        closed,
        Image.open(io.BytesIO(png(0))),
    ]
    (part,) = library.embed(run, given, broken="skip")
    assert [broken.name for broken in part.broken] == ["images#0", str(tmp_path / "x.png"), "images#2"]
    assert part.paths == ["images#3"]
    with pytest.raises(UserError, match="'images#0'"):
        list(library.embed(run, given, broken="stop"))


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ([], "a list of no images is given; put paths or pictures"),
        (["nowhere.png"], "item 0, 'nowhere.png', is no file; a list holds paths of images, not of folders"),
        ([Image.fromarray(pixels(0)), pixels(1)], "item 1 is of type ndarray; a list holds pictures"),
        (pixels(0), "images of type ndarray are given; give a folder, an image, parquet, or a list"),
        (None, "images of type NoneType are given"),
    ],
)
def test_other_things_than_images_are_a_sentence(run: Path, images: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        library.embed(run, images)


def test_other_things_than_a_run_are_a_sentence(run: Path, photos: Path) -> None:
    with pytest.raises(UserError, match=r"loaded from a run folder or its encoder\.safetensors, got a Linear"):
        library.embed(torch.nn.Linear(2, 2), photos)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="query must be a path, got a list"):
        library.search(run, photos, [photos])  # type: ignore[arg-type]


def test_an_array_for_the_encoder_itself_is_a_sentence(run: Path) -> None:
    with pytest.raises(UserError, match=r"images must be a tensor \(N, 3, H, W\), got a ndarray; torch\.from_numpy"):
        library.load_encoder(run)(pixels(0))


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
    next(encoder.parameters()).data.fill_(float("nan"))
    with pytest.raises(UserError):
        list(library.embed(encoder, photos))
    assert [module.training for module in encoder.modules()] == modes


@pytest.mark.slow
def test_processes_give_the_same(run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_threads = list(library.embed(run, photos))
    monkeypatch.setattr(pool, "MANY", 10)
    by_processes = list(library.embed(run, photos, workers=2))
    assert [part.paths for part in by_processes] == [part.paths for part in by_threads]
    assert np.array_equal(by_processes[0].embeddings, by_threads[0].embeddings)


def test_stopped_and_gone_on_with(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = write_images(tmp_path / "photos", 200)
    (photos / "cat" / "003.png").write_text("text")
    monkeypatch.setattr(table, "IMAGES_PER_PART", 64)
    starts: list[int] = []

    def until_the_second(*arguments: Any, **options: Any) -> Iterator[Any]:
        starts.append(options["start"])
        for number, part in enumerate(library.embed(*arguments, **options)):
            if len(starts) == 1 and number == 3:
                raise KeyboardInterrupt
            yield part

    monkeypatch.setattr(table, "embed", until_the_second)
    once, twice = tmp_path / "once.parquet", tmp_path / "twice.parquet"
    outcome = contune("embed", run, photos, "--out", twice, "--batch", "32")
    assert outcome.code == 130
    assert f"the same command goes on with what is in {twice}.parts" in outcome.out
    assert not twice.exists()
    written = table.write_embeddings(run, photos, twice, batch=32)
    assert starts == [0, 64]  # a whole part was there; the third batch was not on the disk yet
    assert (written.num, written.num_before) == (199, 64)
    assert [broken.name for broken in written.broken] == [str(photos / "cat" / "003.png")]
    table.write_embeddings(run, photos, once, batch=32)
    assert pq.read_table(once).equals(pq.read_table(twice))
    assert pq.read_metadata(once).num_row_groups == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["once.parquet", "photos", "twice.parquet"]


def test_parts_of_another_job_are_not_gone_on_with(run: Path, photos: Path, tmp_path: Path) -> None:
    other = {"encoder": "other", "images": "other", "type of numbers": "float32"}
    Parts(tmp_path / "x.parquet", other).add(pa.table({"path": ["a"]}), [], 1)
    outcome = contune("embed", run, photos, "--out", tmp_path / "x.parquet")
    assert outcome.code == 2
    assert "holds the beginning of another job, with another encoder and images; remove that folder" in outcome.err


def test_a_table_is_written_over_its_like_alone_and_stays_until_then(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "x.parquet"
    for few in (write_images(tmp_path / "few", 6), photos, photos):
        outcome = contune("embed", run, few, "--out", out)
        assert outcome.code == 0, outcome.err
    written = out.read_bytes()
    np.testing.assert_allclose(embeddings_in(out)[2], expected(run, in_order()), rtol=1e-4, atol=1e-5)

    def stopped(*arguments: Any, **options: Any) -> Iterator[Any]:
        yield from library.embed(*arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(table, "embed", stopped)
        patched.setattr(table, "IMAGES_PER_PART", 8)
        assert contune("embed", run, photos, "--out", out, "--batch", "8", "--dtype", "float16").code == 130
    assert out.read_bytes() == written
    assert contune("embed", run, photos, "--out", out, "--dtype", "float16").code == 0
    assert pq.read_schema(out).field("embedding").type == pa.list_(pa.float16(), 256)
    for other in ({"path": ["a"], "embedding": [[1.0]]}, {"image": [png(0)]}):
        pq.write_table(pa.table(other), out)
        theirs = out.read_bytes()
        refused = contune("embed", run, photos, "--out", out)
        assert refused.code == 2
        assert f"{out} is there already and is not what this command writes; remove it, or give" in refused.err
        assert out.read_bytes() == theirs


def test_broken_images_are_left_out_and_listed_or_stop_it(run: Path, tmp_path: Path) -> None:
    photos = write_images(tmp_path / "photos", 6)
    (photos / "dog" / "001.png").write_text("text")
    out = tmp_path / "x.parquet"
    stopped = contune("embed", run, photos, "--out", out, "--broken", "stop")
    assert stopped.code == 2
    assert "dog/001.png' is not an image in a known format; remove it or save it again" in stopped.err
    assert not out.exists()
    outcome = contune("embed", run, photos, "--out", out)
    assert outcome.code == 0
    assert "1 that cannot be decoded, such as " in outcome.out
    assert json.loads((tmp_path / "x.parquet.skipped.json").read_text()) == [
        {"name": str(photos / "dog" / "001.png"), "reason": "is not an image in a known format"}
    ]
    numbers = [number for number in in_order(6) if number != 1]
    np.testing.assert_allclose(embeddings_in(out)[2], expected(run, numbers), rtol=1e-4, atol=1e-5)


def test_nothing_but_broken_images_is_no_table(run: Path, tmp_path: Path) -> None:
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"")
    outcome = contune("embed", run, photo, "--out", tmp_path / "x.parquet")
    assert outcome.code == 2
    assert f"no image can be decoded; the first, '{photo}', is not an image in a known format" in outcome.err
    assert list(tmp_path.iterdir()) == [photo]


def test_stopped_before_anything_is_kept(
    run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def at_once(*arguments: Any, **options: Any) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr(table, "embed", at_once)
    outcome = contune("embed", run, photos, "--out", tmp_path / "x.parquet")
    assert outcome.code == 130
    assert "stopped; the same command begins anew, for nothing is kept yet" in outcome.out
    assert not list(tmp_path.iterdir())


def test_a_table_among_its_images_would_be_read_as_one_of_them(run: Path, tmp_path: Path) -> None:
    photos = write_images(tmp_path / "photos", 3)
    (tmp_path / "link").symlink_to(photos)
    for out in (photos / "cat" / "x.parquet", tmp_path / "link" / "x.parquet"):
        outcome = contune("embed", run, photos, "--out", out)
        assert outcome.code == 2
        assert f"--out {out} would be one of the images in {photos}; give a file outside of it" in outcome.err
    assert not list(photos.rglob("x.parquet*"))


@pytest.mark.parametrize(
    ("files", "labels"),
    [
        (("a.png", "b.png"), [None, None]),
        (("train/x/a.png", "test/y/b.png"), ["y", "x"]),
        (("train/x/a.png", "zebra/b.png"), ["train", "zebra"]),
        (("train/x/a.png", "test/y/b.png", "zebra/c.png"), ["y", "x", "zebra"]),
        (("test/y/b.png", "c.png"), [None, "test"]),
        (("x/deep/a.png", "b.png"), [None, "x"]),
    ],
)
def test_labels_are_class_folders(tmp_path: Path, files: tuple[str, ...], labels: list[str | None]) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(png(0))
    assert [item.label for item in open_source(tmp_path).images(0)] == labels


def test_names_that_are_no_text(run: Path, tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/a\xff.png", "wb") as file:
        file.write(png(3))
    (part,) = library.embed(run, tmp_path)
    assert part.paths == [f"{tmp_path}/a\\xff.png"]
    np.testing.assert_allclose(part.embeddings, expected(run, [3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "there is no file or folder at 'nowhere'"),
        ((".",), "holds no image"),
        (("photo.png", "--dtype", "int8"), "unknown type of numbers 'int8'; choose from float16, float32"),
        (("photo.png", "--broken", "ignore"), "unknown way with broken images 'ignore'"),
        (("photo.png", "--batch", "0"), "a batch of 0 images is empty"),
        (("photo.png", "--device", "gpu"), "device gpu is not to be had here"),
        (
            ("photo.png", "--out", "there.parquet"),
            "there.parquet is there already and is not what this command writes; remove it",
        ),
        (("photo.png", "--out", "x.csv"), "--out x.csv is written as .parquet; give a name that ends so"),
        (("photo.png", "--workers", "-1"), "-1 workers decode nothing; take 1 or more"),
        (("empty.parquet",), "'empty.parquet' holds no row"),
        (("half.parquet",), "'half.parquet' is not a whole parquet file; fetch it again"),
    ],
)
def test_what_a_person_gets_wrong(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if arguments != (".",):
        (tmp_path / "photo.png").write_bytes(png(0))
        (tmp_path / "there.parquet").write_bytes(b"")
        (tmp_path / "half.parquet").write_bytes(b"PAR1")
        pq.write_table(pa.table({"image": pa.array([], pa.binary())}), tmp_path / "empty.parquet")
    outcome = contune("embed", run, *arguments)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert words in outcome.err
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(("embeddings", "x.csv"))]


def test_only_a_few_chunks_are_taken_ahead() -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    with pool.decoding_pool(100, workers=2) as decoders:
        results = decoders.map(abs, tasks())
        assert next(results) == 0
        assert taken <= 2 * pool.CHUNKS_AHEAD + 1
        assert list(results) == list(range(1, 100))


def test_features_that_are_not_finite_are_a_sentence(photos: Path, tmp_path: Path) -> None:
    encoder = library.load_encoder(write_run(tmp_path / "run"))
    next(encoder.parameters()).data.fill_(float("nan"))
    with pytest.raises(UserError, match=r"features of '.*000\.png' are not finite"):
        list(library.embed(encoder, photos))


def test_labels_of_parquet_by_an_unusual_name(run: Path, photos: Path, tmp_path: Path) -> None:
    images = [{"bytes": png(number)} for number in range(3)]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image": images, "kind": ["b", "a", "b"]}), path)
    (part,) = library.embed(run, path)
    assert part.labels == [None] * 3
    (part,) = library.embed(run, path, label_column="kind")
    assert part.labels == ["b", "a", "b"]
    assert contune("embed", run, path, "--label-column", "kind", "--out", tmp_path / "e.parquet").code == 0
    assert pq.read_table(tmp_path / "e.parquet")["label"].to_pylist() == ["b", "a", "b"]
    with pytest.raises(UserError, match=r"unknown label column of '.*x.parquet' 'breed'"):
        library.embed(run, path, label_column="breed")
    with pytest.raises(UserError, match=r"a label column is for parquet, and '.*' is none"):
        library.embed(run, photos, label_column="kind")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([True, False, True], ["1", "0", "1"]),
        ([1, -1, 1], ["1", "-1", "1"]),
        (["x", "y", "x"], ["x", "y", "x"]),
        ([-1, -1, -1], [None] * 3),
    ],
)
def test_labels_of_parquet_are_those_of_training(
    labels: list[Any], expected: list[str | None], run: Path, tmp_path: Path
) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"image": [{"bytes": png(number)} for number in range(3)], "label": labels}), path)
    (part,) = library.embed(run, path)
    assert part.labels == expected
    assert set(open_splits(str(path), Request()).class_names) == set(expected) - {None}


def test_features_that_half_precision_does_not_hold_are_a_sentence(photos: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    encoder = library.load_encoder(run)
    for module in encoder.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.weight.data.fill_(1e4)
    save_encoder(run / "encoder.safetensors", encoder.backbone, encoder.spec)
    outcome = contune("embed", run, photos, "--dtype", "float16", "--out", tmp_path / "e.parquet")
    assert outcome.code == 2
    assert "do not fit float16; take float32" in outcome.err
    assert contune("embed", run, photos, "--out", tmp_path / "e.parquet").code == 0
