"""`contune.ContrastiveEncoder`: trains, transforms and behaves as scikit-learn expects of a transformer."""

import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits, load_sample_images
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted, validate_data

import contune
from contune import ContrastiveEncoder
from contune.errors import UserError
from contune.train import watch

DIGITS = (load_digits().images * 255 / 16).round().astype(np.uint8)
LABELS = load_digits().target
NUM = 160


def quick(**changes: Any) -> ContrastiveEncoder:
    values: dict[str, Any] = {"epochs": 1, "augmentation": "digits", "batch_size": 32, "random_state": 0}
    return ContrastiveEncoder("resnet-mini", **values | changes)


@pytest.fixture(scope="module")
def fitted() -> ContrastiveEncoder:
    return quick().fit(DIGITS[:NUM], LABELS[:NUM])


def test_features_and_what_fit_leaves(fitted: ContrastiveEncoder) -> None:
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


def test_a_pipeline_with_it_can_be_searched() -> None:
    """How good it becomes is what examples/sklearn_pipeline.py shows."""
    pipeline = Pipeline([("encode", quick()), ("classify", LogisticRegression(max_iter=500))])
    grid = {"encode__settings": [{"method.k1": 0}, {"method.k1": 500}]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(DIGITS[:NUM], LABELS[:NUM])
    assert search.best_estimator_["encode"].config_["method"]["k1"] in (0, 500)
    assert min(search.cv_results_["mean_test_score"]) > 0.2  # by chance 0.1


def test_the_same_state_gives_the_same_features_and_leaves_other_random_numbers_alone(
    fitted: ContrastiveEncoder,
) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    again = clone(fitted).fit(DIGITS[:NUM], LABELS[:NUM])
    assert torch.equal(torch.rand(3), expected)
    np.testing.assert_array_equal(again.transform(DIGITS[:9]), fitted.transform(DIGITS[:9]))
    other = quick(random_state=1).fit(DIGITS[:NUM], LABELS[:NUM])
    assert not np.allclose(other.transform(DIGITS[:9]), fitted.transform(DIGITS[:9]))


def test_every_form_of_the_same_images_gives_the_same_features(fitted: ContrastiveEncoder, tmp_path: Path) -> None:
    pictures = [Image.fromarray(pixels) for pixels in DIGITS[:6]]
    paths = [tmp_path / f"{number}.png" for number in range(6)]
    for picture, path in zip(pictures, paths, strict=True):
        picture.save(path)
    expected_ND = fitted.transform(DIGITS[:6])
    colours = np.repeat(DIGITS[:6, ..., None], 3, axis=3)
    for form in (DIGITS[:6, ..., None], colours, pictures, paths, list(map(str, paths)), tmp_path, str(tmp_path)):
        np.testing.assert_allclose(fitted.transform(form), expected_ND, rtol=1e-5, atol=1e-6)


def test_pictures_of_many_sizes_and_modes_are_learnt_from() -> None:
    whole = [Image.fromarray(photo) for photo in load_sample_images().images]
    pictures = [photo.crop((x, 0, x + 60 + x // 10, 90)) for photo in whole for x in range(0, 400, 50)]
    pictures[0] = pictures[0].convert("CMYK")
    pictures[1] = pictures[1].convert("RGBA")
    estimator = ContrastiveEncoder("resnet-mini", epochs=1, batch_size=8, image_size=24, random_state=0)
    features_ND = estimator.fit(pictures, [0] * 8 + [1] * 8).transform(pictures)
    assert (estimator.encoder_.spec.channels, estimator.encoder_.spec.image_size) == (3, 24)
    assert features_ND.shape == (16, 256)


def test_a_folder_of_class_folders_brings_its_labels(tmp_path: Path) -> None:
    for number in range(40):
        path = tmp_path / f"digit-{LABELS[number] % 2}" / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(DIGITS[number]).save(path)
    estimator = quick(image_size=8).fit(tmp_path)
    assert estimator.classes_.tolist() == ["digit-0", "digit-1"]
    assert estimator.config_["method"]["supervised"]
    assert estimator.transform(tmp_path).shape == (40, 256)


def test_labels_may_be_texts() -> None:
    estimator = quick().fit(DIGITS[:64], np.where(LABELS[:64] < 5, "low", "high"))
    assert estimator.classes_.tolist() == ["high", "low"]


def test_without_labels_tcl_learns_from_three_views() -> None:
    estimator = quick().fit(DIGITS[:64])
    assert not hasattr(estimator, "classes_")
    assert estimator.config_["method"]["supervised"] is False
    assert estimator.config_["augment"]["views"] == 3


def test_a_setting_of_none_is_none() -> None:
    settings = {"method.projector_hidden": None, "optim.batch_images": 32}
    estimator = quick(method="simclr", augmentation=None, settings=settings).fit(DIGITS[:64])
    assert estimator.config_["method"]["projector_hidden"] is None


def test_other_methods_without_labels_have_their_own_recipes() -> None:
    small = {"method.projector_hidden": 32, "method.projector_dim": 16, "method.predictor_hidden": 32}
    estimator = quick(method="byol", augmentation=None, settings=small).fit(DIGITS[:64], LABELS[:64])
    assert estimator.config_["optim"]["name"] == "lars"
    assert len(estimator.config_["augment"]["per_view"]) == 2
    with pytest.raises(UserError, match="method supcon learns from labels and there are none"):
        quick(method="supcon").fit(DIGITS[:64])


def test_numbers_of_numpy_are_saved_as_numbers(tmp_path: Path) -> None:
    estimator = quick(epochs=np.int64(0)).fit(DIGITS[:40], LABELS[:40])
    estimator.save(tmp_path / "saved")
    assert ContrastiveEncoder.load(tmp_path / "saved").get_params()["epochs"] == 0
    estimator.settings = {"method.k1": object()}
    with pytest.raises(UserError, match="cannot be saved"):
        estimator.save(tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_run_is_not_written_over_and_other_files_are_refused(fitted: ContrastiveEncoder, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="holds a run, whose encoder this would replace"):
        fitted.save(tmp_path)
    for text in ("{", "[]", '{"parameters": {"color": 1}}'):
        (tmp_path / "estimator.json").write_text(text)
        with pytest.raises(UserError, match=r"is not one that ContrastiveEncoder\.save wrote"):
            ContrastiveEncoder.load(tmp_path)


def test_nothing_of_an_earlier_fit_is_left() -> None:
    estimator = quick(epochs=0, method="simclr").fit(DIGITS[:40], LABELS[:40])
    assert hasattr(estimator, "classes_")
    assert not hasattr(estimator.fit(DIGITS[:40]), "classes_")


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"image_size": 0}])
def test_zero_is_not_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        quick(**wrong).fit(DIGITS[:40], LABELS[:40])


def test_what_is_saved_comes_back_and_any_encoder_loader_reads_it(fitted: ContrastiveEncoder, tmp_path: Path) -> None:
    fitted.save(tmp_path / "kept")
    loaded = ContrastiveEncoder.load(tmp_path / "kept")
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.tolist() == fitted.classes_.tolist()
    for other in (loaded, pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(other.transform(DIGITS[:3]), fitted.transform(DIGITS[:3]))
    assert contune.load_encoder(tmp_path / "kept").spec == fitted.encoder_.spec
    with pytest.raises(UserError, match=r"no estimator.json in .*; ContrastiveEncoder.save writes one"):
        ContrastiveEncoder.load(tmp_path)


def test_before_fit_nothing_can_be_asked(tmp_path: Path) -> None:
    for question in (lambda: quick().transform(DIGITS[:2]), lambda: quick().save(tmp_path)):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            question()


WRONG: list[tuple[Any, str]] = [
    (DIGITS[:9] / 255, "images of type float64 have no known range"),
    (DIGITS[0], r"an array of shape \(8, 8\) is not a set of images"),
    (DIGITS[:9, None], r"an array of shape \(9, 1, 8, 8\) is not a set of images"),
    ([Image.fromarray(DIGITS[0]), 3], "item 1 is of type int; a list holds pictures"),
    ("nowhere/", "'nowhere' is no folder"),
    ([], "have no known range"),
]


@pytest.mark.parametrize(("images", "sentence"), WRONG)
def test_what_is_no_set_of_images_is_a_sentence(images: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        quick().fit(images)


def test_other_wrong_requests(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="batch_size=32 is more than the 9 images; lower it"):
        quick().fit(DIGITS[:9], LABELS[:9])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        quick().fit(DIGITS[:9], LABELS[:8])
    with pytest.raises(ValueError, match="Unknown label type"):
        quick().fit(DIGITS[:9], LABELS[:9] + 0.5)
    with pytest.raises(UserError, match=r"unknown setting 'method\.k3'; did you mean"):
        quick(settings={"method.k3": 1}).fit(DIGITS[:64], LABELS[:64])
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        Image.fromarray(DIGITS[0]).save(tmp_path / split / "0.png")
    with pytest.raises(UserError, match=r"holds several splits; give one of them, such as '.*train'"):
        quick().fit(tmp_path)


def test_it_is_silent_and_turns_remarks_into_warnings(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watch, "collapse_sentence", lambda rank, step: "the features have collapsed")
    with pytest.warns(UserWarning, match="the features have collapsed"):
        quick().fit(DIGITS[:64], LABELS[:64])
    assert capfd.readouterr() == ("", "")


class OnNumbers(ContrastiveEncoder):
    """Rows of numbers as images of 8×8, since rows are what scikit-learn's checks bring."""

    def fit(self, X: Any, y: Any = None) -> "OnNumbers":
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
    "check_estimator_cloneable", "check_estimator_repr", "check_valid_tag_types", "check_mixin_order",
    "check_no_attributes_set_in_init", "check_do_not_raise_errors_in_init_or_set_params",
    "check_parameters_default_constructible", "check_get_params_invariance", "check_set_params",
    "check_fit_score_takes_y", "check_estimators_overwrite_params", "check_dont_overwrite_parameters",
    "check_estimators_fit_returns_self", "check_readonly_memmap_input", "check_estimators_unfitted",
    "check_dict_unchanged", "check_fit_idempotent", "check_fit_check_is_fitted", "check_estimators_pickle",
    "check_methods_sample_order_invariance", "check_transformer_get_feature_names_out",
)  # fmt: skip
"""Left out: what is about tables of numbers (data frames, sparse or infinite values, one feature, sample weights)."""


@pytest.mark.parametrize("name", CHECKS)
def test_scikit_learns_own_checks(name: str) -> None:
    estimator = OnNumbers("resnet-mini", epochs=1, batch_size=4, augmentation="digits", random_state=0)
    getattr(estimator_checks, name)("OnNumbers", estimator)


def test_threads_do_not_disturb_each_other(fitted: ContrastiveEncoder, capsys: pytest.CaptureFixture[str]) -> None:
    images, labels = DIGITS[:NUM], LABELS[:NUM]
    stdout = sys.stdout
    with ThreadPoolExecutor(3) as pool:
        fits = [pool.submit(quick().fit, images, labels) for _ in range(2)]
        features = [pool.submit(fitted.transform, images) for _ in range(12)]
        expected = fitted.transform(images)
        for each in fits:
            np.testing.assert_array_equal(each.result().transform(images), expected)
        for done in features:
            np.testing.assert_array_equal(done.result(), expected)
    assert sys.stdout is stdout
    assert capsys.readouterr().out == ""
