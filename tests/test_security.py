"""Files from strangers: nothing in them is run, what they say is checked, and no name becomes markup."""

import ast
import hashlib
import io
import json
import pickle
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import PLAIN, contune, train
from safetensors.torch import load_file, save_file

import contune as package
from contune.errors import UserError
from contune.models import load_encoder
from contune.report.page import write_report
from contune.train import checkpoint
from contune.train.checkpoint import load_checkpoint

sys.path.append(str(Path(__file__).parent / "analysis"))
from finished_runs import finished_run
from strict_html import Page

SOURCES = sorted(Path(package.__file__).parent.rglob("*.py"))
RUN = ("digits", "optim.epochs=0", "eval.linear=none")
CPU = torch.device("cpu")


def calls(tree: ast.AST) -> list[tuple[str, ast.Call]]:
    return [(ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]


FORBIDDEN = {
    "eval", "exec", "compile", "__import__", "os.system", "os.popen", "pickle.load", "pickle.loads", "yaml.load",
    "yaml.unsafe_load", "marshal.loads", "shelve.open", "joblib.load", "torch.hub.load", "urllib.request.urlopen",
    "requests.get", "hf_hub_download", "snapshot_download",
}  # fmt: skip


def offences(source: str) -> list[str]:
    """Calls that could run what a file or a setting says, or fetch something that nobody has checked."""
    found = []
    for name, call in calls(ast.parse(source)):
        words = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
        if name in FORBIDDEN:
            found.append(name)
        if name.endswith("torch.load") and words.get("weights_only") != "True":
            found.append(f"{name} without weights_only=True")
        if name.endswith(("np.load", "numpy.load")) and words.get("allow_pickle", "False") != "False":
            found.append(f"{name} with pickles")
        if words.get("shell", "False") != "False":
            found.append(f"{name} through a shell")
        fetches = words.get("pretrained", "False") != "False" or words.get("download", "False") != "False"
        if fetches and not any("local-dir:" in ast.unparse(argument) for argument in call.args):
            found.append(f"{name} from the network")
    return found


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: str(path.relative_to(SOURCES[0].parent)))
def test_no_call_runs_what_a_file_says(source: Path) -> None:
    assert offences(source.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(p)", "torch.load(p, weights_only=False)", "pickle.loads(b)", "eval(t)", "yaml.load(f)",
        "np.load(p, allow_pickle=True)", "subprocess.run(c, shell=True)", "CIFAR10(r, download=True)",
        "timm.create_model(n, pretrained=True)",
    ],
)  # fmt: skip
def test_the_search_finds_what_it_is_for(line: str) -> None:
    assert offences(line)
    assert not offences("torch.load(p, weights_only=True); model.eval(); np.load(p)")


def test_the_only_unpickler_builds_arrays_and_nothing_else() -> None:
    """CIFAR's files are pickles; tests/data/test_cifar.py has one that would run code."""
    with_pickle = [path.name for path in SOURCES if "pickle.Unpickler" in path.read_text(encoding="utf-8")]
    assert with_pickle == ["cifar.py"]


class Payload:
    """Pickled, it is a call that leaves a file behind."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.target,)


def sealed(content: bytes) -> bytes:
    """With a checksum that fits, as somebody who means harm would write it."""
    return content + checkpoint._SEAL + hashlib.sha256(content).hexdigest().encode() + b"\n"


def payloads(target: Path) -> list[bytes]:
    as_torch = io.BytesIO()
    torch.save({"step": 1, "method": Payload(target)}, as_torch)
    before_zip = io.BytesIO()
    torch.save({"step": 1, "method": Payload(target)}, before_zip, _use_new_zipfile_serialization=False)
    return [pickle.dumps(Payload(target)), as_torch.getvalue(), before_zip.getvalue()]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    train(folder, *RUN)
    return folder


def test_the_payload_works_where_pickles_are_trusted(tmp_path: Path) -> None:
    """Or the tests below would prove nothing."""
    target = tmp_path / "harm"
    plain, *as_torch = payloads(target)
    pickle.loads(plain)
    assert target.exists()
    for content in as_torch:
        target.unlink()
        torch.load(io.BytesIO(content), weights_only=False)
        assert target.exists()


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("with_checksum", [True, False])
def test_a_checkpoint_is_not_run(number: int, with_checksum: bool, tmp_path: Path, finished: Path) -> None:
    target = tmp_path / "harm"
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / "result.json").unlink()
    content = payloads(target)[number]
    for name in ("checkpoint.pt", "checkpoint.previous.pt"):
        (folder / name).write_bytes(sealed(content) if with_checksum else content)
    with pytest.raises(UserError, match="cannot be read"):
        load_checkpoint(folder, CPU)
    outcome = contune("train", *RUN, *PLAIN, "--out", folder)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert not target.exists()


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("name", ["encoder.safetensors", "result.json", "config.json", "metrics.jsonl"])
def test_no_other_file_of_a_run_is_run(name: str, number: int, tmp_path: Path, finished: Path) -> None:
    target = tmp_path / "harm"
    folder = shutil.copytree(finished, tmp_path / "run")
    (folder / name).write_bytes(payloads(target)[number])
    again = contune("train", *RUN, *PLAIN, "--out", folder)
    measured = contune("eval", folder)
    assert not target.exists()
    codes = {"encoder.safetensors": (0, 2), "result.json": (2, 0), "config.json": (2, 2), "metrics.jsonl": (0, 0)}
    assert (again.code, measured.code) == codes[name]
    assert "Traceback" not in again.err + measured.err


def described(change: dict[str, Any]) -> dict[str, str]:
    spec = {"encoder": "resnet-mini", "stem": "auto", "norm": "batch", "image_size": 8, "channels": 1}
    return {"contune": json.dumps({**spec, "mean": [0.5], "std": [0.5], **change})}


@pytest.mark.parametrize(
    "change",
    [
        {"encoder": "hf-hub:somebody/something"}, {"encoder": "local-dir:/etc"}, {"encoder": 3}, {"encoder": None},
        {"image_size": 10**9}, {"image_size": "8"}, {"image_size": -1}, {"channels": 10**9}, {"channels": [1]},
        {"mean": "x"}, {"mean": [0.5] * 5}, {"std": [0.0]}, {"std": [float("nan")]}, {"mean": None},
        {"stem": "__import__('os')"}, {"norm": {}}, {"more": 1},
    ],
)  # fmt: skip
def test_what_an_encoder_says_of_itself_is_checked(change: dict[str, Any], tmp_path: Path, finished: Path) -> None:
    file = tmp_path / "encoder.safetensors"
    tensors = load_file(finished / "encoder.safetensors")
    save_file(tensors, file, metadata=described({}))
    load_encoder(file)
    save_file(tensors, file, metadata=described(change))
    with pytest.raises(UserError):
        load_encoder(file)
    for text in ("[]", "{", "3", "[" * 100_000):
        save_file(tensors, file, metadata={"contune": text})
        with pytest.raises(UserError, match="is not one that contune wrote"):
            load_encoder(file)


HOSTILE: list[dict[str, Any]] = [
    {"run": {"seed": "__import__('os').system('touch harm')"}},
    {"data": {"name": "../../etc/passwd"}},
    {"data": {"path": {"a": 1}}},
    {"data": {"path": "a\x00b", "name": "images"}},
    {"model": {"encoder": "hf-hub:somebody/something"}},
    {"model": {"encoder": ["resnet18"]}},
    {"augment": {"policy": "digits rotation=__import__('os').system('touch harm')"}},
    {"augment": {"per_view": [1, 2]}},
    {"optim": {"lr": float("nan")}},
    {"optim": {"lr": [0.1]}},
    {"optim": {"epochs": True}},
    {"optim": {"epochs": 1e400}},
    {"method": {"name": "__class__"}},
    {"method": {"__class__": "x"}},
    {"method": {"temperature": None}},
    {"method": []},
    {"__class__": {}},
    {"eval": {"linear": ["fast"]}},
]


@pytest.mark.parametrize("values", HOSTILE, ids=str)
def test_a_config_is_data_and_wrong_data_is_a_sentence(
    values: dict[str, Any], tmp_path: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(finished, tmp_path / "run")
    tree: dict[str, Any] = json.loads((folder / "config.json").read_text())
    for section, changes in values.items():
        tree[section] = {**tree.get(section, {}), **changes} if isinstance(changes, dict) else changes
    (folder / "config.json").write_text(json.dumps(tree))
    before = set(tmp_path.rglob("*"))
    outcome = contune("train", *RUN, *PLAIN, "--out", folder)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
    measured = contune("eval", folder)
    assert measured.code in (0, 2), "an eval needs neither that encoder's name nor the views"
    assert "Traceback" not in measured.err
    assert set(tmp_path.rglob("*")) == before


NASTY = "<script>alert(1)</script>\" onmouseover='x' & {} \u202e"


def test_names_are_text_on_the_page_and_never_markup(tmp_path: Path) -> None:
    """Of classes, files, folders and settings, wherever they show."""
    run = finished_run(class_name="k{}" + NASTY.replace("{}", ""), name=NASTY)
    run["result"] |= {"data": NASTY, "method": NASTY, "hardware": NASTY, "command": NASTY, "git_revision": NASTY}
    run["result"]["versions"] = {NASTY: NASTY}
    for measure in run["result"]["measures"]:
        measure["protocol"] = NASTY
    run["config"] = {"data": {"name": NASTY, "path": f"/tmp/{NASTY}"}, NASTY: {NASTY: [NASTY]}}
    run["metrics"] = [line | {NASTY: 1.0} for line in run["metrics"]]
    folder = tmp_path / "<b onclick=alert(1)>run"
    folder.mkdir()
    write_report(folder / "report.html", **run)
    source = (folder / "report.html").read_text(encoding="utf-8")
    assert "<script" not in source
    page = Page(source)
    assert not page.all("script")
    assert not [(tag, name) for tag, attributes in page.attributes for name in attributes if name.startswith("on")]
    assert "alert(1)" in page.text, "the names are there, as text"
    assert "default-src 'none'" in source, "and if one slipped through, the page may run nothing"


def test_a_run_folder_with_a_hostile_name_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=alert(1)> $(touch harm)"
    outcome = contune("train", *RUN, "run.tensorboard=false", "--out", folder)
    assert outcome.code == 0, outcome.err
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    assert all(attributes.get("src", "data:").startswith("data:") for attributes in page.all("img"))
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
