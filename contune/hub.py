"""Models by name: exports on the Hugging Face Hub (`hf:OWNER/NAME`, `hf:OWNER/NAME@REVISION`), and our collection.

Tokens come from the environment or from the hub's own store. Only safetensors and JSON files are downloaded, no pickle.
"""

import json
import os
import re
from pathlib import Path

from safetensors import safe_open

from contune.errors import UserError
from contune.files import expanded

PREFIX = "hf:"
FILES = ["config.json", "model.safetensors", "encoder.safetensors", "classifier.safetensors"]
"""What is downloaded of an export. An upload replaces all of them, so that two exports never mix."""
LIST = "models.json"  # of the collection, with checksums
LOG_IN = "set HF_TOKEN, or run `hf auth login`"


def local(source: str | Path) -> Path:
    """A path, the folder of a model of the collection, or the one that an `hf:` name was downloaded to.

    Without a network, what was downloaded before.
    """
    if not str(source).startswith(PREFIX):
        path, place = expanded(source), expanded(os.environ.get("CONTUNE_MODELS", "models"))
        listed, folder = place / LIST, place / str(source)
        for model in json.loads(listed.read_text("utf-8")) if folder.is_dir() and not path.exists() else ():
            file: Path = folder / model["file"]
            if model["name"] == str(source) and file.exists():
                with safe_open(file, framework="pt") as opened:  # whoever loads the weights compares them with this
                    if opened.metadata().get("sha256") != model["sha256"]:
                        raise UserError(f"{file} has other weights than {listed} lists; download it again.")
                return file.parent
        return path
    from huggingface_hub import snapshot_download

    name, _, revision = str(source).removeprefix(PREFIX).partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, allow_patterns=FILES))
    except Exception as error:  # the hub's, its HTTP client's and its cache's own
        fix = f"check the name and the network; for a private model {LOG_IN}"
        raise UserError(f"cannot download {source}: {_reason(error)}; {fix}") from None


def check_push(repo: str) -> None:
    """Whether an upload may begin: `repo` is a possible name, and there is a token."""
    from huggingface_hub import get_token

    if not re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", repo):
        raise UserError("--push takes OWNER/NAME: your name or an organization's on the hub, and the model's.")
    if get_token() is None:
        raise UserError(f"--push needs a token of the Hugging Face Hub with write access; {LOG_IN}.")


def push(folder: Path, repo: str, *, private: bool = False) -> str:
    """Upload an export, into a new repository if there is none yet. Returns its address."""
    from huggingface_hub import HfApi

    api = HfApi()
    try:
        url = api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise UserError(f"{repo} is public; make it private or choose another name. The export stays in {folder}.")
        message = "Upload an encoder trained by contune"
        api.upload_folder(repo_id=repo, folder_path=folder, delete_patterns=FILES, commit_message=message)
    except UserError:
        raise
    except Exception as error:  # the hub's and its HTTP client's own
        fix = f"the export stays in {folder}; upload it later with `hf upload {repo} {folder}`"
        raise UserError(f"cannot upload to {repo}: {_reason(error)}; {fix}") from None
    return str(url)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
