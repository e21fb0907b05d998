"""A network that follows another, in one pass over both."""

import pytest
import torch
from torch import nn

from contune.models.ema import follow, follower


def two_networks() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    leader = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 5, 1), nn.Linear(77, 13))
    leader = leader.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch types only the 4-D form
    behind = follower(leader)
    with torch.no_grad():
        for parameter in leader.parameters():
            parameter.add_(torch.randn_like(parameter))
    return leader, behind


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.996])
def test_it_is_the_weighted_mean_of_both(momentum: float) -> None:
    leader, behind = two_networks()
    pairs = zip(behind.parameters(), leader.parameters(), strict=True)
    expected = [momentum * ours.double() + (1 - momentum) * theirs.double() for ours, theirs in pairs]
    before = [parameter.clone() for parameter in leader.parameters()]
    follow(behind, leader, torch.tensor(momentum))
    for found, wanted in zip(behind.parameters(), expected, strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=1e-6)
        assert not found.requires_grad
    assert all(torch.equal(one, other) for one, other in zip(leader.parameters(), before, strict=True))


def test_a_momentum_of_1_leaves_every_bit() -> None:
    leader, behind = two_networks()
    before = [parameter.clone() for parameter in behind.parameters()]
    follow(behind, leader, torch.tensor(1.0))
    assert all(torch.equal(one, other) for one, other in zip(behind.parameters(), before, strict=True))


def test_running_statistics_stay_its_own() -> None:
    leader, behind = two_networks()
    leader[1].running_mean.fill_(3.0)  # type: ignore[index]  # a Sequential with batch-norm
    follow(behind, leader, torch.tensor(0.5))
    assert not behind[1].running_mean.any()  # type: ignore[index]  # as above
