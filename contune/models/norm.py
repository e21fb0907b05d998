"""Batch-norm of embeddings over the batch of all processes, on CPUs as on GPUs."""

import torch.nn.functional as F
from torch import Tensor, nn

from contune import distributed


class BatchNorm(nn.BatchNorm1d):
    """nn.BatchNorm1d of (N, D), whose statistics are those of the whole batch however it is shared out."""

    def forward(self, x_ND: Tensor) -> Tensor:
        if not self.training or distributed.world_size() == 1:
            return super().forward(x_ND)
        start = distributed.rank() * len(x_ND)
        whole = F.batch_norm(
            distributed.gather_and_sum(x_ND),
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            training=True,
            momentum=self.momentum or 0.0,
            eps=self.eps,
        )
        return whole[start : start + len(x_ND)]
