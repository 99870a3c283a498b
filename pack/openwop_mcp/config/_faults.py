"""Faults of values, told: who gave the value, which key it stands at, what to write there instead.

Finds none itself. Repeats keys, never a value: it may be a secret in the wrong place.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from openwop_mcp.config._secrets import NAMED_NOT_WRITTEN, Credential, SecretRef
from openwop_mcp.config._servers import Server
from openwop_mcp.config._settings import Settings
from openwop_mcp.config._tables import Place, fields, shape
from openwop_mcp.config._values import CREDENTIAL_FORMS

__all__ = (
    "dotted",
    "model_at",
    "source",
    "told",
)

_LOOKS_LIKE_CREDENTIAL = re.compile(
    r"auth|bearer|cookie|(api|access).?key|credential|headers?|passw|secret|token", re.IGNORECASE
)
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def source(where: Place, origins: Mapping[Place, str], written: Mapping[str, Any], file: str) -> str:
    """Who gave the value, or where the one that is missing should stand."""
    for length in range(len(where), 0, -1):
        if where[:length] in origins:
            return f"environment variable {origins[where[:length]]}"
    # A table as a whole: of what it has the file may have given some, and variables the rest.
    inside = [name for path, name in origins.items() if path[: len(where)] == where]
    if inside and _holds(written, where):
        return f"{file} and environment variable {', '.join(inside)}"
    # The first part of the way that the file does not have: if variables led there, one of them is the source.
    for length in range(1, len(where) + 1):
        if not _holds(written, where[:length]):
            for path, name in origins.items():
                if path[:length] == where[:length]:
                    return f"environment variable {name}"
            break
    return file


def _holds(data: Any, path: Place) -> bool:
    for key in path:
        try:
            data = data[key]
        except (LookupError, TypeError):
            return False
    return True


def told(detail: ErrorDetails, origins: Mapping[Place, str], written: Mapping[str, Any], file: str) -> str:
    """The line that tells one fault that pydantic found."""
    where = tuple(key for key in detail["loc"] if key != "[key]")
    return f"{source(where, origins, written, file)}: {dotted(where)}: {_what(where, detail)}"


def dotted(where: Place) -> str:
    """A place as TOML writes it."""
    return ".".join(
        key if isinstance(key, str) and _BARE_KEY.fullmatch(key) else json.dumps(key, ensure_ascii=False)
        for key in where
    )


def model_at(where: Place) -> tuple[type[BaseModel], str | None]:
    """What the models say of a place: the table that it is in, and the description of the nearest field above it."""
    annotation: Any = Settings
    table: type[BaseModel] = Settings
    description: str | None = None
    for key in where:
        kind, arguments = shape(annotation)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            table = kind
            field = fields(kind).get(str(key))
            if field is None:
                return table, None
            annotation, description = field.annotation, field.description
        elif kind in {dict, tuple}:
            # Of a dict the values, of a tuple the items.
            annotation = arguments[-1] if kind is dict else arguments[0]
        else:
            # Below a single value stands nothing.
            break
    return table, description


def _what(where: Place, detail: ErrorDetails) -> str:
    if detail["type"] == "fault":
        return detail["msg"]
    table, description = model_at(where)
    if detail["type"] == "extra_forbidden":
        return _unknown(str(where[-1]), table)
    if detail["type"] == "missing":
        return f"missing: write {description}"
    if detail["type"].endswith("_type") or detail["type"] == "int_from_float":
        return f"wrong type: write {description}"
    return f"not a value for this key: write {description}"


def _unknown(key: str, table: type[BaseModel]) -> str:
    if issubclass(table, SecretRef):
        return f"unknown key: {NAMED_NOT_WRITTEN}"
    close = difflib.get_close_matches(key.lower(), fields(table), n=1)
    if close:
        return f'unknown key: write "{close[0]}"'
    if table in {Server, Credential} and _LOOKS_LIKE_CREDENTIAL.search(key):
        return f"unknown key: a credential is named, never written: write {CREDENTIAL_FORMS}"
    return f"unknown key: the keys here are {', '.join(fields(table))}"
