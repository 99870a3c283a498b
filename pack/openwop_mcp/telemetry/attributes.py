"""The attributes of spans and metrics: one table, which the documentation prints and the exporter filters by.

Where OpenTelemetry's semantic conventions have a name it is theirs. Some of what they name is left out, because it can
hold what is nobody's business: ``mcp.resource.uri``, ``mcp.session.id``, ``url.path``, ``url.query``,
``client.address``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = (
    "ATTEMPT",
    "DELIVERY",
    "EFFECT_ID",
    "ERROR_TYPE",
    "HTTP_METHOD",
    "HTTP_ROUTE",
    "HTTP_STATUS",
    "MEANINGS",
    "METHOD",
    "NETWORK_PROTOCOL",
    "NETWORK_TRANSPORT",
    "NODE_ID",
    "OPERATION",
    "OTHER",
    "OUTCOME",
    "PROMPT",
    "REQUEST_ID",
    "REVISION",
    "RPC_STATUS",
    "RUN_ID",
    "SCHEME",
    "SERVER_ADDRESS",
    "SERVER_ID",
    "SERVER_PORT",
    "TOOL",
)

METHOD: Final = "mcp.method.name"
REVISION: Final = "mcp.protocol.version"
REQUEST_ID: Final = "jsonrpc.request.id"
TOOL: Final = "gen_ai.tool.name"
PROMPT: Final = "gen_ai.prompt.name"
OPERATION: Final = "gen_ai.operation.name"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
NETWORK_PROTOCOL: Final = "network.protocol.name"
NETWORK_TRANSPORT: Final = "network.transport"
ERROR_TYPE: Final = "error.type"
RPC_STATUS: Final = "rpc.response.status_code"
HTTP_METHOD: Final = "http.request.method"
HTTP_ROUTE: Final = "http.route"
HTTP_STATUS: Final = "http.response.status_code"
SCHEME: Final = "url.scheme"
SERVER_ID: Final = "openwop_mcp.server_id"
EFFECT_ID: Final = "openwop_mcp.effect_id"
RUN_ID: Final = "openwop_mcp.run_id"
NODE_ID: Final = "openwop_mcp.node_id"
ATTEMPT: Final = "openwop_mcp.attempt"
DELIVERY: Final = "openwop_mcp.delivery"
OUTCOME: Final = "openwop_mcp.outcome"

OTHER: Final = "_OTHER"
"""What the conventions write for a value that is not told apart from others."""

MEANINGS: Final[Mapping[str, str]] = {
    METHOD: "Method of MCP: `tools/call`, `tools/list`, …",
    REVISION: "Revision of MCP that the request declares",
    REQUEST_ID: "Id of the JSON-RPC request",
    TOOL: "Name of the tool",
    PROMPT: "Name of the prompt",
    OPERATION: "`execute_tool` for `tools/call`",
    SERVER_ADDRESS: "Host of the MCP server; none over stdio",
    SERVER_PORT: "Its port",
    NETWORK_PROTOCOL: "`http`; none over stdio",
    NETWORK_TRANSPORT: "`tcp`, over stdio `pipe`",
    ERROR_TYPE: "The error's code, `tool_error` where the result says `isError`, or the status of an HTTP answer",
    RPC_STATUS: "Code of the server's JSON-RPC error",
    HTTP_METHOD: "Method of HTTP",
    HTTP_ROUTE: "The path as the API has it, `/runs/{runId}`, and never as it was asked for",
    HTTP_STATUS: "Status of the answer",
    SCHEME: "`http` or `https`",
    "network.protocol.version": "Version of HTTP",
    SERVER_ID: "The server's id in the settings",
    EFFECT_ID: "The effect, as the ledger names it",
    RUN_ID: "The run, or the workflow of yours",
    NODE_ID: "The node, or the activity of a workflow of yours",
    ATTEMPT: "Which attempt of the call it is, from 1",
    DELIVERY: "`not_sent`, `not_processed`, `answered` or `unknown`",
    OUTCOME: "`result`, `tool_error`, `input_required`, `approval`, `postponed` (there was no room) or `failed`",
    "temporalWorkflowID": "Temporal's id of the workflow",
    "temporalRunID": "Temporal's id of that run of it",
    "temporalActivityID": "Temporal's id of the activity",
    "temporalActivityType": "The activity's type",
    "temporalUpdateID": "Temporal's id of the Update",
}
"""What each attribute says. An attribute that is not here leaves no process of ours."""
