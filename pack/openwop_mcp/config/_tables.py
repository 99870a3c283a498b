"""What every table of the settings is, how it is read as data, and how a fault in it is raised.

Knows no single table and no key.
"""

from __future__ import annotations

import types
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

__all__ = (
    "Place",
    "SettingsError",
    "Table",
    "fault",
    "fields",
    "shape",
)

Place = tuple[str | int, ...]
"""The way to a value: keys of tables, and positions in arrays."""


class SettingsError(Exception):
    """The settings cannot be used. The message has one line for each fault: where, which key, what to write."""


class Table(BaseModel):
    """A table: closed, immutable, and strict, since TOML has types. A field's description says what to write for it."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, hide_input_in_errors=True, validate_default=True
    )


def fault(message: str) -> PydanticCustomError:
    """A fault that is told in these words, and not by the description of the field that it is found at."""
    return PydanticCustomError("fault", "{message}", {"message": message})


def fields(table: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a table as they are written, each with its field."""
    return {field.alias or name: field for name, field in table.model_fields.items()}


def shape(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """What an annotation is without ``Annotated`` and ``| None``: its class or origin, and its arguments."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return shape(get_args(annotation)[0])
    if origin in {Union, types.UnionType}:
        return shape(next(item for item in get_args(annotation) if item is not types.NoneType))
    return (annotation, ()) if origin is None else (origin, get_args(annotation))
