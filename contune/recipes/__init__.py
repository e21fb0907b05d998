"""Recipes: named functions that return a complete config. `contune recipes` lists them."""

from collections.abc import Callable

from contune.config import Config
from contune.errors import UserError, unknown
from contune.methods import find_method
from contune.models.encoders import SMALL_IMAGE
from contune.recipes import everyday, paper, ssl

Recipe = Callable[[], Config]

RECIPES: dict[str, Recipe] = {
    "digits": everyday.digits,
    "digits-tcl": everyday.digits_tcl,
    "digits-supcon": everyday.digits_supcon,
    "digits-ce": everyday.digits_cross_entropy,
    "digits-ssl": ssl.recipe("digits", "tcl-ssl"),
    **ssl.recipes("digits"),
    "images": everyday.images,
    "images-ssl": everyday.images_ssl,
    **paper.recipes("cifar10"),
    **ssl.recipes("cifar10"),
    **paper.recipes("cifar100"),
    **ssl.recipes("cifar100"),
    **paper.recipes("fmnist"),
    **paper.recipes("imagenet100"),
    **ssl.recipes("imagenet100"),
}


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def by_data() -> dict[str, list[str]]:
    """The names of the recipes for each dataset."""
    groups: dict[str, list[str]] = {}
    for name in RECIPES:
        groups.setdefault(name.partition("-")[0], []).append(name)
    return groups


def summary(recipe: Callable[[], object]) -> str:
    """The first line of a recipe's docstring."""
    assert recipe.__doc__, recipe
    return recipe.__doc__.strip().splitlines()[0]


def for_method(method: str, *, has_labels: bool, size: int) -> Config:
    """Settings that suit a method on your images: those of `images`, or solo-learn's for images of this size."""
    needs_labels = find_method(method).Settings().needs_labels
    if needs_labels and has_labels:
        views = ["augment.views=1"] if method == "cross-entropy" else []
        return everyday.images().override([f"method.name={method}", *views])
    if method == "tcl":
        return everyday.images_ssl()
    if needs_labels:
        raise UserError(f"method {method} needs labels and there are none. Pass labels, or use tcl or simclr.")
    config = ssl.recipe("cifar100" if size <= SMALL_IMAGE else "imagenet100", method)()
    config.data.name = "images"
    return config
