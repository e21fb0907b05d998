"""`contune export --push` and `hf:OWNER/NAME`, against a server that stands in for the Hugging Face Hub."""

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import huggingface_hub.constants
import pytest
import torch
from command_line import contune
from encoders import spec, write_run

from contune.errors import UserError
from contune.export import export_run
from contune.hub import check_push, push
from contune.models import load_encoder
from contune.models.saved import find_weights, load_classifier

TOKEN = "hf_stand_in"
COMMIT = "a" * 40
SMALL_STEM = spec("resnet-mini", size=32, channels=3)


class Hub(ThreadingHTTPServer):
    """The few requests that huggingface_hub sends to create, fill, list and download a model repository."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Requests)
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.objects: dict[str, bytes] = {}
        self.downloaded: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Requests(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, code: int, content: Any = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_PUT(self) -> None:
        self.server.objects[self.path.rpartition("/")[2]] = self.body()
        self.answer(200)

    def do_POST(self) -> None:
        body, path, hub = self.body(), urlsplit(self.path).path, self.server
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.answer(401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            if name in hub.repos:
                return self.answer(409, {"error": "You already created this model repo", "url": f"{hub.url}/{name}"})
            hub.repos[name] = {".gitattributes": b""}
            hub.private[name] = asked.get("visibility") == "private" or bool(asked.get("private"))
            return self.answer(200, {"url": f"{hub.url}/{name}", "name": name})
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
            found = [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes.items()]
            return self.answer(200, {"files": found})
        if path.endswith("/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{hub.url}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            return self.answer(200, {"transfer": "basic", "objects": objects})
        if "/commit/" in path:
            repo = path.removeprefix("/api/models/").partition("/commit/")[0]
            files = hub.repos[repo]
            for line in map(json.loads, body.splitlines()):
                value = line["value"]
                if line["key"] == "file":
                    files[value["path"]] = base64.b64decode(value["content"])
                elif line["key"] == "lfsFile":
                    files[value["path"]] = hub.objects[value["oid"]]
                elif line["key"] == "deletedFile":
                    del files[value["path"]]
            return self.answer(200, {"commitUrl": f"{hub.url}/{repo}/commit/{COMMIT}", "commitOid": COMMIT})
        return self.answer(404, {"error": path})

    def do_GET(self) -> None:
        path, hub = urlsplit(self.path).path, self.server
        owner, name, *rest = path.removeprefix("/api/models").strip("/").split("/")
        repo = f"{owner}/{name}"
        may_read = repo in hub.repos and (
            not hub.private[repo] or self.headers.get("Authorization") == f"Bearer {TOKEN}"
        )
        if not may_read:
            return self.answer(401, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        files = hub.repos[repo]
        if rest[:1] == ["resolve"]:
            hub.downloaded += [rest[2]] * (self.command == "GET")
            etag = f'"{hashlib.sha256(files[rest[2]]).hexdigest()}"'
            return self.answer(200, files[rest[2]], ETag=etag, X_Repo_Commit=COMMIT)
        if rest[:1] == ["tree"]:
            sizes = {file: len(content) for file, content in files.items()}
            return self.answer(200, [{"type": "file", "path": f, "size": n, "oid": "0" * 40} for f, n in sizes.items()])
        siblings = [{"rfilename": file} for file in files]
        about = {"id": repo, "modelId": repo, "sha": COMMIT, "private": hub.private[repo], "siblings": siblings}
        return self.answer(200, {**about, "tags": [], "downloads": 0, "likes": 0})

    do_HEAD = do_GET


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """huggingface_hub has read its environment already, so its constants change."""
    with Hub() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        constants = huggingface_hub.constants
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", server.url + template[template.index("/{") :])
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        yield server
        server.shutdown()


def test_a_pushed_export_loads_from_the_hub_with_the_features_of_the_run(hub: Hub, tmp_path: Path) -> None:
    run = tmp_path / "run"
    write_run(run, SMALL_STEM)
    outcome = contune("export", run, "--to", "timm", "--push", "me/birds", "--license", "mit", "--private")
    assert outcome.code == 0, outcome.err
    assert f"{hub.url}/me/birds" in outcome.out
    assert hub.private == {"me/birds": True}
    files = hub.repos["me/birds"]
    assert files.keys() == {".gitattributes", "README.md", "config.json", "model.safetensors"}
    card = files["README.md"].decode()
    assert card.startswith("---\n")
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
    assert set(hub.downloaded) == {"config.json", "model.safetensors"}


def test_another_format_replaces_the_files_of_the_first(hub: Hub, run: Path, tmp_path: Path) -> None:
    push(export_run(run, "safetensors", tmp_path / "one")[0], "me/birds")
    assert load_classifier(Path("hf:me/birds")).class_names == ("cat", "dog", "eel")
    hub.repos["me/birds"]["photo.png"] = b""
    assert "license:" not in hub.repos["me/birds"]["README.md"].decode().split("---")[1]
    push(export_run(run, "timm", tmp_path / "two")[0], "me/birds")
    assert hub.repos["me/birds"].keys() == {
        ".gitattributes", "README.md", "config.json", "model.safetensors", "photo.png",
    }  # fmt: skip
    with pytest.raises(UserError, match="public"):
        push(tmp_path / "two", "me/birds", private=True)


def test_a_push_without_a_token_writes_nothing(
    hub: Hub, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    outcome = contune("export", run, "--to", "timm", "--out", tmp_path / "out", "--push", "me/birds")
    assert outcome.code == 2
    assert "HF_TOKEN" in outcome.err
    assert "hf auth login" in outcome.err
    assert not (tmp_path / "out").exists()
    assert hub.repos == {}


@pytest.mark.parametrize("failure", ["no network", "wrong token"])
def test_a_failed_push_keeps_the_export(
    failure: str, hub: Hub, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if failure == "no network":
        hub.shutdown()
        hub.server_close()
    else:
        monkeypatch.setenv("HF_TOKEN", "hf_wrong")
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
