"""Sets up the log of a process that is ours as a whole. Owns what is heard from which level on.

In somebody else's process a handler of theirs may take a form of ours.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from typing import Final, Literal, TextIO

from temporalio import activity
from temporalio.exceptions import ApplicationError

from openwop_mcp.logs._lines import Form, JsonLines, TextLines

__all__ = ("LEVELS", "Level", "set_up")

Level = Literal["debug", "info", "warning", "error"]

LEVELS: Final[Mapping[Level, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

OWN: Final = ("openwop_mcp", "activities", "workflows", "host", "commands")
"""The loggers of this program. Libraries are heard from WARNING on: below it some write what they send, headers too."""

ASKED_FOR: Final = "openwop_mcp.messages"
"""What servers say comes only where the settings or a call ask for it, and from the level that they name."""

TELL_THEMSELVES: Final = ("RunWorkflow", "EffectWorkflow")
"""Workflows whose failures are told by who waits for them: a run by its last line, an effect by those that share it."""

CANNOT: Final = "a line of the log cannot be written (%s, %s)"


class _Handler(logging.StreamHandler[TextIO]):
    """Writes to standard error."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the standard library's name
        """Say of a line that cannot be made only where it is from: what it was to be made of may hold secrets."""
        fault = sys.exc_info()[1]
        if isinstance(fault, OSError):
            return
        where = f"{record.filename}:{record.lineno}"
        said = logging.LogRecord(record.name, logging.ERROR, record.pathname, record.lineno, CANNOT, (), None)
        said.args = (type(fault).__name__, where)
        self.stream.write(self.format(said) + self.terminator)


def _once(record: logging.LogRecord) -> bool:
    """Leave out of Temporal's lines those of failed attempts that are told where their run fails."""
    of = getattr(record, "temporal_activity", {}).get("workflow_type")
    failed = record.exc_info is not None and isinstance(record.exc_info[1], ApplicationError)
    return not failed or of not in TELL_THEMSELVES or activity.logger.isEnabledFor(logging.DEBUG)


def set_up(form: Form, level: Level, levels: Mapping[str, Level]) -> None:
    """Log to standard error from now on.

    Args:
        form: How a line is written.
        level: From which level on this program is heard.
        levels: The same for single loggers, by name, and all below them; those of libraries too.
    """
    root = logging.getLogger()
    for before in [handler for handler in root.handlers if isinstance(handler, _Handler)]:
        root.removeHandler(before)
    handler = _Handler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.captureWarnings(capture=True)
    for name in OWN:
        logging.getLogger(name).setLevel(LEVELS[level])
    logging.getLogger(ASKED_FOR).setLevel(logging.DEBUG)
    for name, own in levels.items():
        logging.getLogger(name).setLevel(LEVELS[own])
    # The line has these facts by itself.
    activity.logger.activity_info_on_message = False
    activity.logger.logger.addFilter(_once)
