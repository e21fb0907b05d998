"""Thin Modules over the loss functions, for code that wants to hold a loss: `loss(z, labels)`."""

from torch import Tensor, nn

from contune.kernels.problem import Knobs
from contune.losses.contrastive import check_variant, ntxent_loss, supcon_loss, tcl_loss
from contune.losses.dispatch import check_settings


class TCLLoss(nn.Module):
    """`tcl_loss` with its knobs fixed."""

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        k1: float = 5000.0,
        k2: float = 1.0,
        normalize: bool = True,
        reduction: str = "mean",
        backend: str = "auto",
        precision: str = "fast",
        distributed: bool = False,
    ) -> None:
        super().__init__()
        check_settings(Knobs(temperature, k1, k2, "out", precision), reduction, backend)
        self.temperature, self.k1, self.k2 = temperature, k1, k2
        self.normalize, self.reduction, self.backend = normalize, reduction, backend
        self.precision, self.distributed = precision, distributed

    def forward(
        self,
        z: Tensor,
        labels: Tensor | None = None,
        positives: Tensor | None = None,
        candidates: Tensor | None = None,
        candidate_labels: Tensor | None = None,
    ) -> Tensor:
        return tcl_loss(
            z, labels, positives=positives, candidates=candidates, candidate_labels=candidate_labels,
            temperature=self.temperature, k1=self.k1, k2=self.k2,
            normalize=self.normalize, reduction=self.reduction, backend=self.backend,
            precision=self.precision, distributed=self.distributed,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, k1={self.k1}, k2={self.k2}, reduction={self.reduction!r}"


class SupConLoss(nn.Module):
    """`supcon_loss` with its knobs fixed."""

    def __init__(
        self,
        *,
        temperature: float = 0.1,
        variant: str = "out",
        normalize: bool = True,
        reduction: str = "mean",
        backend: str = "auto",
        precision: str = "fast",
        distributed: bool = False,
    ) -> None:
        super().__init__()
        check_variant(variant)
        check_settings(Knobs(temperature, 0.0, 1.0, variant, precision), reduction, backend)
        self.temperature, self.variant = temperature, variant
        self.normalize, self.reduction, self.backend = normalize, reduction, backend
        self.precision, self.distributed = precision, distributed

    def forward(
        self,
        z: Tensor,
        labels: Tensor | None = None,
        positives: Tensor | None = None,
        candidates: Tensor | None = None,
        candidate_labels: Tensor | None = None,
    ) -> Tensor:
        return supcon_loss(
            z, labels, positives=positives, candidates=candidates, candidate_labels=candidate_labels,
            temperature=self.temperature, variant=self.variant,
            normalize=self.normalize, reduction=self.reduction, backend=self.backend,
            precision=self.precision, distributed=self.distributed,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, variant={self.variant!r}, reduction={self.reduction!r}"


class NTXentLoss(nn.Module):
    """`ntxent_loss` with its knobs fixed."""

    def __init__(
        self,
        *,
        temperature: float = 0.2,
        normalize: bool = True,
        reduction: str = "mean",
        backend: str = "auto",
        precision: str = "fast",
        distributed: bool = False,
    ) -> None:
        super().__init__()
        check_settings(Knobs(temperature, 0.0, 1.0, "out", precision), reduction, backend)
        self.temperature = temperature
        self.normalize, self.reduction, self.backend = normalize, reduction, backend
        self.precision, self.distributed = precision, distributed

    def forward(
        self, z: Tensor, ids: Tensor, candidates: Tensor | None = None, candidate_ids: Tensor | None = None
    ) -> Tensor:
        return ntxent_loss(
            z, ids, candidates=candidates, candidate_ids=candidate_ids,
            temperature=self.temperature, normalize=self.normalize,
            reduction=self.reduction, backend=self.backend,
            precision=self.precision, distributed=self.distributed,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"temperature={self.temperature}, reduction={self.reduction!r}"
