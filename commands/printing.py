"""Where text goes: answers to standard output, all else to standard error, and nothing steers the terminal.

What the text says is for others.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console

from openwop_mcp import terminal

__all__ = ("LEDGER_COLUMNS", "LOG_COLUMNS", "TOOLS_COLUMNS", "complain", "print_json", "print_table", "print_text")

TOOLS_COLUMNS = 150
"""What a table of tools takes at least: a fold in a name or a fingerprint is worse than a line that runs over."""

LEDGER_COLUMNS = 170
"""The same for a ledger, whose ids are long and have to be whole to be searched for."""

LOG_COLUMNS = 110
"""What a line of a run's log may take on a narrow terminal too: better one that runs over than times cut in two."""


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]], *, columns: int = 0) -> None:
    """Print a table, at least so wide if it needs that.

    It is plain: where no escape sequence is ever written, one that came from a server cannot hide among others.
    """
    out = Console(soft_wrap=True, force_terminal=False, highlight=False)
    out.width = max(out.width, columns)
    out.print(terminal.table(headers, rows))


def print_text(text: str) -> None:
    """Print text that may come from a server: nothing in it steers the terminal."""
    sys.stdout.write(terminal.escape(text, multiline=True) + "\n")


def print_json(data: bytes) -> None:
    """Print one JSON value; its bytes are kept where no terminal would act on them."""
    sys.stdout.write(terminal.json_for(sys.stdout, data) + "\n")


def complain(text: str) -> None:
    """Tell what went wrong, on standard error."""
    sys.stderr.write(terminal.escape(text, multiline=True) + "\n")
