"""What all tests share: hypothesis without deadlines, small thread pools, one small trained run."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

LONGEST = (
    "test_fused.py",
    "test_trainer.py",
    "test_resume.py",
    "test_many.py",
    "test_pretrained.py",
    "test_export.py",
    "test_edges.py",
    "test_augment_kernels.py",
    "test_plan.py",
    "test_site_snippets.py",
    "test_session.py",
    "test_golden.py",
    "test_two_processes.py",
)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("numprocesses", None) and "PYTEST_XDIST_WORKER" not in os.environ:
        return  # this process only hands tests to others, and they wait while it imports
    import torch
    from hypothesis import settings

    if not torch.cuda.is_available():
        os.environ.setdefault("TRITON_INTERPRET", "1")  # before anything imports triton, which reads it then
    from contune.device import torchvision  # noqa: F401  (before any test or library imports torchvision by itself)

    settings.register_profile("contune", deadline=None, max_examples=50, derandomize=True, database=None)
    settings.load_profile("contune")
    torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that neither of two processes is left with one at the end."""
    order = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session", autouse=True)
def _less_work() -> Iterator[None]:
    """Small runs would spend most of their time on the report's t-SNE and the choice of the probe's penalty."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("contune.report.plots.MAP_POINTS", 100)
        patch.setattr("contune.eval.probes.PENALTIES", (1e-3, 1e-1))
        yield


@pytest.fixture(scope="session")
def digits_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished run of ten small steps with everything on, not to be changed, and what it printed.

    The first process of pytest-xdist that needs the run leaves it to the others.
    """
    from command_line import contune

    own = tmp_path_factory.mktemp("digits")
    shared = own.parent.parent / "digits" if "PYTEST_XDIST_WORKER" in os.environ else own
    if not (shared / "printed.txt").exists():
        small = ("optim.epochs=2", "data.val_fraction=0.8", "optim.batch_images=32", "run.log_every=4")
        outcome = contune("train", *small, "--out", own / "run")
        assert outcome.code == 0, outcome.err
        (own / "printed.txt").write_text(outcome.out)
        with suppress(OSError):  # another one was faster
            own.rename(shared)
        shared = shared if shared.exists() else own
    return shared / "run", (shared / "printed.txt").read_text()


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was never trained: enough for what comes after training."""
    from small_run import write_run

    return write_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images for it, in class folders."""
    from small_run import write_images

    return write_images(tmp_path_factory.mktemp("images") / "photos")


@pytest.fixture(autouse=True)
def nothing_seen_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU, batches without positives are looked for once per batch size; every test starts afresh."""
    from contune.losses import dispatch

    monkeypatch.setattr(dispatch, "_sizes_seen", set())
