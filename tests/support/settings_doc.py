"""The tables of docs/settings.md, from the settings' models; `python -m tests.support.settings_doc` renews them."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from openwop_mcp.config import Settings, fields

DOC = Path(__file__).parents[2] / "docs" / "settings.md"
BEGIN = "<!-- tables: written by tests/support/settings_doc.py -->"
END = "<!-- end of tables -->"
SECRETS = {"KeyRef", "SecretRef", "SigningRef", "VariableRef"}


def _model(annotation: Any) -> tuple[type[BaseModel] | None, str]:
    """The table that a field holds, and what its path goes on with."""
    origin = get_origin(annotation)
    if origin is Annotated or origin in {Union, types.UnionType}:
        return _model(get_args(annotation)[0])
    if origin is dict:
        return _model(get_args(annotation)[1])[0], ".ID"
    if origin is tuple:
        return _model(get_args(annotation)[0])[0], "[]"
    return (annotation, "") if isinstance(annotation, type) and issubclass(annotation, BaseModel) else (None, "")


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value in ((), {}):
        return ""
    # TOML and JSON spell these alike; a float that is whole is told as the whole number that one would write.
    return f"`{value:g}`" if isinstance(value, float) else f"`{json.dumps(value)}`"


def rows(model: type[BaseModel], path: str) -> Iterator[tuple[str, str, str]]:
    """Key, default and what to write, for each value of a table and of the tables in it."""
    for name, field in fields(model).items():
        where = f"{path}.{name}" if path else name
        inner, more = _model(field.annotation)
        # A reference to a secret is told whole; of credentials, which have several forms, the forms and then each.
        kind = "" if inner is None else inner.__name__
        if inner is None or kind in {*SECRETS, "Credential"}:
            yield where, _default(field), (field.description or "").replace("|", r"\|")
        if inner is not None and kind not in SECRETS:
            yield from rows(inner, where + more)


def tables() -> str:
    """All tables, one for each section."""
    parts: list[str] = []
    for name, field in Settings.model_fields.items():
        inner, more = _model(field.annotation)
        assert inner is not None
        title = {"[]": f"[[{name}]]", ".ID": f"[{name}.ID]", "": f"[{name}]"}[more]
        lines = [f"### `{title}`", "", "| key | default | what to write |", "| --- | --- | --- |"]
        lines += [f"| `{key}` | {default} | {what} |" for key, default, what in rows(inner, name + more)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def renewed(text: str) -> str:
    """The document with today's tables."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    DOC.write_text(renewed(DOC.read_text(encoding="utf-8")), encoding="utf-8")
