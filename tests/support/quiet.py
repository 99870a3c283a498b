"""Logging as it was before: what a command sets up is for a process that ends with it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

__all__ = ("logging_undone",)


@contextlib.contextmanager
def logging_undone() -> Iterator[None]:
    """Undo handlers, levels and filters at the end."""
    root = logging.getLogger()
    loggers = [root, *(one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger))]
    before = {logger.name: (logger.level, logger.filters[:]) for logger in loggers}
    handlers = root.handlers[:]
    yield
    root.handlers[:] = handlers
    logging.captureWarnings(capture=False)
    for logger in [root, *(one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger))]:
        level, logger.filters[:] = before.get(logger.name, (logging.NOTSET, []))
        logger.setLevel(level)
