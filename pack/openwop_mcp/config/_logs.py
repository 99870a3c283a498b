"""The table of the log: how a line is written, and from which level on what is logged.

Knows no logger.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from openwop_mcp.config._tables import Table

__all__ = ("Logs",)

LEVELS = '"debug", "info", "warning" or "error"'

Level = Literal["debug", "info", "warning", "error"]
LoggerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$")]


class Logs(Table):
    """The log, on standard error."""

    format: Literal["text", "json"] | None = Field(None, description='"text" or "json"')
    """One JSON object a line, or a line for people. By default JSON for ``run``, ``serve`` and ``codec``, and text for
    ``dev`` and all other commands."""

    level: Level | None = Field(None, description=LEVELS)
    """From which level on this program is heard: by default ``info`` where it serves, else ``warning``. Libraries are
    heard from ``warning`` on."""

    levels: dict[LoggerName, Level] = Field(
        default={}, description=f'by logger, each {LEVELS}, as in levels = {{ "openwop_mcp.client" = "debug" }}'
    )
    """The same for single loggers and all below them, those of libraries included."""
