"""Lines that a person pastes at this terminal, beside whatever else goes on. What they are is for the command."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import termios
import tty
from collections.abc import Callable, Iterator

from commands.printing import complain

__all__ = ("can_paste", "pasted")

STDIN = 0
"""Standard input by its number: there need be no stream."""

MAX_LINE = 16 * 1024
"""Bytes of a line, as many as a browser could bring in itself."""

AT_ONCE = 4096
"""Bytes, as many as a terminal holds."""

_BREAK = re.compile(rb"[\r\n]")


def can_paste() -> bool:
    """Whether a person may type here: on a terminal that would not stop this process for touching it."""
    if not os.isatty(STDIN):
        return False
    try:
        return os.tcgetpgrp(STDIN) == os.getpgrp()
    except OSError:
        # The terminal of another session stops nobody of this one.
        return True


@contextlib.contextmanager
def pasted(take: Callable[[str], bool]) -> Iterator[None]:
    """Give on each line that is pasted, until one was what is waited for.

    Nothing of it is shown: it may be worth a token.
    """
    loop = asyncio.get_running_loop()
    begun = b""

    def read() -> None:
        nonlocal begun
        try:
            piece = os.read(STDIN, AT_ONCE)
        except OSError:
            piece = b""
        if not piece:
            # The terminal is gone.
            loop.remove_reader(STDIN)
        *lines, begun = _BREAK.split(begun + piece)
        # Of a line that is too long the end comes in as one of its own, which is refused.
        begun = begun if len(begun) <= MAX_LINE else b""
        for line in filter(None, lines):
            if take(line.decode(errors="replace").strip()):
                loop.remove_reader(STDIN)
                return
            complain("that is not where this login ends: paste the whole address that the browser shows")

    before = termios.tcgetattr(STDIN)
    # Without an echo, and without the terminal's own limit of a line, beyond which it drops what comes.
    tty.setcbreak(STDIN)
    loop.add_reader(STDIN, read)
    try:
        yield
    finally:
        loop.remove_reader(STDIN)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(STDIN, termios.TCSAFLUSH, before)
