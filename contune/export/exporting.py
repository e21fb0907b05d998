"""From a run folder to a folder to take home: written aside, checked, and only then put in its place."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from contune.errors import UserError, unknown
from contune.export.card import model_card
from contune.export.onnx_graph import write_onnx
from contune.export.safetensors_folder import write_safetensors
from contune.export.source import Source, Written, open_source
from contune.export.timm_folder import write_timm
from contune.files import unwritable

Writer = Callable[[Source, Path], Written]
FORMATS: dict[str, Writer] = {
    "timm": write_timm,
    "safetensors": write_safetensors,
    "onnx": write_onnx,
}


@dataclass(frozen=True, kw_only=True)
class Exported:
    folder: Path
    files: tuple[str, ...]
    deviation: float
    """How far its features are from the run's, as a share of the largest."""


def export_run(run: str | Path, to: str, out: str | Path | None = None, *, half: bool = False) -> Exported:
    """Writes the encoder of a run as `to` into the folder `out`, RUN/TO if not given, with a model card.

    What is written is loaded again as its user would, and compared with the run's encoder on photos: a folder
    whose features differ is not left behind. `half`: for onnx, weights in half precision.
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    if half and to != "onnx":
        raise UserError(f"--half is for onnx, and the format is {to}; leave it out")
    folder = Path(run) / to if out is None else Path(out)
    _check_free(folder)
    source = open_source(Path(run))
    writer: Writer = partial(write_onnx, half=True) if half else FORMATS[to]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = Path(mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise unwritable(folder, error) from error
    try:
        written = writer(source, part)
        (part / "README.md").write_text(model_card(source, written), encoding="utf-8")
        part.chmod(0o755)  # temporary folders are for their owner only
        part.replace(folder)
    except OSError as error:
        raise unwritable(folder, error) from error
    finally:
        rmtree(part, ignore_errors=True)
    files = tuple(sorted(path.name for path in folder.iterdir()))
    return Exported(folder=folder, files=files, deviation=written.deviation)


def _check_free(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; give a folder with --out")
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; remove it, or give another folder with --out")
