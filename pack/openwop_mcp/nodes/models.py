"""Shapes of the nodes' config, inputs and outputs, as OpenWOP graphs write them: closed, camelCase.

The schemas that the pack publishes are generated from these models. Knows nothing of how a node runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticKnownError, core_schema

from openwop_mcp.calls import MAX_KEY, MAX_NAME, MAX_URI

__all__ = (
    "ApprovalGateConfig",
    "ApprovalGateInputs",
    "ApprovalGateOutputs",
    "AskingConfig",
    "CallToolInputs",
    "ClarificationGateConfig",
    "ClarificationGateOutputs",
    "CompleteInputs",
    "CompletionConfig",
    "DelayConfig",
    "DelayInputs",
    "Empty",
    "FailConfig",
    "GetPromptInputs",
    "HealthOutputs",
    "IdentityInputs",
    "IdentityOutputs",
    "InterruptConfig",
    "InterruptOutputs",
    "ListPromptsInputs",
    "ListResourceTemplatesInputs",
    "ListResourcesInputs",
    "ListToolsInputs",
    "McpClientInputs",
    "PromptConfig",
    "ReadResourceInputs",
    "ResourceConfig",
    "ResultOutputs",
    "ServerConfig",
    "ServerHealthInputs",
    "ToolConfig",
)

MAX_DELAY_MS = 86_400_000
"""A day. A longer wait is a schedule, which belongs to what starts the run."""


MAX_WAIT_MS = 31_536_000_000
"""A year. Who waits longer for a person waits for ever, and says so by saying nothing."""


class _AbsentNotNull:
    """Marks a member that may be left out: None stands for that, and null on the wire is refused."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        schema = handler(source)
        return schema["schema"] if schema["type"] == "nullable" else schema


def _whole(value: Any) -> Any:
    # 10.0 is a whole number in JSON. What else is none, the strict model refuses.
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _string(value: Any) -> Any:
    # A JSON string may hold a lone surrogate, which pydantic's own type refuses.
    if not isinstance(value, str):
        raise PydanticKnownError("string_type")
    return value


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _optional(description: str) -> Any:
    return Field(default=None, description=description, json_schema_extra=_without_default)


_Optional = _AbsentNotNull()
_OptionalMilliseconds = Annotated[
    Annotated[int, Field(ge=0, le=MAX_DELAY_MS), BeforeValidator(_whole)] | None, _Optional
]
_OptionalWait = Annotated[Annotated[int, Field(ge=1, le=MAX_WAIT_MS), BeforeValidator(_whole)] | None, _Optional]
_OptionalServerId = Annotated[Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,64}$")] | None, _Optional]
_OptionalName = Annotated[Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None, _Optional]
_OptionalUri = Annotated[Annotated[str, Field(min_length=1, max_length=MAX_URI)] | None, _Optional]
_OptionalKey = Annotated[Annotated[str, Field(min_length=1, max_length=MAX_KEY)] | None, _Optional]
_Text = Annotated[Any, AfterValidator(_string), WithJsonSchema({"type": "string"})]
_OptionalText = Annotated[_Text | None, _Optional]
_OptionalTexts = Annotated[dict[str, _Text] | None, _Optional]
_OptionalObject = Annotated[dict[str, Any] | None, _Optional]
_OptionalMethod = Annotated[
    Literal[
        "callTool",
        "listTools",
        "listResources",
        "listResourceTemplates",
        "readResource",
        "listPrompts",
        "getPrompt",
        "serverHealth",
    ]
    | None,
    _Optional,
]

_DELAY = "How long to wait, in milliseconds."
_SERVER = "Id of the MCP server in the host's settings."
_TOOL = "Name of the tool, as the server lists it."
_ARGUMENTS = "Arguments of the tool; they reach the server byte for byte."
_KEY = "Business key of the effect: two calls with the same key are one effect."
_CURSOR = "Cursor of the page, as the page before gave it; absent for the first."
_URI = "URI of the resource, as the server lists it."
_PROMPT = "Name of the prompt, as the server lists it."
_INPUT_WAIT = (
    "How long a person is waited for where the server asks something or the call needs approval, in milliseconds."
)
_WAIT = "How long a person is waited for, in milliseconds; as long as it takes where it is absent."
_REF = "What has the argument: a prompt by its name, or a resource template by its URI."


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


class AskingConfig(_Closed):
    """How long a call waits for people."""

    input_timeout_ms: _OptionalWait = _optional(_INPUT_WAIT)


class ToolConfig(ServerConfig, AskingConfig):
    """The server and the tool of a node whose inputs do not name them."""

    name: _OptionalName = _optional(_TOOL)


class ResourceConfig(ServerConfig, AskingConfig):
    """The server and the resource of a node whose inputs do not name them."""

    uri: _OptionalUri = _optional(_URI)


class ServerHealthInputs(_Closed):
    """The server; it goes before the one in the config."""

    server_id: _OptionalServerId = _optional(_SERVER)


class PromptConfig(ServerConfig, AskingConfig):
    """The server and the prompt of a node whose inputs do not name them."""

    name: _OptionalName = _optional(_PROMPT)


class _Open(BaseModel):
    # MCP's own shapes: what a later revision adds to them reaches the server.
    model_config = ConfigDict(extra="allow", frozen=True, strict=True)


class _Reference(_Open):
    type: Literal["ref/prompt", "ref/resource"] = Field(description="Which of the two it is.")
    name: _OptionalText = _optional("Name of the prompt.")
    uri: _OptionalText = _optional("URI or URI template of the resource.")


class _Argument(_Open):
    name: _Text = Field(description="Name of the argument.")
    value: _Text = Field(description="What there is of its value.")


class _Context(_Open):
    arguments: _OptionalTexts = _optional("The arguments that are already decided.")


_OptionalReference = Annotated[_Reference | None, _Optional]
_OptionalContext = Annotated[_Context | None, _Optional]


class CompletionConfig(ServerConfig):
    """The server, and what has the argument, of a node whose inputs do not name them."""

    ref: _OptionalReference = _optional(_REF)


class CallToolInputs(_Closed):
    """One call of a tool."""

    server_id: _OptionalServerId = _optional(_SERVER)
    name: _OptionalName = _optional(_TOOL)
    arguments: _OptionalObject = _optional(_ARGUMENTS)
    idempotency_key: _OptionalKey = _optional(_KEY)


class _PageInputs(_Closed):
    server_id: _OptionalServerId = _optional(_SERVER)
    cursor: _OptionalText = _optional(_CURSOR)


class ListToolsInputs(_PageInputs):
    """One page of a server's tools."""


class ListResourcesInputs(_PageInputs):
    """One page of a server's resources."""


class ListResourceTemplatesInputs(_PageInputs):
    """One page of a server's resource templates."""


class ListPromptsInputs(_PageInputs):
    """One page of a server's prompts."""


class ReadResourceInputs(_Closed):
    """One resource."""

    server_id: _OptionalServerId = _optional(_SERVER)
    uri: _OptionalUri = _optional(_URI)


class GetPromptInputs(_Closed):
    """One prompt."""

    server_id: _OptionalServerId = _optional(_SERVER)
    name: _OptionalName = _optional(_PROMPT)
    arguments: _OptionalTexts = _optional("Arguments of the prompt; they reach the server byte for byte.")


class CompleteInputs(_Closed):
    """An argument to complete, as MCP writes it; each part reaches the server byte for byte."""

    server_id: _OptionalServerId = _optional(_SERVER)
    ref: _OptionalReference = _optional(_REF)
    argument: _Argument = Field(description="The argument to complete.")
    context: _OptionalContext = _optional("What is already decided.")


class McpClientInputs(_Closed):
    """Any of the host's MCP calls but ``complete``; what the node does not set is taken from the run's inputs."""

    method: _OptionalMethod = _optional("Which call to make.")
    server_id: _OptionalServerId = _optional(_SERVER)
    name: _OptionalName = _optional("Name of the tool or prompt, as the server lists it.")
    arguments: _OptionalObject = _optional("Arguments of the tool or prompt; they reach the server byte for byte.")
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


# --- gates ------------------------------------------------------------------------------------------------------------


def _apart(values: list[Any]) -> list[Any]:
    if any(value in values[:index] for index, value in enumerate(values)):
        raise ValueError("write each of them once")
    return values


_Words = Annotated[str, Field(min_length=1)]
_Action = Literal["accept", "reject", "refine", "edit-accept", "ask"]
_Actions = Annotated[
    list[_Action], Field(min_length=1, json_schema_extra={"uniqueItems": True}), AfterValidator(_apart)
]
_OptionalActions = Annotated[_Actions | None, _Optional]
_OptionalNames = Annotated[Annotated[list[_Words], Field(min_length=1)] | None, _Optional]
_OptionalWords = Annotated[_Words | None, _Optional]
_OptionalEnding = Annotated[Literal["reject", "approve", "escalate"] | None, _Optional]

_ON_TIMEOUT = "What the absence of an answer counts as: a rejection, whatever is written here."
_APPROVERS = "The subjects, by their ids, who may answer; all who may answer at all where it is absent."


class ApprovalGateConfig(_Closed):
    """What is asked of the person who approves."""

    title: _Words = Field(description="What is to be approved, in a line.")
    description: _OptionalText = _optional("What has to be known of it.")
    artifact_id: _OptionalWords = _optional("Id of what is to be approved; the node's where it is absent.")
    artifact_type: _OptionalWords = _optional("What kind of thing that is.")
    actions: _OptionalActions = _optional("What can be answered; accept and reject where it is absent.")
    approvers_list: _OptionalNames = _optional(_APPROVERS)
    on_timeout: _OptionalEnding = _optional(_ON_TIMEOUT)
    timeout_ms: _OptionalWait = _optional(_WAIT)
    profile: _OptionalWords = _optional("Profile of OpenWOP that says how the answer has to be authenticated.")


class ApprovalGateInputs(_Closed):
    """What is to be approved."""

    artifact_data: Any = Field(default=None, description="What is shown.", json_schema_extra=_without_default)


class ApprovalGateOutputs(_Closed):
    """What was answered."""

    action: _Words = Field(description="The action that was chosen.")
    resume_value: Any = Field(description="The whole answer, as it was given.")
    edited_artifact_data: Any = Field(
        default=None, description="What was accepted in place of what was shown.", json_schema_extra=_without_default
    )


class _Question(_Closed):
    id: _Words = Field(description="Names the question in the answers.")
    question: _Words = Field(description="The question.")
    answer_schema: _OptionalObject = Field(
        default=None,
        alias="schema",
        description="JSON Schema of the answer; a string where it is absent.",
        json_schema_extra=_without_default,
    )


def _named_apart(questions: list[_Question]) -> list[_Question]:
    _apart([question.id for question in questions])
    return questions


_Questions = Annotated[list[_Question], Field(min_length=1), AfterValidator(_named_apart)]


class ClarificationGateConfig(_Closed):
    """What is asked."""

    questions: _Questions = Field(description="The questions, each with an id of its own.")
    timeout_ms: _OptionalWait = _optional(_WAIT)


class ClarificationGateOutputs(_Closed):
    """What was answered."""

    answers: dict[str, Any] = Field(description="The answers by the ids of their questions, as they were given.")


class _ApprovalData(_Closed):
    artifact_id: _Words
    artifact_type: _Words
    title: _Words
    actions: _Actions
    on_timeout: _OptionalEnding = None
    description: _OptionalText = None
    artifact_data: Any = None
    approvers_list: _OptionalNames = None


class _ClarificationData(_Closed):
    questions: _Questions
    context_type: _OptionalText = None


class _ExternalEventData(_Closed):
    event_type: _Text
    correlation: dict[str, Any]


class _CustomData(_Closed):
    custom_kind: _Words
    payload: Any = None


DATA: Mapping[str, type[BaseModel]] = {
    "approval": _ApprovalData,
    "clarification": _ClarificationData,
    "external-event": _ExternalEventData,
    "custom": _CustomData,
}
"""What an interrupt's data has to be, by its kind (OpenWOP v2, interrupts)."""


class InterruptConfig(_Closed):
    """What is waited for."""

    kind: Literal["external-event", "custom", "approval", "clarification"] = Field(description="Of which kind it is.")
    data: dict[str, Any] = Field(description="What is asked, as OpenWOP has it for that kind of interrupt.")
    resume_schema: _OptionalObject = _optional("JSON Schema of the answer.")
    timeout_ms: _OptionalWait = _optional(_WAIT)

    @model_validator(mode="after")
    def _check_data(self) -> Self:
        try:
            DATA[self.kind].model_validate(self.data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            path = ".".join(map(str, ("data", *first["loc"])))
            raise ValueError(f"{path}: {first['msg'].removeprefix('Value error, ')}") from None
        return self


class InterruptOutputs(_Closed):
    """What was answered."""

    resume_value: Any = Field(description="The whole answer, as it was given.")
