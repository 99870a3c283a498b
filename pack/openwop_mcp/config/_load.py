"""Reading the settings: the file, the environment over it, and all that is wrong with them at once.

Knows none of their keys but those that two tables share.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from openwop_mcp.config._environment import overlay
from openwop_mcp.config._faults import dotted, source, told
from openwop_mcp.config._host import Host
from openwop_mcp.config._settings import Settings
from openwop_mcp.config._syntax import syntax
from openwop_mcp.config._tables import Place, SettingsError, fields
from openwop_mcp.config._worker import DEFAULT_CLASS
from openwop_mcp.terminal import escape

__all__ = (
    "DEFAULT_FILE",
    "load",
)

DEFAULT_FILE = "openwop-mcp.toml"
"""Looked for in the working directory when no file is named; it need not exist."""


def load(path: str | None, *, environ: Mapping[str, str], secrets: bool = True) -> Settings:
    """Read and check the settings.

    Args:
        path: The file that was named; None for the default one, which need not exist.
        environ: The environment: values that win over the file's, and secrets.
        secrets: Check that each secret can be had. What never talks to a server has no need of them.

    Raises:
        SettingsError: With all faults, one a line.
    """
    file = path if path is not None else DEFAULT_FILE
    written = _read_file(file, required=path is not None)
    data, origins, faults = overlay(written, environ)
    faults += [f"{source(where, origins, written, file)}: {dotted(where)}: {what}" for where, what in _apart(data)]
    try:
        settings = Settings.model_validate(data, context={"environ": environ} if secrets else None)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False, include_input=False)
        faults += [told(detail, origins, written, file) for detail in details]
    if faults:
        raise SettingsError("\n".join(dict.fromkeys(escape(line) for line in faults)))
    return settings


def _read_file(file: str, *, required: bool) -> dict[str, Any]:
    try:
        text = Path(file).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if not required:
            return {}
        raise SettingsError(escape(f"{file}: there is no such file: write --config with the path of one")) from None
    except OSError as error:
        raise SettingsError(escape(f"{file}: cannot be read ({error.strerror}): make it a readable file")) from None
    except UnicodeDecodeError:
        raise SettingsError(escape(f"{file}: not UTF-8: save it as UTF-8 text")) from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(escape(f"{file}: {syntax(text, str(error))}")) from None


def _apart(data: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Faults between tables. Looked for here and not in the models, where one bad table would hide them."""
    for table, key, what in (
        ("keys", "id", "another key has this id: give each its own"),
        ("issuers", "issuer", "this issuer stands twice: keep one"),
    ):
        seen: set[str] = set()
        entries = data.get(table)
        for index, entry in enumerate(entries if isinstance(entries, list) else []):
            identity = entry.get(key) if isinstance(entry, dict) else None
            if not isinstance(identity, str):
                continue
            if identity in seen:
                yield (table, index, key), what
            seen.add(identity)
    host = data.get("host", {})
    if data.get("issuers") and isinstance(host, dict) and "url" not in host:
        yield ("host", "url"), f"missing: where there are issuers, write {fields(Host)['url'].description}"
    yield from _of_classes(data)


def _of_classes(data: Mapping[str, Any]) -> Iterator[tuple[Place, str]]:
    """Classes that are named and not there: their calls would wait for a worker for ever."""
    worker = _table(data, "worker")
    classes = _table(worker, "classes")
    there = f"write one of {', '.join(sorted(map(str, classes)))}" if classes else "there is none yet"
    missing = f"no such class: write its table, as in [worker.classes.slow]; or {there}"
    for server_id in (servers := _table(data, "servers")):
        named = _table(servers, server_id).get("class")
        if isinstance(named, str) and named not in classes:
            yield ("servers", server_id, "class"), missing
    serves = worker.get("serves")
    for index, named in enumerate(serves if isinstance(serves, list) else []):
        if isinstance(named, str) and named not in classes and named != DEFAULT_CLASS:
            yield ("worker", "serves", index), f'{missing}; "{DEFAULT_CLASS}" is all that is in none'


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, dict) else {}
