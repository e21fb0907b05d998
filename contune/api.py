"""`contune.train`: a whole run from Python, on files or on data in memory. `contune train` calls it too."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from contune.data import DATASETS
from contune.data.augment import Transform, transform_name
from contune.data.memory import MEMORY, digest_of, open_memory
from contune.errors import UserError
from contune.eval.measures import CLASSIFIER, KNN, LINEAR, judged_by
from contune.models import ImageEncoder, load_encoder
from contune.models.saved import own_name
from contune.recipes import configure, find_recipe
from contune.report import train_and_report
from contune.run import RunFolder
from contune.training.setup import Own

if TYPE_CHECKING:
    from contune.embedding import Embedded, Found, Predicted


def train(
    data: Any = None,
    recipe: str | None = None,
    encoder: str | nn.Module | None = None,
    transform: Transform | None = None,
    out: str | Path | None = None,
    **settings: Any,
) -> "Run":
    """Train an encoder, evaluate it and write a report, as `contune train` does.

        run = contune.train("photos/", epochs=50)
        run = contune.train((X, y), method="supcon", lr=1e-3, seed=1)

    The same call resumes a stopped run and reuses a finished one.

    data: a folder or parquet file, the name of a dataset, pixels X or (X, y), a list of PIL images or paths, a torch
        `Dataset`, a Hugging Face `Dataset`, or a mapping of `train` and `test` to such data. [default: the recipe's]
    recipe: [default: `digits` for digits, else `images`]
    encoder: a timm model by name, or your own module, from normalized images (N, C, S, S) to features (N, D). contune
        trains a copy of it.
    transform: a function that makes a view of one image: uint8 (C, H, W) in, uint8 or floats from 0 to 1 out.
        [default: the recipe's `augment.policy`]
    out: the run folder. [default: runs/RECIPE, with a hash of the settings if you change any]
    settings: any setting by its dotted key, as in **{"optim.epochs": 5}, or by the last part of it, as in epochs=5.
    """
    recipe = recipe or ("digits" if data is None or (isinstance(data, str) and data == "digits") else "images")
    base = find_recipe(recipe)()
    module = encoder if isinstance(encoder, nn.Module) else None
    # Python of others may not be compiled or captured.
    overrides = settings if module is None and transform is None else {"run.engine": "eager", **settings}
    splits = None
    if isinstance(data, str | Path):
        if data in DATASETS:
            overrides |= {"data.name": data} if data != base.data.name else {}
        else:  # the root of a dataset that has one, else your images
            overrides |= {"data.path": data} | ({"data.name": "images"} if base.data.name == "digits" else {})
    elif data is not None:
        splits = open_memory(data, settings.get("data.label_column", settings.get("label_column")))
        overrides |= {"data.name": MEMORY, "data.path": digest_of(splits)}
    if encoder is not None:
        overrides["model.encoder"] = encoder if isinstance(encoder, str) else own_name(encoder)
    if transform is not None:
        overrides["augment.policy"] = transform_name(transform)
    config, name = configure(recipe, overrides)
    own = Own(data=splits, encoder=module, transform=transform)
    folder = RunFolder(out or Path("runs") / name)
    return Run(folder.path, train_and_report(config, folder, own=own), own)


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """A finished run."""

    folder: Path
    result: dict[str, Any]
    """The content of result.json."""
    own: Own = field(default_factory=Own)
    """Data, encoder and transform that you passed."""

    @cached_property
    def encoder(self) -> ImageEncoder:
        """The trained encoder, from `contune.load_encoder`."""
        return load_encoder(self.folder, self.own.encoder)

    def embed(self, images: Any, **options: Any) -> "Iterator[Embedded]":
        """`contune.embed` with this run."""
        from contune.embedding import embed  # not needed to train

        return embed(self.encoder, images, **options)

    def predict(self, images: Any, **options: Any) -> "Iterator[Predicted]":
        """`contune.predict` with this run."""
        from contune.embedding import predict

        return predict(self.folder, images, encoder=self.encoder, **options)

    def search(self, images: Any, query: Any, **options: Any) -> "list[Found]":
        """`contune.search` with this run."""
        from contune.embedding import search

        return search(self.folder, images, query, encoder=self.encoder, **options)

    @property
    def report(self) -> "Report":
        """The report, which a notebook shows."""
        path = RunFolder(self.folder).report_file
        if not path.exists():
            raise UserError(f"{self.folder} has no report; train with run.report=true")
        return Report(path)

    def extend(self, out: str | Path | None = None, **settings: Any) -> "Run":
        """Train further, to a new total of `epochs`, in the same folder or in `out`.

        The learning rate follows the schedule of the new total from here on, so it usually jumps up first.
        """
        before, folder = RunFolder(self.folder), RunFolder(out or self.folder)
        config = before.config().override(settings)
        return Run(folder.path, train_and_report(config, folder, own=self.own, extends=before), self.own)

    def __repr__(self) -> str:
        words, found = {"probe": LINEAR, "kNN": KNN, "classifier": CLASSIFIER}, {"measures": (), **self.result}
        judged = [(title, judged_by(found, column)) for title, column in words.items()]
        scores = [f"{title} {score['top1']:.2f} %" for title, score in judged if score]
        about = [str(self.result[key]) for key in ("method", "encoder") if key in self.result]
        return f"Run({str(self.folder)!r}: {', '.join([*about, *scores])})"


@dataclass(frozen=True)
class Report:
    """The report of a run."""

    path: Path

    def _repr_html_(self) -> str:
        page = escape(self.path.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" width="100%" height="800" frameborder="0"></iframe>'
