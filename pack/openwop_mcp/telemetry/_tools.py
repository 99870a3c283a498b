"""Names of tools as metrics tell them apart: so many of a server, as each costs whoever keeps the metrics."""

from __future__ import annotations

from openwop_mcp.telemetry.attributes import OTHER

__all__ = ("MOST", "ToolNames")

MOST = 200
"""Names of one server that are told apart. Callers can ask for tools that there are not, under any name."""


class ToolNames:
    """The first names of each server as they are, and all others as one."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}

    def bounded(self, server_id: str, name: str) -> str:
        """The name as metrics have it."""
        known = self._known.setdefault(server_id, set())
        if name not in known:
            if len(known) >= MOST:
                return OTHER
            known.add(name)
        return name


tool_names = ToolNames()
"""Those of this process, one for all metrics."""
