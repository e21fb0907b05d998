"""All the measures of a trained encoder on one split, in the order a person reads them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from contune.config import EvalConfig
from contune.console import progress
from contune.data.loader import Loader, ResidentLoader
from contune.eval.features import extract_features
from contune.eval.knn import knn_protocol, knn_scores
from contune.eval.linear import linear_protocol, train_linear
from contune.eval.logistic import fit_logistic, logistic_protocol
from contune.eval.scores import Measure, measure
from contune.models.classifier import Classifier
from contune.train.setup import Setup

RAW_PIXEL_LIMIT = 2_000_000
"""Training values (images × pixels) up to which raw pixels are measured too: where that takes seconds."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was measured, and what a report draws it from."""

    measures: list[Measure]
    features_MD: Tensor
    """Of the measured split, on the CPU."""
    classifier: Classifier | None = None
    """To take home: the one trained with the encoder, else the best probe; None where there is neither."""

    @property
    def predicted_M(self) -> Tensor | None:
        """The classes that it takes the images for."""
        return None if self.classifier is None else self.classifier.predict(self.features_MD)

    @property
    def predicted_by(self) -> str:
        """Which of the measures that is; empty where there is none."""
        return "" if self.classifier is None else self.classifier.measure


def evaluate(
    setup: Setup,
    encoder: nn.Module,
    train: Loader,
    test: Loader,
    classifier: nn.Module | None = None,
    on_features: Callable[[Tensor], None] = lambda features_MD: None,
) -> Evaluation:
    """The protocols that `eval.*` names. Without labels there is nothing to measure, only features.

    `on_features` is called with those of the test images before anything is measured.
    """
    features = {name: _features(setup, encoder, loader, name) for name, loader in (("train", train), ("test", test))}
    on_features(features["test"])
    if train.labels_N is None or test.labels_N is None:
        return Evaluation(measures=[], features_MD=features["test"].cpu())

    protocols = _Protocols(setup, test.labels_N)
    measures = protocols.cached_features(features["train"], train.labels_N, features["test"])
    if classifier is not None:
        with torch.no_grad():
            scores_MK = classifier(features["test"])
        protocol = "the classifier trained with the encoder, cross-entropy, last epoch"
        measures.append(protocols.measure("classifier", scores_MK, protocol))
        assert isinstance(classifier, nn.Linear), type(classifier)
        protocols.keep("classifier", classifier.weight, classifier.bias)
    if setup.config.eval.linear == "paper":
        measures.append(protocols.paper(encoder, train, features["test"]))
    measures += protocols.raw_pixels(train, test)
    return Evaluation(measures=measures, features_MD=features["test"].cpu(), classifier=protocols.classifier)


class _Protocols:
    """One method a protocol; each scores the test images and names itself."""

    def __init__(self, setup: Setup, labels_M: Tensor) -> None:
        self.setup, self.config, self.labels_M = setup, setup.config.eval, labels_M
        self.classifier: Classifier | None = None

    def keep(self, name: str, weight_KD: Tensor, bias_K: Tensor) -> None:
        """The last of them is the best, but none replaces the classifier that the encoder was trained with."""
        if self.classifier is None or self.classifier.measure != "classifier":
            self.classifier = Classifier(
                weight_KD=weight_KD.detach().cpu(),
                bias_K=bias_K.detach().cpu(),
                class_names=self.setup.dataset.class_names,
                measure=name,
            )

    def measure(self, name: str, scores_MK: Tensor, protocol: str) -> Measure:
        return measure(
            name,
            scores_MK,
            self.labels_M,
            self.setup.dataset.class_names,
            protocol=protocol,
            split=self.config.split,
        )

    def cached_features(
        self, train_ND: Tensor, labels_N: Tensor, test_MD: Tensor, *, raw_pixels: bool = False
    ) -> list[Measure]:
        """The two protocols that need no more than numbers for each image."""
        config, num_classes = self.config, self.setup.num_classes
        prefix, words = ("pixels-", ("raw pixels",)) if raw_pixels else ("", ())
        votes_MK = knn_scores(
            train_ND, labels_N, test_MD, num_classes, k=config.knn_k, temperature=config.knn_temperature
        )
        protocol = knn_protocol(min(config.knn_k, len(train_ND)), config.knn_temperature, *words)
        knn = self.measure(prefix + "knn", votes_MK, protocol)
        if config.linear == "none":
            return [knn]
        probe = fit_logistic(train_ND, labels_N, num_classes)
        if not raw_pixels:
            self.keep("linear-fast", *probe.as_linear())
        return [self.measure(prefix + "linear-fast", probe.scores(test_MD), logistic_protocol(*words)), knn]

    def paper(self, encoder: nn.Module, train: Loader, test_MD: Tensor) -> Measure:
        config: EvalConfig = self.config
        policy = self.setup.config.augment.policy
        with progress("probe", config.linear_epochs, unit="epochs") as advance:
            linear = train_linear(
                encoder,
                train,
                self.setup.augmenter([policy]),
                test_MD.shape[1],
                self.setup.num_classes,
                epochs=config.linear_epochs,
                lr=config.linear_lr,
                batch=config.linear_batch,
                seed=self.setup.config.run.seed,
                autocast=self.setup.autocast,
                advance=advance,
            )
        protocol = linear_protocol(
            epochs=config.linear_epochs, lr=config.linear_lr, batch=min(config.linear_batch, len(train)), policy=policy
        )
        self.keep("linear", linear.weight, linear.bias)
        with torch.no_grad():
            return self.measure("linear", linear(test_MD), protocol)

    def raw_pixels(self, train: Loader, test: Loader) -> list[Measure]:
        """The same protocols on the images themselves: what an encoder has to beat."""
        if not (isinstance(train, ResidentLoader) and isinstance(test, ResidentLoader)):
            return []
        if train.images_NCHW.numel() > RAW_PIXEL_LIMIT:
            return []
        assert train.labels_N is not None
        train_ND, test_MD = (x.images_NCHW.flatten(1).float() / 255 for x in (train, test))
        return self.cached_features(train_ND, train.labels_N, test_MD, raw_pixels=True)


def _features(setup: Setup, encoder: nn.Module, loader: Loader, name: str) -> Tensor:
    with progress(f"{name} features", len(loader), unit="images") as advance:
        return extract_features(encoder, loader, setup.spec, autocast=setup.autocast, advance=advance)
