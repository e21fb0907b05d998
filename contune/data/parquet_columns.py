"""Which column of a parquet file holds the images, which the labels, and what the classes are called."""

import json
from typing import Any

import pyarrow as pa

from contune.errors import UserError, unknown

IMAGE_COLUMNS = ("image", "img", "images", "picture", "photo", "pixel_values")
LABEL_COLUMNS = ("label", "labels", "fine_label", "class", "target", "y")


def image_column(schema: Any, where: str) -> str:
    """The first usual name that holds encoded images, else the first such struct, else the first binary."""
    structs = [field.name for field in schema if _is_image_struct(field.type)]
    binaries = [field.name for field in schema if _is_binary(field.type)]
    usual = [name for name in IMAGE_COLUMNS if name in structs or name in binaries]
    found: list[str] = [*usual, *structs, *binaries]
    if not found:
        raise UserError(
            f"{where!r} has no column of encoded images, only {', '.join(schema.names)}; one must be binary, "
            "or a struct with a binary field 'bytes'"
        )
    return found[0]


def label_column_of(schema: Any, wanted: str | None, where: str) -> str | None:
    """The wanted column, else the first usual name, else the metadata's first ClassLabel, if any."""
    if wanted is not None:
        if wanted not in schema.names:
            raise unknown(f"label column of {where!r}", wanted, schema.names)
        return wanted
    features = _features(schema)
    class_labels = [name for name in schema.names if _is_class_label(features.get(name))]
    usual = [name for name in LABEL_COLUMNS if name in schema.names]
    return next(iter([*usual, *class_labels]), None)


def maybe_labels(schema: Any, image: str) -> tuple[str, ...]:
    """The columns that could be labels by their type."""
    return tuple(field.name for field in schema if field.name != image and _is_label(field.type))


def names_in_metadata(schema: Any, label: str | None) -> tuple[str, ...] | None:
    """Class names as `datasets` writes them: schema metadata `huggingface`, features, ClassLabel, names."""
    feature = _features(schema).get(label) if label is not None else None
    return tuple(map(str, feature["names"])) if _is_class_label(feature) and feature else None


def _features(schema: Any) -> dict[str, Any]:
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    return features if isinstance(features, dict) else {}


def _is_class_label(feature: Any) -> bool:
    is_label = isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
    return is_label and isinstance(feature.get("names"), list)


def _is_image_struct(kind: Any) -> bool:
    return bool(pa.types.is_struct(kind)) and any(f.name == "bytes" and _is_binary(f.type) for f in kind)


def _is_label(kind: Any) -> bool:
    tests = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_string, pa.types.is_large_string)
    return any(test(kind.value_type if pa.types.is_dictionary(kind) else kind) for test in tests)


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
