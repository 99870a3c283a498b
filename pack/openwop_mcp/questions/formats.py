"""The formats of texts that a form may ask for: what can be written, and whether a text is of one. Pure.

A schema's check does not look at them (JSON Schema 2020-12, validation, 7); what a person writes is held to them here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from urllib.parse import urlsplit

from openwop_mcp import jsontext

__all__ = ("FORMATS", "Format", "format_fault")


@dataclass(frozen=True, slots=True)
class Format:
    """A format of texts.

    Attributes:
        wanted: What can be written, for people.
        holds: Whether a text is of it; it may raise ValueError where it is not.
    """

    wanted: str
    holds: Callable[[str], object]

    def fits(self, text: str) -> bool:
        """Whether a text is of it."""
        try:
            return bool(self.holds(text))
        except ValueError:
            return False


_EMAIL = re.compile(r"[^@\s]+@[^@\s.]+(\.[^@\s.]+)*")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)

FORMATS: Mapping[str, Format] = {
    "email": Format("an email address", _EMAIL.fullmatch),
    "uri": Format("an address, as in https://example.org/a", lambda text: _URI.fullmatch(text) and urlsplit(text)),
    "date": Format("a date, as in 2026-12-31", lambda text: _DATE.fullmatch(text) and date.fromisoformat(text)),
    "date-time": Format(
        "a time with its offset, as in 2026-12-31T18:30:00Z",
        lambda text: _DATE_TIME.fullmatch(text) and datetime.fromisoformat(text.upper()),
    ),
}
"""The formats that MCP has for texts (2026-07-28, elicitation)."""


def format_fault(schema: bytes, value: bytes) -> tuple[str, str] | None:
    """Where a value is a text of another format than its schema asks for, and what to write there; None for nowhere.

    Looks at the whole, and at the members that the schema's ``properties`` name: forms are flat.

    Args:
        schema: JSON text, from anywhere.
        value: JSON text, which holds to the schema but for its formats.
    """
    asked, given = jsontext.decode(schema), jsontext.decode(value)
    if (wanted := _wanted(asked, given)) is not None:
        return "", wanted
    properties = asked.get("properties") if isinstance(asked, dict) else None
    if not isinstance(properties, dict) or not isinstance(given, dict):
        return None
    wants = ((name, _wanted(properties.get(name), one)) for name, one in given.items())
    return next(((name, wanted) for name, wanted in wants if wanted is not None), None)


def _wanted(schema: Any, value: Any) -> str | None:
    name = schema.get("format") if isinstance(schema, dict) else None
    known = FORMATS.get(name) if isinstance(name, str) else None
    return None if known is None or not isinstance(value, str) or known.fits(value) else known.wanted
