"""What every process of the command line has: an event loop, two streams, signals, an end.

What runs in it is for others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from io import TextIOWrapper
from typing import Any, TypeVar, cast

from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig, TelemetryFilter

from openwop_mcp.logs import set_up
from openwop_mcp.telemetry.exporting import exporting, plan_of

__all__ = ("prepare_streams", "run_async", "run_in_turn", "until_stopped", "written")

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

CORE_LOG = f"{TelemetryFilter('WARN', 'ERROR').formatted()},temporalio_common::telemetry::otel=off"
"""What is logged of what Temporal's core says. That a collector takes no metrics, it would say each time."""

S = TypeVar("S")
T = TypeVar("T")


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, and send what is measured and traced of it meanwhile to whom the environment names.

    Raises:
        SettingsError: The environment names it wrongly. Nothing was run.
    """
    # Closed, since what does not come to run would be complained of as well. What has run does not mind.
    with contextlib.closing(main), _telling():
        return _run(main)


def run_in_turn(first: Coroutine[Any, Any, S], then: Callable[[S], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine like :func:`run_async`, and then the one that is made of its outcome.

    Between the two there is no event loop, so that a person can be asked, and Ctrl-C ends that at once.

    Raises:
        SettingsError: The environment names wrongly whom to tell. Nothing was run.
    """
    with contextlib.closing(first), _telling():
        return _run(then(_run(first)))


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """Send what is measured and traced, Temporal's core included. Once in a process."""
    with exporting(plan_of(os.environ)) as metrics:
        # Left alone, the SDK's core logs to standard output, in colour.
        forwarding = LogForwardingConfig(logging.getLogger("temporalio"), append_log_fields_to_message=False)
        logs = LoggingConfig(filter=CORE_LOG, forwarding=forwarding)
        telemetry = (
            TelemetryConfig(logging=logs)
            if metrics is None
            else TelemetryConfig(
                logging=logs, metrics=metrics.config, global_tags=metrics.tags, attach_service_name=False
            )
        )
        Runtime.set_default(Runtime(telemetry=telemetry), error_if_already_set=False)
        yield


def _run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine, on uvloop where it is installed: it takes a fifth of the worker's CPU off."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    return cast("T", uvloop.run(main))


async def until_stopped(serve: Coroutine[Any, Any, None]) -> None:
    """Serve until SIGINT or SIGTERM; what was started then ends in its own time, however often they are repeated."""
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(serve)
    asked = False

    def stop() -> None:
        nonlocal asked
        if not asked:
            asked = True
            logger.info("stopping")
            serving.cancel()

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        await serving
    except asyncio.CancelledError:
        if not asked:
            raise
    finally:
        for number in STOP_SIGNALS:
            # A loop that closes gives signals back their power to kill; the process is about to end by itself.
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


def prepare_streams() -> None:
    """Make both streams take every character, whatever the locale, and log as long as no settings say otherwise."""
    for stream in (sys.stdout, sys.stderr):
        cast("TextIOWrapper", stream).reconfigure(encoding="utf-8", errors="backslashreplace")
    set_up("text", "warning", {})


def written(status: int) -> int:
    """Write out what is still in the streams' buffers; returns the exit status, which is not 0 where that failed."""
    with contextlib.suppress(OSError):
        sys.stderr.flush()
    try:
        sys.stdout.flush()
    except OSError:
        return status or 1
    return status
