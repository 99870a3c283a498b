"""What ``serverHealth`` answers: whether a server can be reached, from a discover probe.

OpenWOP v2, host services, ``mcp``. There is no connection or session state to report: MCP 2026-07-28 has none.
"""

from __future__ import annotations

from dataclasses import replace

from openwop_mcp import jsontext
from openwop_mcp.client._client import McpClient
from openwop_mcp.client._conversation import CallOptions, Exchange
from openwop_mcp.client._negotiation import offered, shown
from openwop_mcp.errors import McpError, NoCommonRevisionError, RpcError
from openwop_mcp.protocol import revisions

__all__ = ("health", "probe")

_DEFAULT = CallOptions()

NO_ANSWER = 0
"""HTTP status of a health that no answer stands behind."""


async def health(client: McpClient, options: CallOptions = _DEFAULT) -> Exchange:
    """Probe a server.

    Returns:
        JSON text ``{"state": "reachable" | "incompatible" | "unreachable", "discover"?: DiscoverResult}``; the
        DiscoverResult's bytes are the server's.
    """
    answer, error = await probe(client, options)
    return replace(answer, refusal=error) if isinstance(error, NoCommonRevisionError) else answer


async def probe(client: McpClient, options: CallOptions = _DEFAULT) -> tuple[Exchange, McpError | None]:
    """Probe a server; what :func:`health` says, and why it is not reachable, for people."""
    try:
        exchange = await client.discover(options)
    except (RpcError, NoCommonRevisionError) as error:
        return _state("incompatible"), error
    except McpError as error:
        return _state("unreachable"), error
    spoken = offered(exchange.result, "supportedVersions")
    common = revisions.choose(spoken, floor=revisions.MODERN) is not None
    state = jsontext.encode("reachable" if common else "incompatible")
    answer = replace(exchange, result=jsontext.build([("state", state), ("discover", exchange.result)]))
    return answer, None if common else NoCommonRevisionError(
        requested=revisions.MODERN, supported=shown(spoken), floor=revisions.MODERN
    )


def _state(state: str) -> Exchange:
    return Exchange(jsontext.encode({"state": state}), "", NO_ANSWER)
