"""A label column of any kind → positions in a tuple of class names."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from contune.errors import UserError

HIDDEN = -1
"""What the hub writes for every image of a test split whose labels are kept secret."""


def class_positions(
    columns: Mapping[str, Any], names: tuple[str, ...] | None, label: str | None, where: str
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    """Labels per split, and the class names.

    With `names` the integers are positions in it already. Without, the values of all splits together,
    sorted, become the classes: strings by themselves, integers by their numerals. A split without the column,
    or one where every label is −1, has no labels.
    """
    values = {split: _values(column, label, where) for split, column in columns.items() if column is not None}
    values = {split: v for split, v in values.items() if not (v.dtype.kind == "i" and (v == HIDDEN).all())}
    if not values:
        return {}, ()
    everything = np.concatenate(list(values.values()))
    if everything.dtype.kind != "i" or names is None:
        classes = np.unique(everything)
        positions = {split: np.searchsorted(classes, v).astype(np.int64) for split, v in values.items()}
        return positions, tuple(str(value) for value in classes.tolist())
    outside = everything[(everything < 0) | (everything >= len(names))]
    if len(outside):
        raise UserError(
            f"label {outside[0]} in column {label!r} of {where!r} is outside the {len(names)} class names "
            f"of its metadata, 0 to {len(names) - 1}; drop those rows or mend the names"
        )
    return values, names


def _values(column: Any, label: str | None, where: str) -> np.ndarray:
    if column.null_count:
        raise UserError(
            f"column {label!r} of {where!r} has {column.null_count} rows without a label; drop or label them"
        )
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        integers: np.ndarray = column.cast(pa.int64()).to_numpy()
        return integers
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return np.array(column.to_pylist(), dtype=np.str_)
    raise UserError(
        f"labels in column {label!r} of {where!r} are of type {kind}; one integer or string an image is "
        "needed, so name another column with data.label_column"
    )
