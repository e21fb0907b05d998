"""A frozen encoder's features, and class scores from it: weighted kNN, logistic regression, the paper's linear probe.

Shapes: N training and M test images, D features, K classes.
"""

from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice, repeat
from math import cos, pi
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune.console import Advance
from contune.data.augment import Augmenter, eval_transform
from contune.data.images import Loader
from contune.data.sampler import mixed_generator, mixed_seed, shuffled_order
from contune.device import Autocast
from contune.methods.base import classification_loss, top1
from contune.models.saved import EncoderSpec, evaluating

EVAL_BATCH = 512
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Of the fast probe. Few images need a large one."""
FOLDS, MANY_IMAGES = 3, 5000
"""Of the cross-validation; of more images than these, one fold decides."""
CONSTANT = 1e-6
"""A feature with at most this standard deviation is constant up to rounding and is not scaled."""
KNN_CHUNK = 1024
"""Test rows compared at once, so that the train × test matrix never exists."""
VALIDATION_IMAGES = 10_000
PROBE_STREAM = 2**32
"""Keeps the probe's random numbers apart from those of training with the same seed."""

Step = Callable[[Tensor, Tensor | None], dict[str, Tensor]]
"""One training step: from raw images and labels to scalars worth a curve."""
Capture = Callable[[Step, torch.Generator], Step]
"""Turns a step into the same step as a CUDA graph."""


@torch.no_grad()
def extract_features(
    encoder: nn.Module,
    loader: Loader,
    spec: EncoderSpec,
    *,
    rows: Tensor | None = None,
    autocast: Autocast = nullcontext,
    advance: Advance | None = None,
) -> Tensor:
    """The features of each image as it looks at test time: float32 (N, num_features), in the loader's order.

    The encoder is left in evaluation mode. rows: of these images only.
    """
    encoder.eval()
    rows = torch.arange(len(loader)) if rows is None else rows
    parts: list[Tensor] = []
    done, autotune = 0, torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False  # a single pass is over before autotuning would pay
    for images_BCHW, _ in loader.batches(rows.split(EVAL_BATCH)):
        x_BCHW = eval_transform(images_BCHW, spec.image_size, spec.mean, spec.std)
        with autocast():
            parts.append(encoder(x_BCHW).float())
        done += len(images_BCHW)
        if advance is not None:
            advance(done, "")
    torch.backends.cudnn.benchmark = autotune
    return torch.cat(parts)


@torch.no_grad()
def knn_scores(
    train_ND: Tensor, labels_N: Tensor, test_MD: Tensor, num_classes: int, *, k: int = 20, temperature: float = 0.1
) -> Tensor:
    """(M, K) votes: the k training images of highest cosine similarity s, each voting exp(s / temperature).

    The protocol of Wu et al. 2018, with the values most self-supervised papers use. A training set smaller
    than k votes as a whole.
    """
    k = min(k, len(train_ND))
    train_ND, labels_N = F.normalize(train_ND, dim=1), labels_N.to(train_ND.device)
    parts = []
    for test_CD in F.normalize(test_MD, dim=1).split(KNN_CHUNK):
        nearest = (test_CD @ train_ND.T).topk(k, dim=1)
        # Relative to the nearest, so that a small temperature cannot overflow.
        weights_Ck = ((nearest.values - nearest.values[:, :1]) / temperature).exp()
        if labels_N.dim() == 2:  # shares of the vote, which images can be ranked by
            shares_Ck1 = (weights_Ck / weights_Ck.sum(dim=1, keepdim=True))[:, :, None]
            parts.append((shares_Ck1 * labels_N[nearest.indices]).sum(dim=1))
            continue
        votes_CK = test_CD.new_zeros(len(test_CD), num_classes)
        parts.append(votes_CK.scatter_add_(1, labels_N[nearest.indices], weights_Ck))
    return torch.cat(parts)


@torch.no_grad()
def validation_accuracy(
    encoder: nn.Module, train: Loader, val: Loader, spec: EncoderSpec, *, autocast: Autocast, **knn: Any
) -> Tensor:
    """Accuracy of `knn_scores` on validation images, with up to 10,000 training images; of several labels, mAP."""
    assert train.labels_N is not None
    assert val.labels_N is not None
    step = -(-len(train) // VALIDATION_IMAGES)
    rows_N = torch.arange(0, len(train), step)  # evenly spaced: the order may be by class
    with evaluating(encoder):
        train_ND = extract_features(encoder, train, spec, rows=rows_N, autocast=autocast)
        val_MD = extract_features(encoder, val, spec, autocast=autocast)
    labels_N = train.labels_N[rows_N.to(train.labels_N.device)]
    scores_MK = knn_scores(train_ND, labels_N, val_MD, **knn)
    if val.labels_N.dim() == 2:
        from contune.eval.evaluate import score  # it imports this module

        found = score("knn", scores_MK.nan_to_num(), val.labels_N, tuple(map(str, range(scores_MK.shape[1]))))
        return torch.tensor(found["map"] / 100)
    return top1(scores_MK, val.labels_N)


def fit_logistic(
    train_ND: Tensor, labels_N: Tensor, num_classes: int, *, weight_penalty: float = 1e-4, max_iterations: int = 200
) -> tuple[Tensor, Tensor]:
    """The fast linear probe: multinomial logistic regression on standardized features, fitted by L-BFGS.

    Minimizes mean cross-entropy + weight_penalty/2 · |W|², which is convex: no seed, no learning rate. With a label
    matrix (N, K), several labels per image, it is a logistic regression for each class. Returns the (K, D) weights and
    (K,) biases for features that are not standardized.
    """
    mean_D = train_ND.mean(dim=0)
    std_D = train_ND.std(dim=0)
    scale_D = torch.where(std_D > CONSTANT, std_D, 1.0)
    x_ND = (train_ND - mean_D) / scale_D
    labels_N = labels_N.to(x_ND.device)
    weight_DK = torch.zeros(x_ND.shape[1], num_classes, device=x_ND.device, requires_grad=True)
    bias_K = torch.zeros(num_classes, device=x_ND.device, requires_grad=True)
    solver = torch.optim.LBFGS(
        [weight_DK, bias_K], max_iter=max_iterations, history_size=20, line_search_fn="strong_wolfe"
    )

    def objective() -> Tensor:
        solver.zero_grad()
        loss = classification_loss(x_ND @ weight_DK + bias_K, labels_N, multilabel=labels_N.dim() == 2)
        loss = loss + weight_penalty / 2 * weight_DK.square().sum()
        loss.backward()
        return loss

    solver.step(objective)
    weight_DK = weight_DK.detach() / scale_D[:, None]
    return weight_DK.T, bias_K.detach() - mean_D @ weight_DK


def choose_penalty(train_ND: Tensor, labels_N: Tensor, num_classes: int) -> float:
    """The weight penalty of the fast probe that predicts training images best which it was not fitted to.

    A class's images go to the folds in turn. A large penalty makes predictions unsure, which costs nothing here: they
    are compared at their best temperature.
    """
    order_N = labels_N.argsort(stable=True) if labels_N.dim() == 1 else torch.arange(len(labels_N))
    fold_N = torch.empty(len(labels_N), dtype=torch.long, device=train_ND.device)
    fold_N[order_N.to(train_ND.device)] = torch.arange(len(labels_N), device=train_ND.device) % FOLDS
    labels_N = labels_N.to(train_ND.device)
    num_folds = FOLDS if len(labels_N) <= MANY_IMAGES else 1
    folds_FN = fold_N == torch.arange(num_folds, device=fold_N.device)[:, None]
    held_labels = labels_N[folds_FN.nonzero()[:, 1]]
    losses = {}
    for penalty in PENALTIES if len(labels_N) >= FOLDS else PENALTIES[:1]:
        logits = []
        for held_N in folds_FN:
            weight_KD, bias_K = fit_logistic(
                train_ND[~held_N], labels_N[~held_N], num_classes, weight_penalty=penalty, max_iterations=30
            )
            logits.append(train_ND[held_N] @ weight_KD.T + bias_K)
        losses[penalty] = best_temperature(torch.cat(logits), held_labels)[1]
    return min(losses, key=losses.__getitem__)


def best_temperature(logits_MK: Tensor, labels_M: Tensor) -> tuple[float, float]:
    """By which to divide logits so that they are as sure as they are right (Guo et al. 2017), and the loss then."""
    losses = {}
    for temperature in torch.logspace(-1.5, 1.5, 61).tolist():
        loss = classification_loss(logits_MK / temperature, labels_M, multilabel=labels_M.dim() == 2)
        losses[temperature] = loss.item()
    best = min(losses, key=losses.__getitem__)
    return best, losses[best]


def train_linear(
    encoder: nn.Module,
    loader: Loader,
    augmenter: Augmenter,
    num_features: int,
    num_classes: int,
    *,
    epochs: int = 50,
    lr: float = 0.5,
    batch: int = 256,
    seed: int = 0,
    autocast: Autocast = nullcontext,
    capture: Capture | None = None,
    advance: Advance | None = None,
    authors: bool = False,
) -> nn.Linear:
    """The paper's linear probe (appendix B.1): 50 epochs of SGD at 0.5 with a cosine per epoch, one augmented view.

    authors: as their code does it. It leaves the encoder in training mode, so that its batch-norm statistics change.
    Its cosine is one epoch late and ends at lr · 1e-3. Otherwise this follows the paper's text: all of it is frozen.
    """
    assert loader.labels_N is not None, "a linear probe needs labels"
    encoder.train(authors)
    late, floor = (1, 1e-3) if authors else (0, 0.0)
    device = loader.labels_N.device
    torch.manual_seed(seed)
    classifier = nn.Linear(num_features, num_classes).to(device)
    on_gpu = device.type == "cuda"
    # On a GPU the rate is a tensor, so that a captured step sees it change.
    rate = torch.tensor(lr, device=device) if on_gpu else lr
    optimizer = torch.optim.SGD(classifier.parameters(), lr=rate, momentum=0.9, weight_decay=1e-4, fused=on_gpu)
    generator = torch.Generator(device)
    batch = min(batch, len(loader))

    def step(images_BCHW: Tensor, labels_B: Tensor | None) -> dict[str, Tensor]:
        assert labels_B is not None
        (view_BCHW,) = augmenter.apply(images_BCHW, augmenter.draw(batch, generator))
        with torch.no_grad(), autocast():
            features_BD = encoder(view_BCHW)
        loss = classification_loss(classifier(features_BD.float()), labels_B, multilabel=labels_B.dim() == 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return {"loss": loss.detach()}

    # Full batches in each epoch's own order; the rest has its turn in another epoch.
    seed, steps = seed + PROBE_STREAM, len(loader) // batch
    orders = (shuffled_order(len(loader), seed, epoch) for epoch in range(epochs))
    indices = (rows_B for order_N in orders for rows_B in order_N[: steps * batch].split(batch))
    # On the host, what `generator` will be in each step.
    hosts = (host for epoch in range(epochs) for host in repeat(mixed_generator(seed, epoch), steps))
    run_step = step if capture is None else capture(step, generator)
    batches = loader.batches(indices, augmenter.crops_of_steps(batch, hosts))
    for epoch in range(epochs):
        now = lr * (floor + (1 - floor) * (1 + cos(pi * max(0, epoch - late) / epochs)) / 2)
        for group in optimizer.param_groups:
            group["lr"] = rate.fill_(now) if isinstance(rate, Tensor) else now
        generator.manual_seed(mixed_seed(seed, epoch))
        for images_BCHW, labels_B in islice(batches, steps):
            metrics = run_step(images_BCHW, labels_B)
        if advance is not None:
            advance(epoch + 1, f"loss {metrics['loss'].item():.3f}")
    return classifier
