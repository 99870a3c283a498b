"""Polls of a run's events: their parameters, and the closed page around events that are sent one by one.

Holds no connection and no clock, and never the whole page.
"""

from __future__ import annotations

import re

from openwop_mcp import jsontext

from .errors import invalid

__all__ = ("DEFAULT_SECONDS", "MAX_SECONDS", "after_sequence", "head", "tail", "timeout")

MAX_SECONDS = 60
"""How long OpenWOP lets a poll wait."""

DEFAULT_SECONDS = 30
"""How long OpenWOP has a poll wait that does not say."""

_SEQUENCE = re.compile(r"0|[1-9][0-9]{0,17}")
_SECONDS = re.compile(r"[1-9][0-9]?")


def after_sequence(asked: str | None) -> int:
    """Read the parameter ``afterSequence``: events after this one are asked for, -1 for all.

    Raises:
        HostError: ``validation_error``.
    """
    if asked is None:
        return -1
    if _SEQUENCE.fullmatch(asked) is None:
        raise invalid("afterSequence", "write the sequence of the last event that you have, or leave it out")
    return int(asked)


def timeout(asked: str | None) -> int:
    """Read the parameter ``timeout``: seconds to wait for an event.

    Raises:
        HostError: ``validation_error``.
    """
    if asked is None:
        return DEFAULT_SECONDS
    if _SECONDS.fullmatch(asked) is None or int(asked) > MAX_SECONDS:
        raise invalid("timeout", f"write a whole number of seconds from 1 to {MAX_SECONDS}")
    return int(asked)


def head(run_id: str) -> bytes:
    """What stands before the events, which follow with commas between them."""
    return b'{"runId":' + jsontext.encode(run_id) + b',"events":['


def tail(*, last_sequence: int, status: str, is_terminal: bool) -> bytes:
    """What stands after the events.

    Args:
        last_sequence: The highest in the log, -1 while it is empty; not that of the page.
        status: Where the run stands.
        is_terminal: Whether the log is complete.
    """
    rest = {"lastSequence": last_sequence, "status": status, "isTerminal": is_terminal}
    return b"]," + jsontext.encode(rest)[1:]
