"""Named runs: functions that return a complete config. `contune recipes` lists them."""

from collections.abc import Callable

from contune.config import Config
from contune.errors import unknown
from contune.recipes import cifar, digits, fmnist, imagenet100, images, ssl

Recipe = Callable[[], Config]

RECIPES: dict[str, Recipe] = {
    "digits": digits.tcl,
    "digits-supcon": digits.supcon,
    "digits-ce": digits.cross_entropy,
    "digits-ssl": ssl.recipe("digits", "tcl-ssl"),
    **ssl.recipes("digits"),
    "images": images.labelled,
    "images-ssl": images.unlabelled,
    "cifar10-tcl": cifar.cifar10_tcl,
    "cifar10-supcon": cifar.cifar10_supcon,
    "cifar10-ce": cifar.cifar10_cross_entropy,
    "cifar10-tcl-250": cifar.cifar10_tcl_250,
    "cifar10-supcon-250": cifar.cifar10_supcon_250,
    "cifar10-ce-250": cifar.cifar10_cross_entropy_250,
    **ssl.recipes("cifar10"),
    "cifar100-tcl": cifar.cifar100_tcl,
    "cifar100-supcon": cifar.cifar100_supcon,
    "cifar100-ce": cifar.cifar100_cross_entropy,
    "cifar100-tcl-250": cifar.cifar100_tcl_250,
    "cifar100-supcon-250": cifar.cifar100_supcon_250,
    "cifar100-ce-250": cifar.cifar100_cross_entropy_250,
    **ssl.recipes("cifar100"),
    "fmnist-tcl": fmnist.tcl,
    "fmnist-supcon": fmnist.supcon,
    "fmnist-ce": fmnist.cross_entropy,
    "fmnist-tcl-250": fmnist.tcl_250,
    "fmnist-supcon-250": fmnist.supcon_250,
    "fmnist-ce-250": fmnist.cross_entropy_250,
    "imagenet100-tcl": imagenet100.tcl,
    "imagenet100-supcon": imagenet100.supcon,
    "imagenet100-ce": imagenet100.cross_entropy,
    "imagenet100-tcl-250": imagenet100.tcl_250,
    "imagenet100-supcon-250": imagenet100.supcon_250,
    "imagenet100-ce-250": imagenet100.cross_entropy_250,
    **ssl.recipes("imagenet100"),
}


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def by_data() -> dict[str, list[str]]:
    """The names of the recipes, for each data set."""
    groups: dict[str, list[str]] = {}
    for name in RECIPES:
        groups.setdefault(name.partition("-")[0], []).append(name)
    return groups


def summary(recipe: Callable[[], object]) -> str:
    """The first line of a recipe's docstring."""
    assert recipe.__doc__, recipe
    return recipe.__doc__.strip().splitlines()[0]
