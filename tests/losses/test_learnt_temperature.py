"""A temperature that is a parameter, and numbers that are tensors."""

import pytest
import torch

from contune.errors import UserError
from contune.losses import TCLLoss, supcon_loss, tcl_loss


@pytest.mark.parametrize("num", [64, 600])
def test_a_temperature_is_learnt_whatever_the_size_of_the_batch(num: int) -> None:
    z, labels = torch.randn(num, 8, dtype=torch.float64), torch.arange(num) % 3
    temperature = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    tcl_loss(z, labels, temperature=temperature, k1=50.0).backward()  # type: ignore[arg-type]  # typed as a number
    step = 1e-5
    above, below = (tcl_loss(z, labels, temperature=0.5 + sign * step, k1=50.0) for sign in (1, -1))
    assert temperature.grad is not None
    assert temperature.grad.item() == pytest.approx(((above - below) / (2 * step)).item(), rel=1e-5)


def test_it_is_a_parameter_of_the_module() -> None:
    loss = TCLLoss(temperature=torch.nn.Parameter(torch.tensor(0.1)))  # type: ignore[arg-type]
    loss(torch.randn(600, 8), torch.arange(600) % 3).backward()
    assert [parameter.grad is not None for parameter in loss.parameters()] == [True]


def test_what_cannot_be_learnt_is_refused() -> None:
    z, labels, learnt = torch.randn(8, 4), torch.arange(8) % 2, torch.tensor(0.5, requires_grad=True)
    with pytest.raises(UserError, match=r"k1 is a number to this loss and would get no gradient; give k1\.item\(\)"):
        tcl_loss(z, labels, k1=learnt)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="backend='chunked' has no gradient for the temperature"):
        supcon_loss(z, labels, temperature=learnt, backend="chunked")  # type: ignore[arg-type]


@pytest.mark.parametrize("num", [8, 600])
def test_a_number_may_be_a_tensor(num: int) -> None:
    z, labels = torch.randn(num, 4), torch.arange(num) % 2
    of_tensor = tcl_loss(z, labels, temperature=torch.tensor(0.25), k1=torch.tensor(7.0))  # type: ignore[arg-type]
    torch.testing.assert_close(of_tensor, tcl_loss(z, labels, temperature=0.25, k1=7.0))


@pytest.mark.parametrize("wrong", ["0.1", None, torch.ones(2)])
def test_what_is_no_number_is_said(wrong: object) -> None:
    with pytest.raises(UserError, match="temperature must be a number, got"):
        tcl_loss(torch.randn(8, 4), torch.arange(8) % 2, temperature=wrong)  # type: ignore[arg-type]
