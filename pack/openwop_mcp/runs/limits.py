"""How long a run may take and how many nodes it may start: the least of what host, workflow and caller allow. Pure.

Knows where each says so, and not what becomes of a run that is over it.
"""

from __future__ import annotations

import dataclasses

from openwop_mcp import jsontext
from openwop_mcp.runs.definition import Definition
from openwop_mcp.runs.start import Options

__all__ = ("limited",)

LONGEST = 100 * 365 * 24 * 3_600_000
"""Milliseconds of the longest timeout, a hundred years: no run goes on for longer, and a timer still holds it."""


def limited(options: Options, definition: Definition, configurable: bytes | None = None) -> Options:
    """The options of a run, with its limits.

    Args:
        options: What the host sets, its own limits among it.
        definition: What is run; its ``settings.timeout`` is a limit.
        configurable: JSON object text of the run's ``configurable``, which has been checked; ``run.runTimeoutMs`` and
            ``run.recursionLimit`` are limits.
    """
    timeout = _least(options.run_timeout_ms, definition.timeout_ms, _asked(configurable, "runTimeoutMs"))
    return dataclasses.replace(
        options,
        run_timeout_ms=None if timeout is None else min(timeout, LONGEST),
        max_node_executions=_least(options.max_node_executions, _asked(configurable, "recursionLimit")),
    )


def _asked(configurable: bytes | None, name: str) -> int | None:
    value = None if configurable is None else jsontext.pointer(configurable, ["run", name])
    return None if value is None else int(jsontext.decode(value))


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
