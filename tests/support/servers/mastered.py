"""Servers of the tests that are processes and end with their master. What they serve and are told is not known here."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

from tests.support.cli import ROOT

__all__ = ("mastered",)


@contextlib.asynccontextmanager
async def mastered(module: str, *arguments: str) -> AsyncIterator[Process]:
    """A module that runs until the context ends, which closes its standard input and waits for it.

    Args:
        module: Its name. It writes a line when it serves.
        arguments: What it is started with.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdin=PIPE, stdout=PIPE, cwd=ROOT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        yield process
    finally:
        process.stdin.close()
        await process.wait()
