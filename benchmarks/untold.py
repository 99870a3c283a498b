"""`worker.py` with all that tells of calls cut out of it, to see what it costs to have it there and off."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Self

from temporalio.client import Client

from commands.connection import connect
from openwop_mcp.config import Settings

__all__ = ("REPLACED", "cut_out")


class NoRequest:
    """In place of what makes a span of a request."""

    __slots__ = ()

    active = False

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class NoAttempt:
    """In place of what counts an attempt."""

    __slots__ = ("answer", "failure")

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def count(self) -> None:
        """Count nothing."""


def no_members() -> Sequence[tuple[str, str]]:
    """In place of what passes a trace on to servers."""
    return ()


def no_doubt(_: object) -> None:
    """In place of what counts doubts."""


async def not_traced(settings: Settings, *, traced: bool = False) -> Client:
    """In place of what has Temporal pass a trace on."""
    del traced
    return await connect(settings)


REPLACED: Sequence[tuple[str, str, Callable[..., Any]]] = (
    ("openwop_mcp.client._conversation", "SentRequest", NoRequest),
    ("openwop_mcp.client._conversation", "trace_members", no_members),
    ("activities.perform", "EndedAttempt", NoAttempt),
    ("workflows.run", "count_doubt", no_doubt),
    ("openwop_mcp.ctx.attempts", "count_doubt", no_doubt),
    ("commands.serving", "connect", not_traced),
)
"""Where a worker comes by it: module, name, and what stands there instead."""


def cut_out() -> None:
    """Replace it in this process.

    Raises:
        AttributeError: It is not where it was: the table above is out of date.
    """
    for module, name, instead in REPLACED:
        where = import_module(module)
        getattr(where, name)
        setattr(where, name, instead)


if __name__ == "__main__":
    from commands.app import main
    from commands.process import written

    cut_out()
    # As worker.py ends.
    os._exit(written(main(sys.argv[1:])))
