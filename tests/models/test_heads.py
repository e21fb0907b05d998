"""Heads, momentum copies and queues."""

import pytest
import torch
from torch import nn

from contune.errors import UserError
from contune.models.heads import Queue, ema_copy, ema_update, mlp


def test_no_layer_before_batch_norm_has_a_bias() -> None:
    first, _, _, last, norm = mlp([4, 8, 2], last_norm=True)
    assert [layer.bias is None for layer in (first, last)] == [True, True]
    assert norm.weight is None


def two_networks() -> tuple[nn.Sequential, nn.Sequential]:
    torch.manual_seed(0)
    leader = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 5, 1), nn.Linear(77, 13))
    leader = leader.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch types only the 4-D form
    copy = ema_copy(leader)
    assert isinstance(copy, nn.Sequential)
    with torch.no_grad():
        for parameter in leader.parameters():
            parameter.add_(torch.randn_like(parameter))
    leader[1].running_mean.fill_(3.0)
    return leader, copy


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.996, 1.0])
def test_ema_update_is_the_weighted_mean(momentum: float) -> None:
    leader, copy = two_networks()
    pairs = list(zip(copy.parameters(), leader.parameters(), strict=True))
    expected = [momentum * ours.double() + (1 - momentum) * theirs.double() for ours, theirs in pairs]
    before = [(ours.clone(), theirs.clone()) for ours, theirs in pairs]
    ema_update(copy, leader, torch.tensor(momentum))
    for (found, theirs), wanted, (old, old_theirs) in zip(pairs, expected, before, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-6)
        assert not found.requires_grad
        assert torch.equal(theirs, old_theirs)
        if momentum == 1:
            assert torch.equal(found, old), "every bit"
    assert not copy[1].running_mean.any(), "running statistics stay the copy's own"  # type: ignore[operator]


def test_a_queue_replaces_its_oldest_rows() -> None:
    queue = Queue(5, 2)
    torch.testing.assert_close(queue.values_KD.norm(dim=1), torch.ones(5))
    random = queue.values_KD.clone()
    rows = torch.arange(12.0).view(6, 2)
    queue.push(rows[:3])
    assert torch.equal(queue.values_KD, torch.cat([rows[:3], random[3:]]))
    assert queue.num_seen == 3
    queue.push(rows[3:])
    assert torch.equal(queue.values_KD, rows[[5, 1, 2, 3, 4]])
    assert queue.num_seen == 5
    with pytest.raises(UserError, match="queue"):
        queue.push(rows)
