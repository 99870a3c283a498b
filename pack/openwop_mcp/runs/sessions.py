"""Sessions of tools: the pair of events around each execution of a node that calls one, from first attempt to end.

Pure. They hold no content, and nothing is told where the inputs do not say plainly which tool is called.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Literal

from openwop_mcp import jsontext
from openwop_mcp.calls import MAX_NAME
from openwop_mcp.catalog.names import tool_id
from openwop_mcp.nodes.calls import METHOD_OF

__all__ = ("CLOSED", "OPENED", "Outcome", "called_tool", "session_id")

OPENED = "tool.session-opened"
"""Type of the event that begins one (OpenWOP v2, registry of event types)."""

CLOSED = "tool.session-closed"
"""Type of the event that ends it."""

Outcome = Literal["completed", "failed", "cancelled"]
"""How it ended: as its node did. An execution that a pause cut off, and that begins afresh, was cancelled."""

_SERVER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")


def called_tool(type_id: str, config: bytes, inputs: Mapping[str, bytes]) -> str | None:
    """The id of the tool that a node calls; None if it calls none, or names one that cannot be called.

    Args:
        type_id: The node's type.
        config: JSON text of its config.
        inputs: JSON texts of its inputs, by name. They come before the config.
    """
    method = METHOD_OF.get(type_id) or _text(inputs.get("method"))
    if method != "callTool":
        return None
    server_id, name = (_text(inputs.get(member) or jsontext.member(config, member)) for member in ("serverId", "name"))
    if server_id is None or name is None:
        return None
    if _SERVER_ID.fullmatch(server_id) is None or not 0 < len(name) <= MAX_NAME:
        return None
    return tool_id(server_id, name)


def session_id(run_id: str, node_id: str, execution: int) -> str:
    """Id of a session: 43 characters, the same wherever the log is read.

    Args:
        run_id: The bound id of the run.
        node_id: The node.
        execution: Attempts of the node before this execution; no two have the same.
    """
    told = jsontext.encode(["openwop-mcp session 1", run_id, node_id, execution])
    return base64.urlsafe_b64encode(hashlib.sha256(told).digest()).rstrip(b"=").decode()


def _text(value: bytes | None) -> str | None:
    """A JSON string; None for all else."""
    if value is None or jsontext.kind(value) != "string":
        return None
    text: str = jsontext.decode(value)
    return text
