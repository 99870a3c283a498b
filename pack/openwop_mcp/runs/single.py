"""The workflow of one tool call, for those who want a call's record and no graph.

Owns that definition's text. Knows nothing of who calls.
"""

from __future__ import annotations

from openwop_mcp import jsontext

__all__ = ("single_call",)

MAX_NAME = 256
"""Characters that the name of a workflow may have; that of a tool may have more."""


def single_call(server_id: str, name: str, arguments: bytes | None, idempotency_key: str | None) -> tuple[bytes, bytes]:
    """Write a definition of one node that calls a tool, and the inputs of its run.

    Args:
        server_id: The server.
        name: The tool.
        arguments: JSON text of an object; it stands in the inputs byte for byte, as a definition that held it would be
            read whole by every worker that takes the run up. None leaves the member out.
        idempotency_key: The caller's key for the effect, if it has one.
    """
    given = [] if arguments is None else [("arguments", arguments)]
    inputs = [(member, b'{"type":"variable","variableName":"arguments"}') for member, _ in given]
    if idempotency_key is not None:
        inputs.append(("idempotencyKey", jsontext.encode({"type": "static", "value": idempotency_key})))
    node = jsontext.build(
        [
            ("id", b'"call"'),
            ("typeId", b'"community.mcp.call-tool"'),
            ("name", jsontext.encode(f"{server_id} {name}")),
            ("position", b'{"x":0,"y":0}'),
            ("config", jsontext.encode({"serverId": server_id, "name": name})),
            ("inputs", jsontext.build(inputs)),
        ]
    )
    definition = jsontext.build(
        [
            ("id", b'"call"'),
            ("name", jsontext.encode(f"call {server_id} {name}"[:MAX_NAME])),
            ("version", b'"1"'),
            ("nodes", b"[" + node + b"]"),
            ("edges", b"[]"),
            ("triggers", b'[{"id":"manual","type":"manual","enabled":true}]'),
            ("variables", jsontext.encode([{"name": member, "type": "object"} for member, _ in given])),
            ("metadata", b"{}"),
            ("settings", b"{}"),
        ]
    )
    return definition, jsontext.build(given)
