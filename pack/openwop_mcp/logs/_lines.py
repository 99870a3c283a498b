"""A log record as a line, for people or for machines: no secret in it, and nothing that steers a terminal.

Owns both forms. What stands in a line is searched for secrets as a whole, so that it does not matter how it got there.
"""

from __future__ import annotations

import json
import logging
import re
import traceback
from datetime import UTC, datetime
from typing import Any, Final, Literal

from temporalio.exceptions import ApplicationError

from openwop_mcp.logs._facts import ANSWER, facts_of
from openwop_mcp.redaction import KNOWN, Redactor, TooManyEchoesError
from openwop_mcp.terminal import escape, escape_json

__all__ = ("Form", "JsonLines", "TextLines")

Form = Literal["text", "json"]

INDENT: Final = "    "
"""What each line of a trace begins with: none of them passes for another event."""

_PLAIN = re.compile(r"[^\s\"'=]+")
"""What needs no quotes as a value."""


class _Lines(logging.Formatter):
    """What both forms have.

    Args:
        redactor: Knows the secrets; by default those that this process has read.
    """

    def __init__(self, redactor: Redactor | None = None) -> None:
        super().__init__()
        self._redactor = redactor or KNOWN.redactor


class TextLines(_Lines):
    """``TIME LEVEL LOGGER MESSAGE key=value …``; the trace of a fault stands below, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        told = {name: value for name, value in facts_of(record).items() if name not in ANSWER}
        facts = "".join(f" {name}={_quoted(value)}" for name, value in told.items())
        head = f"{_time(record)} {record.levelname} {record.name} {record.getMessage()}{facts}"
        line = escape(self._redactor.text(head))
        raised = _raised(record)
        if raised is None:
            return line
        if "trace" not in raised:
            return f"{line}: {escape(self._redactor.text(raised['message']))}"
        trace = escape(self._redactor.text(raised["trace"]), multiline=True)
        return "\n".join((line, *(INDENT + part for part in trace.splitlines())))


class JsonLines(_Lines):
    """One JSON object a line: ``time``, ``level``, ``logger``, ``message``, the facts, and of a fault ``exception``."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        members: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **facts_of(record),
        }
        raised = _raised(record)
        if raised is not None:
            members["exception"] = raised
        line = escape_json(json.dumps(members, ensure_ascii=False, default=str)).encode()
        try:
            left = self._redactor.json(line)
        except TooManyEchoesError:
            return json.dumps({**members, "message": "it is little else than secrets", "exception": None})
        return (line if left is None else left.data).decode()


def _time(record: logging.LogRecord) -> str:
    """When it was, as RFC 3339 has it, in UTC."""
    moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
    return moment.isoformat(timespec="milliseconds") + "Z"


def _quoted(value: str | int) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _raised(record: logging.LogRecord) -> dict[str, str] | None:
    """What was raised: its type, its message and, where that is of interest, its trace."""
    if not record.exc_info or record.exc_info[1] is None:
        return {"type": "", "message": "", "trace": record.stack_info} if record.stack_info else None
    error = record.exc_info[1]
    told = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, ApplicationError):
        # How a call failed. Where in this program a server's refusal was noticed is no news.
        return told
    return told | {"trace": "".join(traceback.format_exception(error)).rstrip()}
