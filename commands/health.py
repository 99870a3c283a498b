"""A file that says that a worker is well, for whoever watches processes by a command. Who looks at it is not known."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from commands.errors import CommandError

__all__ = ("Touch", "kept_healthy")

Touch = Callable[[], Awaitable[None]]


@contextlib.asynccontextmanager
async def kept_healthy(file: Path | None) -> AsyncIterator[Touch]:
    """Have a file, which is as old as the last sign of life; with the context's end it is gone.

    Args:
        file: The file; None for none.

    Yields:
        What is to be called at every sign of life.

    Raises:
        CommandError: It cannot be written.
    """
    if file is None:
        yield _untold
        return

    async def touch() -> None:
        # A disk that is full for a while is told by the file's age, as all else is.
        with contextlib.suppress(OSError):
            await asyncio.to_thread(file.touch)

    try:
        await asyncio.to_thread(file.touch)
    except OSError as error:
        raise CommandError(f"the file {file} cannot be written ({error.strerror}): give another to --healthy") from None
    try:
        yield touch
    finally:
        await asyncio.to_thread(file.unlink, missing_ok=True)


async def _untold() -> None:
    pass
