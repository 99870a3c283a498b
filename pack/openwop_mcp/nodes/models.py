"""Shapes of the nodes' config, inputs and outputs, as OpenWOP graphs write them: closed, camelCase.

The schemas that the pack publishes are generated from these models. Knows nothing of how a node runs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler
from pydantic.alias_generators import to_camel
from pydantic_core import core_schema

__all__ = (
    "CallToolInputs",
    "DelayConfig",
    "DelayInputs",
    "Empty",
    "FailConfig",
    "HealthOutputs",
    "IdentityInputs",
    "IdentityOutputs",
    "ListToolsInputs",
    "McpClientInputs",
    "ReadResourceInputs",
    "ResourceConfig",
    "ResultOutputs",
    "ServerConfig",
    "ServerHealthInputs",
    "ToolConfig",
)

MAX_DELAY_MS = 86_400_000
"""A day. A longer wait is a schedule, which belongs to what starts the run."""

MAX_NAME = 1_024
"""Characters of a tool name: far above what servers use, far below what a header holds."""

MAX_URI = 8_192
"""Characters of a resource's URI; common HTTP servers refuse longer ones."""

MAX_KEY = 512
"""Characters of an author's idempotency key."""


class _AbsentNotNull:
    """Marks a member that may be left out: None stands for that, and null on the wire is refused."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        schema = handler(source)
        return schema["schema"] if schema["type"] == "nullable" else schema


def _whole(value: Any) -> Any:
    # 10.0 is a whole number in JSON. What else is none, the strict model refuses.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _optional(description: str) -> Any:
    return Field(default=None, description=description, json_schema_extra=_without_default)


_Optional = _AbsentNotNull()
_OptionalMilliseconds = Annotated[
    Annotated[int, Field(ge=0, le=MAX_DELAY_MS), BeforeValidator(_whole)] | None, _Optional
]
_OptionalServerId = Annotated[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None, _Optional]
_OptionalName = Annotated[Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None, _Optional]
_OptionalUri = Annotated[Annotated[str, Field(min_length=1, max_length=MAX_URI)] | None, _Optional]
_OptionalKey = Annotated[Annotated[str, Field(min_length=1, max_length=MAX_KEY)] | None, _Optional]
_OptionalText = Annotated[str | None, _Optional]
_OptionalObject = Annotated[dict[str, Any] | None, _Optional]
_OptionalMethod = Annotated[Literal["callTool", "listTools", "readResource", "serverHealth"] | None, _Optional]

_DELAY = "How long to wait, in milliseconds."
_SERVER = "Id of the MCP server in the host's settings."
_TOOL = "Name of the tool, as the server lists it."
_ARGUMENTS = "Arguments of the tool; they reach the server byte for byte."
_KEY = "Business key of the effect: two calls with the same key are one effect."
_CURSOR = "Cursor of the page, as the page before gave it; absent for the first."
_URI = "URI of the resource, as the server lists it."


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True)


class Empty(_Closed):
    """Nothing is set here."""


class FailConfig(_Closed):
    """How the failure reads."""

    message: _OptionalText = _optional("What the failure says.")


class DelayConfig(_Closed):
    """The wait of a node whose input does not say it."""

    delay_ms: _OptionalMilliseconds = _optional(_DELAY)


class DelayInputs(_Closed):
    """The wait; it goes before the one in the config."""

    delay_ms: _OptionalMilliseconds = _optional(_DELAY)


class IdentityInputs(_Closed):
    """Any JSON value."""

    payload: Any = Field(description="The value to pass on.")


class IdentityOutputs(_Closed):
    """The value that came in, byte for byte."""

    payload: Any = Field(description="The value that came in.")


class ServerConfig(_Closed):
    """The server of a node whose inputs do not name it."""

    server_id: _OptionalServerId = _optional(_SERVER)


class ToolConfig(ServerConfig):
    """The server and the tool of a node whose inputs do not name them."""

    name: _OptionalName = _optional(_TOOL)


class ResourceConfig(ServerConfig):
    """The server and the resource of a node whose inputs do not name them."""

    uri: _OptionalUri = _optional(_URI)


class ServerHealthInputs(_Closed):
    """The server; it goes before the one in the config."""

    server_id: _OptionalServerId = _optional(_SERVER)


class CallToolInputs(_Closed):
    """One call of a tool."""

    server_id: _OptionalServerId = _optional(_SERVER)
    name: _OptionalName = _optional(_TOOL)
    arguments: _OptionalObject = _optional(_ARGUMENTS)
    idempotency_key: _OptionalKey = _optional(_KEY)


class ListToolsInputs(_Closed):
    """One page of a server's tools."""

    server_id: _OptionalServerId = _optional(_SERVER)
    cursor: _OptionalText = _optional(_CURSOR)


class ReadResourceInputs(_Closed):
    """One resource."""

    server_id: _OptionalServerId = _optional(_SERVER)
    uri: _OptionalUri = _optional(_URI)


class McpClientInputs(_Closed):
    """Any of the host's MCP calls; what the node does not set is taken from the run's input of that name."""

    method: _OptionalMethod = _optional("Which call to make.")
    server_id: _OptionalServerId = _optional(_SERVER)
    name: _OptionalName = _optional(_TOOL)
    arguments: _OptionalObject = _optional(_ARGUMENTS)
    cursor: _OptionalText = _optional(_CURSOR)
    uri: _OptionalUri = _optional(_URI)
    idempotency_key: _OptionalKey = _optional(_KEY)


class ResultOutputs(_Closed):
    """What the server answered, byte for byte."""

    result: dict[str, Any] = Field(description="The server's result, unaltered.")


class _Health(_Closed):
    state: Literal["reachable", "unreachable", "incompatible"] = Field(description="What the probe found.")
    discover: _OptionalObject = _optional("The server's answer to server/discover, unaltered.")


class HealthOutputs(_Closed):
    """What a probe of the server found."""

    result: _Health = Field(description="The state of the server.")
