"""What a log line is about: the run, the node, the server of the call that was under way when it was written.

Whoever begins a piece of work says so once; what is logged meanwhile, by whatever library, has it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Final

__all__ = ("ANSWER", "FACTS", "about", "facts_of")

FACTS: Final = ("run", "node", "server", "effect", "attempt", "tenant", "request", "key")
"""The facts there are, in the order in which they are told."""

ANSWER: Final = ("method", "route", "status", "ms")
"""Facts of a request to the host that was answered. The message of its line is made of them, for people."""

SERVERS: Final = "openwop_mcp.server."
"""What the loggers of local servers are called, before their ids."""

_NOTHING: Mapping[str, str | int] = MappingProxyType({})
_about: ContextVar[Mapping[str, str | int]] = ContextVar("openwop_mcp.logs", default=_NOTHING)


def about(**facts: str | int | None) -> None:
    """Say what the current task works on, for all that it logs from now on; what is None is not known any more.

    Tasks that it starts inherit it. Nothing ends it but the end of the task: Temporal's SDK, which logs how an activity
    ended, does so after the activity.

    Args:
        facts: Some of :data:`FACTS`.
    """
    known = {**_about.get(), **facts}
    _about.set({name: value for name, value in known.items() if value is not None})


def facts_of(record: logging.LogRecord) -> Mapping[str, str | int]:
    """The facts of a line: what its task works on, what Temporal's loggers bring along, and its own ``facts``."""
    found: dict[str, str | int] = {}
    # Workflow code runs in threads of its own. Its logger, which is silent on replay, brings the run along.
    for source in ("temporal_activity", "temporal_workflow"):
        run = getattr(record, source, {}).get("workflow_id")
        if run is not None:
            found["run"] = run
    found |= _about.get()
    found |= getattr(record, "facts", _NOTHING)
    if record.name.startswith(SERVERS):
        # What a local server writes belongs to no call.
        found["server"] = record.name.removeprefix(SERVERS)
    return {name: found[name] for name in (*FACTS, *ANSWER) if name in found}
