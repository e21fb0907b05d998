"""A linear probe that learns beside the encoder, from features that carry no gradient back."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed
from contune.train.optim import load_moments


class OnlineProbe:
    """A linear classifier with an optimizer of its own: SGD at 0.1, no weight decay, as solo-learn's."""

    def __init__(self, num_features: int, num_classes: int, device: torch.device) -> None:
        self.classifier = nn.Linear(num_features, num_classes).to(device)
        self.trained = distributed.wrap(self.classifier, device)
        fused = device.type == "cuda"
        self.optimizer = torch.optim.SGD(self.classifier.parameters(), lr=0.1, momentum=0.9, fused=fused)

    def step(self, features_ND: Tensor, labels_N: Tensor) -> dict[str, Tensor]:
        """One step on the features of a training batch; its loss and accuracy there."""
        logits_NK = self.trained(features_ND.float())
        loss = F.cross_entropy(logits_NK, labels_N)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        accuracy = (logits_NK.argmax(dim=1) == labels_N).float().mean()
        return {"online_loss": loss.detach(), "online_top1": accuracy}

    @property
    def parts(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        """What a step changes."""
        return self.classifier, self.optimizer

    def state_dict(self) -> dict[str, object]:
        return {"classifier": self.classifier.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, dict[str, Tensor]]) -> None:
        self.classifier.load_state_dict(state["classifier"])
        load_moments(self.optimizer, state["optimizer"])
