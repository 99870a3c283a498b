"""A question asked at this terminal. Which question it is, and what becomes of the answer, is for the command."""

from __future__ import annotations

import os
import sys
import time
from io import TextIOWrapper
from pathlib import Path
from typing import cast

from commands.errors import CommandError, UnansweredError
from commands.printing import complain
from commands.prose import named
from openwop_mcp import terminal
from openwop_mcp.questions import telling
from openwop_mcp.questions.form import NoFormError, NotWantedError, form_of
from openwop_mcp.questions.interview import interview
from openwop_mcp.runs.interrupts import OpenInterrupt

__all__ = ("asked_here",)

UNSENT = "nothing was sent, and the run waits as before"
"""What became of a question that was not answered after all."""


def asked_here(one: OpenInterrupt) -> bytes:
    """The answer of whoever sits at this terminal, as JSON text."""
    complain(named(one))
    complain(next(telling.in_brief(one.payload, one.asked_at, time.time())))
    try:
        given = interview(form_of(one.payload), AtTerminal())
    except NoFormError as error:
        raise CommandError(
            f"this cannot be asked here, as {error}: give the answer as JSON (see"
            f" 'worker.py interrupts show {one.run_id}')",
            code="validation_error",
        ) from None
    except (EOFError, KeyboardInterrupt):
        # The prompt's line has no end yet.
        sys.stderr.write("\n")
        raise UnansweredError(UNSENT) from None
    if given is None:
        raise CommandError(UNSENT, code="cancelled")
    return given


class AtTerminal:
    """Whoever sits at this terminal. They are shown everything on standard error, as nothing of it was asked for."""

    LINE = 4_095
    """Bytes that a terminal gives as one line at most; what is typed beyond them is lost without a word."""

    def __init__(self) -> None:
        cast("TextIOWrapper", sys.stdin).reconfigure(encoding="utf-8", errors="surrogateescape")

    def tell(self, text: str) -> None:
        """Show lines."""
        complain(text)

    def ask(self, prompt: str) -> str:
        """Take a line."""
        sys.stderr.write(terminal.escape(prompt))
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line.endswith("\n"):
            raise EOFError
        if len(os.fsencode(line)) >= self.LINE:
            raise NotWantedError("a terminal takes no longer line: answer with JSON, from a file")
        return line.removesuffix("\n")

    def load(self, name: str) -> str:
        """The text of a file."""
        try:
            return Path(name).read_text(encoding="utf-8")
        except (OSError, ValueError):
            raise NotWantedError("that file cannot be read, or is not UTF-8") from None
