"""The paper's projection network."""

import pytest
from torch import nn

from contune.errors import UserError
from contune.models import projector


def layer_sizes(head: nn.Sequential) -> list[tuple[int, int]]:
    return [(layer.in_features, layer.out_features) for layer in head if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("num_features", [512, 2048])
def test_one_hidden_layer_of_the_encoders_size_and_128_out(num_features: int) -> None:
    head = projector(num_features)
    assert layer_sizes(head) == [(num_features, num_features), (num_features, 128)]
    assert [type(layer) for layer in head] == [nn.Linear, nn.ReLU, nn.Linear]


def test_sizes_may_be_given() -> None:
    assert layer_sizes(projector(512, hidden=2048, dim=256)) == [(512, 2048), (2048, 256)]


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [({"dim": 0}, "projector_dim must be 1 or more, got 0"), ({"hidden": -1}, "projector_hidden must be 1 or more")],
)
def test_impossible_sizes(sizes: dict[str, int], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        projector(512, **sizes)
