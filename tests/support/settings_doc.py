"""docs/reference/settings.md, from the settings' models; `python -m tests.support.settings_doc` renews it."""

from __future__ import annotations

import ast
import inspect
import json
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from openwop_mcp.config import Credential, SecretRef, Settings, fields
from tests.support.tables import cell, table

DOC = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
HEAD = """\
# All settings

Written by `make reference` from the code; [settings.md](../settings.md) says how to use them. `ID` stands for the id of
a server or the name of a tool, and what is `required` is so only where its table is there. Every key can also be given
by the environment: `temporal.address` as `OPENWOP_MCP__TEMPORAL__ADDRESS`.
"""


class Row(NamedTuple):
    """One key."""

    key: str
    default: str
    write: str
    means: str


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


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """What stands below each field of a table, and of the tables that it extends, in the code."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        if not issubclass(kind, BaseModel) or kind is BaseModel:
            continue
        [body] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
        assert isinstance(body, ast.ClassDef)
        for field, below in zip(body.body, body.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
    return found


def rows(model: type[BaseModel], path: str) -> Iterator[Row]:
    """Each value of a table and of the tables in it."""
    meanings = {field.alias or name: _meanings(model).get(name, "") for name, field in model.model_fields.items()}
    for name, field in fields(model).items():
        where = f"{path}.{name}" if path else name
        inner, more = _model(field.annotation)
        # A reference to a secret is told whole; of credentials, which have several forms, the forms and then each.
        secret = inner is not None and issubclass(inner, SecretRef)
        if inner is None or secret or inner is Credential:
            yield Row(where, _default(field), field.description or "", meanings[name])
        if inner is not None and not secret:
            yield from rows(inner, where + more)


def sections() -> Iterator[tuple[str, list[Row]]]:
    """Each table of the settings by its heading."""
    for name, field in Settings.model_fields.items():
        inner, more = _model(field.annotation)
        assert inner is not None
        title = {"[]": f"[[{name}]]", ".ID": f"[{name}.ID]", "": f"[{name}]"}[more]
        yield title, list(rows(inner, name + more))


def page() -> str:
    """The page as it has to be."""
    parts = [HEAD]
    for title, keys in sections():
        lines = [(f"`{row.key}`", row.default, cell(row.write), cell(row.means)) for row in keys]
        parts.append(f"## `{title}`\n\n{table(('key', 'default', 'what to write', 'what it is'), lines)}")
    return "\n".join(parts)


if __name__ == "__main__":
    DOC.write_text(page(), encoding="utf-8")
