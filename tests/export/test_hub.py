"""`contune export --push` and `hf:OWNER/NAME`, with a stand-in for the functions of huggingface_hub."""

import json
import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import torch
from command_line import contune
from encoders import spec, write_run
from safetensors import safe_open

from contune.errors import UserError
from contune.export import export_run
from contune.hub import check_push, push
from contune.models import load_encoder
from contune.models.saved import DIGEST, find_weights, load_classifier

COMMIT = "a" * 40
SMALL_STEM = spec("resnet-mini", size=32, channels=3)


class Hub:
    """Keeps repositories in memory."""

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.is_reachable = True
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}

    def create_repo(self, repo: str, *, private: bool | None, exist_ok: bool) -> str:
        if not self.is_reachable:
            raise ConnectionError("no network")
        assert exist_ok or repo not in self.repos
        self.repos.setdefault(repo, {".gitattributes": b""})
        self.private.setdefault(repo, bool(private))
        return f"https://huggingface.co/{repo}"

    def model_info(self, repo: str) -> SimpleNamespace:
        return SimpleNamespace(private=self.private[repo])

    def upload_folder(
        self, *, repo_id: str, folder_path: Path, delete_patterns: list[str], commit_message: str
    ) -> None:
        kept = {name: content for name, content in self.repos[repo_id].items() if name not in delete_patterns}
        self.repos[repo_id] = kept | {path.name: path.read_bytes() for path in folder_path.iterdir()}

    def snapshot_download(self, repo: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        assert revision in (None, COMMIT)
        folder = self.cache / repo
        folder.mkdir(parents=True, exist_ok=True)
        for name in set(self.repos[repo]).intersection(allow_patterns):
            (folder / name).write_bytes(self.repos[repo][name])
        return str(folder)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    hub = Hub(tmp_path / "cache")
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: "hf_stand_in")
    return hub


def test_a_pushed_export_loads_from_the_hub_with_the_features_of_the_run(hub: Hub, tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, SMALL_STEM)
    outcome = contune("export", run, "--to", "timm", "--push", "me/birds", "--license", "mit", "--private")
    assert outcome.code == 0, outcome.err
    assert "https://huggingface.co/me/birds" in outcome.out
    assert hub.private == {"me/birds": True}
    files = hub.repos["me/birds"]
    assert files.keys() == {".gitattributes", "README.md", "config.json", "model.safetensors"}
    card = files["README.md"].decode()
    assert "\nlicense: mit\n" in card.split("---")[1]
    assert 'contune.load_encoder("hf:me/birds")' in card

    files["pytorch_model.bin"] = b"a pickle"
    expected, found = load_encoder(run), load_encoder("hf:me/birds")
    images = torch.randint(256, (2, 3, 40, 50), dtype=torch.uint8)
    with torch.no_grad():
        assert torch.equal(found(images), expected(images))
    assert found.spec == expected.spec
    weights = find_weights(f"hf:me/birds@{COMMIT}", "resnet50")
    assert (weights.spec.encoder, weights.spec.stem) == ("resnet-mini", "cifar")
    downloaded = {path.name for path in (hub.cache / "me" / "birds").iterdir()}
    assert downloaded == {"config.json", "model.safetensors"}, "no pickle"


def test_another_format_replaces_the_files_of_the_first(hub: Hub, run: Path, tmp_path: Path) -> None:
    push(export_run(run, "safetensors", tmp_path / "one")[0], "me/birds")
    assert load_classifier(Path("hf:me/birds")).class_names == ("cat", "dog", "eel")
    hub.repos["me/birds"]["photo.png"] = b""
    assert "license:" not in hub.repos["me/birds"]["README.md"].decode().split("---")[1]
    push(export_run(run, "timm", tmp_path / "two")[0], "me/birds")
    assert hub.repos["me/birds"].keys() == {
        ".gitattributes",
        "README.md",
        "config.json",
        "model.safetensors",
        "photo.png",
    }
    with pytest.raises(UserError, match="is public"):
        push(tmp_path / "two", "me/birds", private=True)


def test_a_model_of_the_collection(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    weights = export_run(run, "safetensors", tmp_path / "models" / "animals")[0] / "encoder.safetensors"
    with safe_open(weights, framework="pt") as opened:
        digest = opened.metadata()[DIGEST]
    monkeypatch.chdir(tmp_path)
    for listed, error in ((digest, nullcontext()), ("0" * 64, pytest.raises(UserError, match="again"))):
        model = {"name": "animals", "file": weights.name, "sha256": listed}
        (weights.parents[1] / "models.json").write_text(json.dumps([model]))
        with error:
            assert load_encoder("animals").spec == load_encoder(run).spec


def test_a_push_without_a_token_writes_nothing(
    hub: Hub, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: None)
    outcome = contune("export", run, "--to", "timm", "--out", tmp_path / "out", "--push", "me/birds")
    assert outcome.code == 2
    assert "HF_TOKEN, or run `hf auth login`" in " ".join(outcome.err.split())
    assert not (tmp_path / "out").exists()
    assert hub.repos == {}


def test_a_failed_push_keeps_the_export(hub: Hub, run: Path, tmp_path: Path) -> None:
    hub.is_reachable = False
    outcome = contune("export", run, "--to", "timm", "--out", tmp_path / "out", "--push", "me/birds")
    assert (outcome.code, f"hf upload me/birds {tmp_path / 'out'}" in outcome.err) == (2, True), outcome.err
    assert load_encoder(tmp_path / "out").spec == load_encoder(run).spec


def test_bad_names_and_downloads_that_fail(hub: Hub, run: Path, tmp_path: Path) -> None:
    for name in ("birds", "me/", "me/b/c", "-/-"):
        with pytest.raises(UserError, match="OWNER/NAME"):
            check_push(name)
    with pytest.raises(UserError, match="license"):
        export_run(run, "timm", tmp_path / "out", license="mit\nevil: yes")
    assert contune("export", run, "--to", "timm", "--private").code == 2
    hub.repos["me/other"], hub.private["me/other"] = {"config.json": b"{}", "pytorch_model.bin": b""}, False
    for name, word in (("hf:me/nothing", "cannot download"), ("hf:me/other", "no encoder"), ("hf:nobody", "cannot")):
        with pytest.raises(UserError, match=word):
            load_encoder(name)
    assert os.listdir(tmp_path) == ["cache"]
