"""`contune.ContrastiveEncoder`: trains, transforms and behaves as scikit-learn expects of a transformer."""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted, validate_data

import contune
from contune import ContrastiveEncoder
from contune.console import say
from contune.errors import UserError
from contune.training.trainer import Trainer

DIGITS = (load_digits().images * 255 / 16).round().astype(np.uint8)
LABELS = load_digits().target
NUM = 96


def quick(**changes: Any) -> ContrastiveEncoder:
    values: dict[str, Any] = {"epochs": 1, "augmentation": "digits", "batch_size": 32, "random_state": 0}
    return ContrastiveEncoder("resnet-mini", **values | changes)


@pytest.fixture(scope="module")
def fitted() -> ContrastiveEncoder:
    return quick().fit(DIGITS[:NUM], LABELS[:NUM])


def test_features_and_attributes_after_fit(fitted: ContrastiveEncoder) -> None:
    features_ND = fitted.transform(DIGITS[:5])
    assert features_ND.shape == (5, 256)
    assert features_ND.dtype == np.float32
    assert list(fitted.get_feature_names_out()[[0, 255]]) == ["contrastiveencoder0", "contrastiveencoder255"]
    assert fitted.classes_.tolist() == list(range(10))
    assert fitted.history_[-1]["step"] == NUM // 32
    assert fitted.encoder_.spec.image_size == 8
    with torch.no_grad():
        by_hand = fitted.encoder_(torch.from_numpy(DIGITS[:5, None]))
    np.testing.assert_allclose(features_ND, by_hand.numpy(), rtol=1e-5, atol=1e-6)


def test_a_pipeline_can_be_searched() -> None:
    pipeline = Pipeline([("encode", quick()), ("classify", LogisticRegression(max_iter=500))])
    grid = {"encode__settings": [{"method.k1": 0}, {"method.k1": 500}]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(DIGITS[:NUM], LABELS[:NUM])
    assert search.best_estimator_["encode"].config_["method"]["k1"] in (0, 500)
    assert min(search.cv_results_["mean_test_score"]) > 0.2, "chance is 0.1"


def test_the_same_random_state_gives_the_same_features(fitted: ContrastiveEncoder) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    again = clone(fitted).fit(DIGITS[:NUM], LABELS[:NUM])
    assert torch.equal(torch.rand(3), expected), "the caller's random numbers are left alone"
    np.testing.assert_array_equal(again.transform(DIGITS[:9]), fitted.transform(DIGITS[:9]))
    other = quick(random_state=1).fit(DIGITS[:NUM], LABELS[:NUM])
    assert not np.allclose(other.transform(DIGITS[:9]), fitted.transform(DIGITS[:9]))


def test_every_form_of_the_same_images_gives_the_same_features(fitted: ContrastiveEncoder, tmp_path: Path) -> None:
    pictures = [Image.fromarray(pixels) for pixels in DIGITS[:6]]
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    expected_ND = fitted.transform(DIGITS[:6])
    colors = np.repeat(DIGITS[:6, ..., None], 3, axis=3)
    pictures[0], pictures[1] = pictures[0].convert("RGBA"), pictures[1].convert("CMYK").convert("L")
    arrays = (DIGITS[:6, ..., None], DIGITS[:6, None], DIGITS[:6] / 255, colors)
    tensors = (torch.from_numpy(DIGITS[:6, None]), torch.from_numpy(colors).permute(0, 3, 1, 2) / 255)
    for form in (*arrays, *tensors, pictures, paths, list(map(str, paths)), tmp_path, str(tmp_path)):
        np.testing.assert_allclose(fitted.transform(form), expected_ND, rtol=1e-5, atol=1e-6)


def test_without_labels() -> None:
    estimator = quick(epochs=0).fit(DIGITS[:64], LABELS[:64]).fit(DIGITS[:64])
    assert not hasattr(estimator, "classes_"), "nothing is left of an earlier fit"
    assert estimator.config_["method"]["supervised"] is False
    assert estimator.config_["augment"]["views"] == 3
    byol = quick(method="byol", augmentation=None, epochs=0).fit(DIGITS[:64], LABELS[:64])
    assert byol.config_["optim"]["name"] == "lars"
    assert len(byol.config_["augment"]["per_view"]) == 2
    settings = {"method.projector_hidden": None, "optim.batch_images": 32}
    simclr = quick(method="simclr", augmentation=None, settings=settings, epochs=0).fit(DIGITS[:64])
    assert simclr.config_["method"]["projector_hidden"] is None


def test_save_and_load(fitted: ContrastiveEncoder, tmp_path: Path) -> None:
    fitted.set_params(epochs=np.int64(1)).save(tmp_path / "kept")
    loaded = ContrastiveEncoder.load(tmp_path / "kept")
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    for other in (loaded, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.transform(DIGITS[:3]), fitted.transform(DIGITS[:3]))
    assert contune.load_encoder(tmp_path / "kept").spec == fitted.encoder_.spec
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="holds a run"):
        fitted.save(tmp_path)
    with pytest.raises(NotFittedError):
        quick().save(tmp_path / "unfitted")


@pytest.mark.parametrize(
    ("images", "labels", "parameters", "word"),
    [
        (DIGITS[:9].astype(int), None, {}, "int64"),
        (DIGITS[0], None, {}, "shape"),
        ([Image.fromarray(DIGITS[0]), 3], None, {}, "item 1"),
        ("nowhere/", None, {}, "nowhere"),
        (DIGITS[:9], LABELS[:9], {}, "batch_images=32"),
        (DIGITS[:9], LABELS[:9] + 0.5, {}, "label type"),
        (DIGITS[:64], None, {"method": "supcon"}, "labels"),
        (DIGITS[:40], LABELS[:40], {"image_size": 0}, "image_size"),
        (DIGITS[:40], LABELS[:40], {"settings": {"method.k3": 1}}, r"method\.k3"),
        (DIGITS[:40], LABELS[:40], {"settings": {"optim.patience": 1}}, "patience"),
    ],
)
def test_bad_input(images: Any, labels: Any, parameters: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):  # a UserError is one
        quick(**parameters).fit(images, labels)


def test_it_is_silent_and_warns(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Trainer, "fit", lambda trainer, log: say("the features have collapsed"))
    monkeypatch.setattr("contune.estimator.read_metrics", lambda folder: [])
    with pytest.warns(UserWarning, match="the features have collapsed"):
        quick().fit(DIGITS[:64], LABELS[:64])
    assert capfd.readouterr() == ("", "")


class OnRows(ContrastiveEncoder):
    """Rows of numbers as 8×8 images, because scikit-learn's checks pass rows."""

    def fit(self, X: Any, y: Any = None) -> "OnRows":
        super().fit(self._images(X, reset=True), y)
        return self

    def transform(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "encoder_")
        return super().transform(self._images(X, reset=False))

    def _images(self, X: Any, reset: bool) -> np.ndarray:
        rows_NP = validate_data(self, X, reset=reset, dtype=np.float64)
        return np.resize(255 / (1 + np.exp(-rows_NP.T)), (64, len(rows_NP))).T.reshape(-1, 8, 8).astype(np.uint8)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_valid_tag_types",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_fit_score_takes_y",
    "check_estimators_overwrite_params",
    "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self",
    "check_readonly_memmap_input",
    "check_estimators_unfitted",
    "check_dict_unchanged",
    "check_fit_idempotent",
    "check_fit_check_is_fitted",
    "check_estimators_pickle",
    "check_methods_sample_order_invariance",
    "check_transformer_get_feature_names_out",
)
"""All but those about tables: data frames, sparse or infinite values, one feature, sample weights."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_scikit_learns_own_checks(name: str) -> None:
    estimator = OnRows("resnet-mini", epochs=1, batch_size=4, augmentation="digits", random_state=0)
    getattr(estimator_checks, name)("OnRows", estimator)


def test_threads_do_not_disturb_each_other(fitted: ContrastiveEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = DIGITS[:NUM], LABELS[:NUM]
    with ThreadPoolExecutor(3) as pool:
        fits = [pool.submit(quick().fit, images, labels) for _ in range(2)]
        expected = [pool.submit(fitted.transform, images).result() for _ in range(2)]
        for each in fits:
            np.testing.assert_array_equal([each.result().transform(images)] * 2, expected)
    assert capsys.readouterr().out == ""
