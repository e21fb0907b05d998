"""All the measures of a trained encoder on one split, in the order a person reads them."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from contune.config import EvalConfig
from contune.console import progress
from contune.data.augment import Augmenter
from contune.data.images import Loader, ResidentLoader
from contune.device import Autocast
from contune.eval import measures, probes
from contune.eval.retrieval import retrieval
from contune.models.saved import Classifier, EncoderSpec

RAW_PIXEL_LIMIT = 8_000_000
"""Training values (images × pixels) up to which raw pixels are measured too: where that takes seconds."""
MOST_PAIRS = 2**32
"""Queries × references: of more than 65,536 images only every n-th is a query."""
MOST_DISTANCES = 5e9
"""Images × classes × features up to which NMI is measured. An iteration of k-means takes so many multiplications."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What was measured, and what a report draws from it."""

    scores: list[dict[str, Any]]
    """Entries of result.json's `measures`: name, top1, top5, per_class, protocol, split, num_images."""
    retrieval: list[dict[str, Any]]
    """Entries of result.json's `retrieval`: name, values in per cent, protocol, split, num_images, num_classes."""
    features_MD: Tensor
    """Of the measured split, on the CPU."""
    classifier: Classifier | None = None
    """The one trained with the encoder, else the best probe; None without one label per image or a linear probe."""


def evaluate(
    encoder: nn.Module,
    train: Loader,
    test: Loader,
    *,
    spec: EncoderSpec,
    class_names: tuple[str, ...],
    settings: EvalConfig,
    augmenter: Augmenter,
    policy: str,
    seed: int = 0,
    autocast: Autocast = nullcontext,
    capture: probes.Capture | None = None,
    own: nn.Module | None = None,
    classifier: nn.Linear | None = None,
    online: nn.Linear | None = None,
    start: tuple[Tensor, Tensor] | None = None,
    val: Loader | None = None,
    unseen: Loader | None = None,
) -> Evaluation:
    """Measure an encoder by the protocols that `settings` names. Without labels there are only features.

    augmenter, policy: for the paper's probe, one view of each image, and how the config writes it.
    capture: makes the probe's step a CUDA graph.
    own: the module that the encoder is a copy of, where `spec` alone cannot build one.
    classifier: the one that was trained together with the encoder, if there is one.
    online: the probe of eval.online.
    start: features of the training and test images before training.
    val: validation images, on which the probabilities of the classifier are calibrated.
    unseen: images of classes that were held out, for retrieval.
    """

    def features_of(name: str, loader: Loader) -> Tensor:
        with progress(f"{name} features", len(loader), unit="image") as advance:
            return probes.extract_features(encoder, loader, spec, autocast=autocast, advance=advance)

    train_ND, test_MD = features_of("train", train), features_of("test", test)
    labels_N, labels_M, num_classes = train.labels_N, test.labels_N, len(class_names)
    if labels_N is None or labels_M is None:
        return Evaluation(scores=[], retrieval=[], features_MD=test_MD.cpu())

    counts_K = None if labels_N.dim() == 2 else labels_N.bincount(minlength=num_classes).tolist()
    found: list[dict[str, Any]] = []
    layers: dict[str, tuple[Tensor, Tensor]] = {}

    def add(key: str, scores_MK: Tensor, **values: Any) -> None:
        several = measures.SEVERAL_LABELS if labels_N.dim() == 2 else ""
        how = {"protocol": measures.MEASURES[key].protocol.format(**values) + several, "split": settings.split}
        found.append(score(key, scores_MK, labels_M, class_names, train_counts=counts_K, **how))

    def add_probes(train_ND: Tensor, test_MD: Tensor, prefix: str = "") -> None:
        if settings.linear != "none":
            penalty = probes.choose_penalty(train_ND, labels_N, num_classes)
            weight_KD, bias_K = probes.fit_logistic(train_ND, labels_N, num_classes, weight_penalty=penalty)
            add(f"{prefix}linear-fast", test_MD @ weight_KD.T + bias_K)
            found[-1]["weight_penalty"] = penalty
            layers[f"{prefix}linear-fast"] = weight_KD, bias_K
        knn: dict[str, Any] = {"k": min(settings.knn_k, len(train_ND)), "temperature": settings.knn_temperature}
        add(f"{prefix}knn", probes.knn_scores(train_ND, labels_N, test_MD, num_classes, **knn), **knn)

    add_probes(train_ND, test_MD)
    if classifier is not None:
        add("classifier", classifier(test_MD))
        layers["classifier"] = classifier.weight.detach(), classifier.bias.detach()
    if online is not None:
        add("online", online(test_MD))
    if settings.linear in ("paper", "authors"):
        authors = settings.linear == "authors"
        # The authors count two views of each image, also where they use one.
        batch = min(max(1, settings.linear_batch // 2) if authors else settings.linear_batch, len(train))
        sgd: dict[str, Any] = {"epochs": settings.linear_epochs, "lr": settings.linear_lr, "batch": batch}
        how = {"seed": seed, "autocast": autocast, "capture": capture, "authors": authors, **sgd}
        probed = encoder
        if authors:  # on a copy, because the probe changes it; a new one has no norms that wait for other processes
            probed = spec.build(own).to(test_MD.device)
            probed.load_state_dict(encoder.state_dict())
        with progress("probe", settings.linear_epochs, unit="epoch") as advance:
            sizes = test_MD.shape[1], num_classes
            linear = probes.train_linear(probed, train, augmenter, *sizes, advance=advance, **how)
        if authors:
            changed_MD = probes.extract_features(probed, test, spec, autocast=autocast)
            add("linear-authors", linear(changed_MD), policy=policy, **sgd)
        else:
            add("linear", linear(test_MD), policy=policy, **sgd)
            layers["linear"] = linear.weight.detach(), linear.bias.detach()
    if start is not None:
        add_probes(*start, measures.START)
    if isinstance(train, ResidentLoader) and isinstance(test, ResidentLoader):
        pixels_ND, pixels_MD = train.images_NCHW.flatten(1), test.images_NCHW.flatten(1)
        if pixels_ND.numel() <= RAW_PIXEL_LIMIT:  # what an encoder has to beat
            add_probes(pixels_ND.float() / 255, pixels_MD.float() / 255, measures.PIXELS)
    best = None
    key = next(filter(layers.__contains__, measures.PREFERENCES[measures.TOP1]), None)
    if key:
        weight_KD, bias_K = layers[key]
        if val is not None and val.labels_N is not None:
            val_VD = probes.extract_features(encoder, val, spec, autocast=autocast)
            temperature, _ = probes.best_temperature(val_VD @ weight_KD.T + bias_K, val.labels_N)
            weight_KD, bias_K = weight_KD / temperature, bias_K / temperature
        tensors = {"weight_KD": weight_KD.cpu(), "bias_K": bias_K.cpu()}
        best = Classifier(**tensors, class_names=class_names, measure=key, multilabel=labels_N.dim() == 2)
    retrieved: list[dict[str, Any]] = []
    if labels_M.dim() == 1:
        # A list may have other classes in its test split.
        name = measures.SEEN if torch.isin(labels_M, labels_N).any() else measures.UNSEEN
        retrieved = retrieval_entry(name, test_MD, labels_M, settings.split)
    if unseen is not None and unseen.labels_N is not None:
        retrieved += retrieval_entry(measures.UNSEEN, features_of("unseen", unseen), unseen.labels_N, "all")
    return Evaluation(scores=found, retrieval=retrieved, features_MD=test_MD.cpu(), classifier=best)


def retrieval_entry(name: str, features_MD: Tensor, labels_M: Tensor, split: str) -> list[dict[str, Any]]:
    """An entry of result.json's `retrieval`, among the images of a split; none if no class has two images."""
    num, num_classes = len(labels_M), len(labels_M.unique())
    if num == num_classes:
        return []
    every, nmi = -(-(num**2) // MOST_PAIRS), num * num_classes * features_MD.shape[1] <= MOST_DISTANCES
    queries = "queries: all images" if every == 1 else f"queries: one image in {every}"
    protocol = measures.RETRIEVAL["map@r"].protocol.format(queries=queries)
    return [
        {
            "name": name,
            "values": retrieval(features_MD, labels_M, every=every, nmi=nmi),
            "protocol": f"{protocol}; NMI: {measures.RETRIEVAL['nmi'].protocol}" if nmi else protocol,
            "split": split,
            "num_images": num,
            "num_classes": num_classes,
        }
    ]


def score(
    key: str,
    scores_NK: Tensor,
    labels_N: Tensor,
    class_names: tuple[str, ...],
    *,
    protocol: str = "",
    split: str = "",
    train_counts: Sequence[int] | None = None,
) -> dict[str, Any]:
    """An entry of result.json's `measures`: accuracies in per cent of scores (higher is likelier) for K classes.

    `top5` is None where there are fewer than six classes. Of a label matrix (N, K), several labels per image, a hit is
    any of an image's labels, `map` is the mean average precision, and `per_class` has that of each class with images.
    Otherwise `balanced` is the mean of `per_class`. train_counts: training images of each class, for `SHOTS`.
    """
    scores_NK, labels_N = scores_NK.detach().cpu(), labels_N.cpu()
    num_classes, is_matrix = scores_NK.shape[1], labels_N.dim() == 2
    top_N5 = scores_NK.topk(min(5, num_classes), dim=1).indices
    hits_N5 = labels_N.gather(1, top_N5) > 0 if is_matrix else top_N5 == labels_N[:, None]
    if is_matrix:
        from sklearn.metrics import average_precision_score

        present = (labels_N > 0).any(dim=0).nonzero()[:, 0]
        truth_NP, scores_NP = (labels_N > 0)[:, present], scores_NK.float()[:, present]
        precisions = average_precision_score(truth_NP.numpy(), scores_NP.numpy(), average=None) if len(present) else []
        by_class = dict(zip([class_names[k] for k in present], (100 * np.atleast_1d(precisions)).tolist(), strict=True))
        more = {measures.MAP: sum(by_class.values()) / max(1, len(by_class))}
    else:
        classes, place_N, sizes = labels_N.unique(return_inverse=True, return_counts=True)
        percent = 100 * place_N.bincount(hits_N5[:, 0].double()) / sizes
        accuracies = dict(zip(classes.tolist(), percent.tolist(), strict=True))
        by_class = {class_names[k]: accuracy for k, accuracy in accuracies.items()}
        more = {measures.BALANCED: sum(accuracies.values()) / max(1, len(accuracies))}
        counts = [num for num in train_counts or () if num]
        if train_counts and max(counts) > min(counts):
            more[measures.IMBALANCE] = round(max(counts) / min(counts), 2)
            for shot, (least, most) in measures.SHOTS.items():
                those = [accuracy for k, accuracy in accuracies.items() if least <= train_counts[k] <= most]
                more |= {shot: sum(those) / len(those)} if those else {}
    return {
        "name": key,
        "top1": 100 * hits_N5[:, 0].sum().item() / len(labels_N),
        "top5": 100 * hits_N5.any(dim=1).sum().item() / len(labels_N) if num_classes > 5 else None,
        **more,
        "per_class": by_class,
        "protocol": protocol,
        "split": split,
        "num_images": len(labels_N),
    }
