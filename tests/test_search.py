"""`contune search`: the nearest by cosine, from images or from a table, on a page that is safe to open."""

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from command_line import contune
from small_run import expected, in_order, png, write_images, write_run

import contune as library
from contune.embedding import Embedded, Found, add_hits, write_search_page
from contune.errors import UserError
from contune.export import export_run


@pytest.fixture(scope="module")
def table(run: Path, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tables") / "photos.parquet"
    assert contune("embed", run, photos, "--out", out).code == 0
    return out


def test_the_nearest_come_first_and_the_query_is_left_out(run: Path, photos: Path) -> None:
    query = photos / "dog" / "004.png"
    (found,) = library.search(run, photos, query, k=5)
    z_ND = expected(run, in_order())
    z_ND /= np.linalg.norm(z_ND, axis=1, keepdims=True)
    cosine_N = z_ND @ z_ND[in_order().index(4)]
    order = [index for index in np.argsort(-cosine_N) if in_order()[index] != 4][:5]
    assert [int(Path(hit.path).stem) for hit in found.hits] == [in_order()[index] for index in order]
    assert [hit.similarity for hit in found.hits] == pytest.approx(cosine_N[order].tolist(), abs=1e-5)
    assert all(hit.label == Path(hit.path).parent.name for hit in found.hits)


def test_a_copy_elsewhere_is_the_nearest(run: Path, table: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.png").write_bytes(png(7))
    (found,) = library.search(run, table, tmp_path / "copy.png", k=99)
    assert Path(found.hits[0].path).name == "007.png"
    assert found.hits[0].similarity == pytest.approx(1, abs=1e-5)
    assert len(found.hits) == 30
    with pytest.raises(UserError, match="another encoder"):
        library.search(write_run(tmp_path / "other", seed=1), table, tmp_path / "copy.png")


def test_an_export_embeds_like_its_run(run: Path, photos: Path, table: Path, tmp_path: Path) -> None:
    export_run(run, "timm", tmp_path / "timm")
    out = tmp_path / "photos.parquet"
    assert contune("embed", tmp_path / "timm", photos, "--out", out).code == 0
    found = [
        library.search(*each, photos / "dog" / "004.png", k=3) for each in ((run, table), (tmp_path / "timm", out))
    ]
    assert [hit.path for hit in found[0][0].hits] == [hit.path for hit in found[1][0].hits]


def test_the_best_of_many_batches_are_the_best_of_all() -> None:
    z_ND = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    z_ND[50:60] = z_ND[:10]  # of equals the first
    unit_ND = z_ND / np.linalg.norm(z_ND, axis=1, keepdims=True)
    found = [Found("q0", []), Found("q1", [])]
    for start in range(0, 100, 8):
        rows = z_ND[start : start + 8]
        names = [str(number) for number in range(start, start + len(rows))]
        part = Embedded(paths=names, labels=[None] * len(rows), embeddings=rows)
        add_hits(found, unit_ND[[3, 70]] @ unit_ND[start : start + 8].T, part, 7)
    for one, query in zip(found, (3, 70), strict=True):
        cosine_N = unit_ND @ unit_ND[query]
        assert [hit.similarity for hit in one.hits] == pytest.approx(sorted(cosine_N.tolist())[:-8:-1], abs=1e-6)
    assert [hit.path for hit in found[0].hits[:2]] == ["3", "53"]


def test_the_page_shows_pictures_and_broken_images_are_listed(run: Path, tmp_path: Path) -> None:
    photos = write_images(tmp_path / "photos", 9)
    (photos / "dog" / "001.png").write_text("text")
    out = tmp_path / "page.html"
    for _ in range(2):  # a page replaces its like
        outcome = contune("search", run, photos, photos / "cat" / "003.png", "-k", "4", "--out", out)
        assert outcome.code == 0, outcome.err
    assert out.read_text().count("<img") == 5
    listed = json.loads((tmp_path / "page.html.skipped.json").read_text())
    assert [one["name"] for one in listed] == [str(photos / "dog" / "001.png")]


def test_names_on_the_page_are_text_and_lost_pictures_are_said(run: Path, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "<script>alert(1)</script>", 4)
    found = library.search(run, folder, folder / "cat" / "000.png", k=3)
    (folder / "cat" / "003.png").unlink()
    write_search_page(tmp_path / "page.html", found, run="<i>", images="&")
    text = (tmp_path / "page.html").read_text()
    assert "<script" not in text
    assert "<i>" not in text
    assert text.count("no picture there") == 1


@pytest.mark.parametrize(
    ("images", "query", "k", "word"),
    [
        ("e.csv", "a.png", 1, "no image"),
        ("alone", "alone/a.png", 1, "no image but the query"),
        ("none.parquet", "a.png", 1, "no image but the query"),
        ("alone", "e.csv", 1, "e.csv"),
        ("alone", "a.png", 0, "k=0"),
    ],
)
def test_bad_input(
    run: Path, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: str, query: str, k: int, word: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alone").mkdir()
    for name in ("a.png", "alone/a.png"):
        (tmp_path / name).write_bytes(png(0))
    (tmp_path / "e.csv").write_text("path,embedding")
    pq.write_table(pq.read_table(table).slice(0, 0), tmp_path / "none.parquet")
    with pytest.raises(UserError, match=word):
        library.search(run, images, query, k=k)
