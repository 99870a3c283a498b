"""Which tools of a catalog an operator means. What is said of them is for the command."""

from __future__ import annotations

from collections.abc import Sequence

from commands.errors import CommandError
from commands.printing import complain
from openwop_mcp import terminal
from openwop_mcp.catalog import listing
from openwop_mcp.catalog.state import Catalog, Tool

__all__ = ("bound", "chosen", "no_tool", "parts")

AT_ONCE = 1000
"""Tools that an operator's word is given for in one message: it stays far under the 2 MB that Temporal carries."""


def chosen(catalog: Catalog, pattern: str | None, fingerprint: str | None = None) -> list[Tool]:
    """The tools of a catalog that a name or a glob means, or all.

    Raises:
        CommandError: It means none, or not the one definition that has this fingerprint.
    """
    names = catalog.names()
    found = names if pattern is None else listing.matching(names, pattern)
    if not found and pattern is not None:
        raise no_tool(catalog.server_id, pattern)
    tools = [tool for name in found if (tool := catalog.tool(name)) is not None]
    if fingerprint is not None and [tool.fingerprint.startswith(fingerprint) for tool in tools] != [True]:
        raise CommandError(
            "the definition is not the one with that fingerprint, and nothing was done: see"
            f" 'worker.py tools show {catalog.server_id}'",
            code="proposal_stale",
        )
    return tools


def no_tool(server_id: str, pattern: str) -> CommandError:
    """Says that a server does not list what was asked for."""
    return CommandError(
        f"'{server_id}' lists no tool '{pattern}': see 'worker.py tools list {server_id}'", code="not_found"
    )


def bound(tools: Sequence[Tool]) -> list[Tool]:
    """Those of the tools that have one definition, which is what an operator's word is about; of others it is told.

    Raises:
        CommandError: None of them has.
    """
    torn = [tool for tool in tools if tool.standing.fingerprint is None]
    if torn and len(torn) == len(tools):
        raise CommandError(f"{torn[0].name}: {torn[0].unusable}", code="forbidden")
    for tool in torn:
        complain(terminal.escape(f"{tool.name} is left out: {tool.unusable}"))
    return [tool for tool in tools if tool.standing.fingerprint is not None]


def parts(tools: Sequence[Tool]) -> list[list[tuple[str, str]]]:
    """Names and fingerprints of tools, as many together as one message carries."""
    bound = [(tool.name, tool.fingerprint) for tool in tools]
    return [bound[at : at + AT_ONCE] for at in range(0, len(bound), AT_ONCE)]
