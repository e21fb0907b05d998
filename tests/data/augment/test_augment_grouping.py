"""An operation on its own samples gives what the same operation gives when all samples go through it."""

import pytest
import torch
from torch import Tensor

from contune.data.augment import authors, build_policy, color, moves
from contune.data.augment.autoaugment import Move, all_at_once, one_by_one
from contune.data.augment.grouping import KEEP, each_kind, where_chosen
from contune.data.augment.subpolicies import Op


def random_levels(num: int, channels: int, size: int) -> Tensor:
    """Noise and smooth images, some of them of few levels."""
    generator = torch.Generator().manual_seed(size)
    noise = torch.randint(0, 256, (num, channels, size, size), generator=generator, dtype=torch.uint8)
    coarse = torch.rand(num, channels, 3, 3, generator=generator) * 300 - 20
    smooth = torch.nn.functional.interpolate(coarse, size=(size, size), mode="bicubic").clamp(0, 255).to(torch.uint8)
    smooth[::5] = smooth[::5] // 4 + 60
    smooth[::7] = 40
    return torch.where((torch.arange(num) % 3 == 0)[:, None, None, None], noise, smooth)


def test_each_step_sees_its_own_samples_as_the_steps_before_left_them() -> None:
    images = torch.arange(6.0).view(6, 1, 1, 1)
    kind_BS = torch.tensor([[2, 1], [KEEP, 1], [1, KEEP], [2, 2], [KEEP, KEEP], [1, 2]])
    calls = []

    def operate(step: int, kind: int, some: Tensor, numbers: Tensor) -> Tensor:
        calls.append((step, kind, sorted(numbers.tolist())))
        return 10 * some + kind

    result = each_kind(images, kind_BS, operate)
    assert result.flatten().tolist() == [21, 11, 21, 322, 4, 512]
    assert calls == [(0, 1, [2, 5]), (0, 2, [0, 3]), (1, 1, [0, 1]), (1, 2, [3, 5])]
    assert images.flatten().tolist() == [0, 1, 2, 3, 4, 5]


def test_chosen_samples_get_their_own_amounts() -> None:
    images = torch.ones(4, 1, 2, 2)
    chosen = torch.tensor([True, False, False, True])
    amounts = torch.tensor([2.0, 3.0, 4.0, 5.0])
    result = where_chosen(images, chosen, lambda some, amount: some * amount[:, None, None, None], amounts)
    assert result[:, 0, 0, 0].tolist() == [2, 1, 1, 5]


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (3, 15), (1, 28)])
@pytest.mark.parametrize(("name", "move"), [("autoaugment", moves.move), ("autoaugment-authors", authors.move)])
def test_both_ways_of_autoaugment_give_the_same_levels(name: str, move: Move, channels: int, size: int) -> None:
    num = 300
    levels = random_levels(num, channels, size)
    params = build_policy(name, image_size=size, channels=channels).draw(num, torch.Generator().manual_seed(1))
    op_BS, magnitude_BS = params["op"], params["magnitude"]
    if channels == 1:
        op_BS = op_BS.masked_fill(op_BS == Op.COLOR, Op.IDENTITY)
    grouped, at_once = (way(levels, op_BS, magnitude_BS, move) for way in (one_by_one, all_at_once))
    assert grouped.dtype == at_once.dtype == torch.float32
    assert torch.equal(grouped, at_once)


@pytest.mark.parametrize(("channels", "size"), [(3, 32), (3, 15), (1, 28)])
def test_both_ways_of_the_jitter_give_the_same_images(channels: int, size: int) -> None:
    num = 300
    images = random_levels(num, channels, size) / 255
    params = build_policy("simaugment", image_size=size, channels=channels).draw(num, torch.Generator().manual_seed(1))
    strength_BS = torch.cat([params["jitter_factors"], params["jitter_turn"][:, None]], dim=1)
    strength_BS, order_BS = strength_BS.gather(1, params["jitter_order"]), params["jitter_order"]
    grouped, at_once = (way(images, strength_BS, order_BS) for way in (color._one_by_one, color._all_at_once))
    jittered = params["jitter_turn"] != 0
    assert torch.equal(grouped[jittered], at_once[jittered])
    assert torch.equal(grouped[~jittered], images[~jittered])
    torch.testing.assert_close(at_once, grouped, rtol=0, atol=1e-6)  # a turn of 0 rounds
