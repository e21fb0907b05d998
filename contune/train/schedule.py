"""Learning rates as pure functions of the step."""

from math import cos, pi


def learning_rate(
    step: int,
    *,
    schedule: str,
    lr: float,
    steps_per_epoch: int,
    epochs: int,
    warmup_epochs: float = 0.0,
    final_lr: float = 0.0,
) -> float:
    """The rate for a step, counted from 0.

    `cosine`: linear from nothing over the warm-up, then a half cosine down to final_lr · lr, at every step.
    `cosine-epoch`: the authors' supervised form, stepped once an epoch and one epoch late, so that epochs 0
    and 1 both run at the full rate. `constant`: lr after the warm-up.
    """
    warmup = warmup_epochs * steps_per_epoch
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    if schedule == "constant":
        return lr
    if schedule == "cosine-epoch":
        share = max(0, step // steps_per_epoch - 1) / epochs
    else:
        share = (step - warmup) / max(1.0, epochs * steps_per_epoch - warmup)
    return lr * (final_lr + (1 - final_lr) * (1 + cos(pi * share)) / 2)
