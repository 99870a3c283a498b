"""The shape of a workflow definition on the wire (OpenWOP v2, workflow definition), and how its faults read.

Closed, as the specification has it; what the specification knows and a run here would ignore is refused. Knows nothing
of graphs and node types.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Discriminator, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

__all__ = (
    "PORT_SHAPES",
    "ConditionShape",
    "ConnectionShape",
    "DefinitionShape",
    "EdgeShape",
    "ExpressionShape",
    "NodeShape",
    "PortShape",
    "StaticShape",
    "TriggerRule",
    "VariableRefShape",
    "VariableShape",
    "VariableType",
    "faults_of",
    "port_shape",
)

TriggerRule = Literal["all_success", "any_success", "all_complete", "none_failed", "any_failed"]
VariableType = Literal["string", "number", "boolean", "object", "array"]

_Text = Annotated[str, Field(min_length=1)]
_Id = Annotated[str, Field(pattern=r"^[A-Za-z0-9._~:-]{1,128}$")]
_Object = dict[str, Any]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)


class StaticShape(_Shape):
    """A literal."""

    type: Literal["static"]
    value: Any


class ExpressionShape(_Shape):
    """An expression."""

    type: Literal["expression"]
    expression: _Text


class ConnectionShape(_Shape):
    """Another node's output."""

    type: Literal["connection"]
    node_id: _Id
    output_key: _Text
    optional: bool = False


class VariableRefShape(_Shape):
    """A variable."""

    type: Literal["variable"]
    variable_name: _Text
    optional: bool = False


PortShape = Annotated[
    StaticShape | ExpressionShape | ConnectionShape | VariableRefShape,
    Discriminator("type"),
]
port_shape: TypeAdapter[StaticShape | ExpressionShape | ConnectionShape | VariableRefShape] = TypeAdapter(PortShape)
PORT_SHAPES: Mapping[str, type[BaseModel]] = {
    "static": StaticShape,
    "variable": VariableRefShape,
    "connection": ConnectionShape,
    "expression": ExpressionShape,
}
"""The shapes of ports by their type. An expression is read to be refused in so many words."""


class _PositionShape(_Shape):
    x: float
    y: float


class NodeShape(_Shape):
    """A node."""

    id: _Id
    type_id: _Text
    name: _Text
    position: _PositionShape
    config: _Object
    inputs: dict[str, PortShape]
    notes: str | None = None
    group_id: str | None = None
    output_role: Literal["primary", "secondary"] | None = None
    artifact_type: str | None = None
    card_type: str | None = None
    output_sensitivity: dict[str, bool] = {}
    disabled: Literal[False] = False


class ConditionShape(_Shape):
    """A condition of an edge."""

    type: _Text
    left: Any = None
    right: Any = None
    expression: str | None = None


class EdgeShape(_Shape):
    """An edge."""

    id: _Text
    source_node_id: _Id
    target_node_id: _Id
    source_output: _Text | None = None
    target_input: _Text | None = None
    condition: ConditionShape | None = None
    label: str | None = None
    trigger_rule: TriggerRule = "all_success"


class _TriggerShape(_Shape):
    id: _Text
    type: Literal[
        "manual",
        "schedule",
        "webhook",
        "event",
        "artifact",
        "canvas",
        "envelope",
        "command",
        "chat-message",
        "channel-write",
    ]
    name: str | None = None
    description: str | None = None
    config: _Object | None = None
    enabled: bool = True
    node_id: str | None = None
    event_type: str | None = None


class VariableShape(_Shape):
    """A variable's declaration."""

    name: _Text
    type: VariableType
    description: str | None = None
    required: bool = False
    default_value: Any = None
    sensitive: bool = False
    format: _Text | None = None


class _SettingsShape(_Shape):
    timeout: Annotated[int, Field(ge=0)] = 0
    max_retries: Annotated[int, Field(ge=0)] | None = None
    log_level: str | None = None
    max_loopback_iterations: int | None = None


class DefinitionShape(_Shape):
    """A whole definition."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*$", max_length=128)]
    name: Annotated[str, Field(min_length=1, max_length=256)]
    description: str | None = None
    version: _Text
    type: str | None = None
    is_active: bool | None = None
    status: Literal["active", "inactive", "draft", "archived"] | None = None
    slug: str | None = None
    nodes: Annotated[list[NodeShape], Field(min_length=1)]
    edges: list[EdgeShape]
    triggers: list[_TriggerShape]
    variables: list[VariableShape]
    groups: list[_Object] | None = None
    configurable_schema: _Object | None = None
    metadata: _Object
    settings: _SettingsShape
    allowed_tools: list[_Text] | None = None
    created_at: str | None = None
    updated_at: str | None = None


_UNSUPPORTED = (
    "acceptsInheritedArtifacts",
    "agent",
    "channels",
    "compensation",
    "credentialsRef",
    "defaults",
    "disabled",
    "envelopeContract",
    "irreversibleEffect",
    "scopeId",
    "settings",
    "tenantId",
)
"""Members that OpenWOP knows and that change what a run does or shows. A run that ignored them would be another run."""


def faults_of(
    error: ValidationError,
    model: type[BaseModel],
    base: tuple[str, ...],
    *,
    tagged: bool = False,
    leave_out: Sequence[str] = (),
) -> list[str]:
    """One line for each fault, without what was written: it may be a secret in the wrong place.

    Args:
        error: What pydantic found.
        model: The shape that was asked for, to tell what could have been meant.
        base: Where that shape stands in the file.
        tagged: Whether the error's places begin with the name of a union's member.
        leave_out: Kinds of faults that are told elsewhere.
    """
    faults = []
    for fault in error.errors(include_url=False, include_input=False):
        if fault["type"] in leave_out:
            continue
        path = _path_text(base, fault["loc"], tagged=tagged)
        name = str(fault["loc"][-1]) if fault["loc"] else ""
        if fault["type"] == "missing":
            what = "write it: it is required"
        elif fault["type"] in ("extra_forbidden", "literal_error") and name in _UNSUPPORTED:
            what = "not supported here: remove it"
        elif fault["type"] == "extra_forbidden":
            near = get_close_matches(name, _names(model, fault["loc"][:-1]), 1)
            what = "remove it: there is no such member" + (f" (did you mean '{near[0]}'?)" if near else "")
        elif fault["type"] in ("union_tag_not_found", "union_tag_invalid"):
            what = "write an object with a type of static, variable or connection"
        elif fault["type"] == "literal_error":
            what = "write " + fault["ctx"]["expected"].replace("'", "")
        else:
            what = fault["msg"].removeprefix("Value error, ")
        faults.append(f"{path}: {what}")
    return faults


def _names(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """The members that the shape has at a place. Steps that are no members, such as indexes, are passed over."""
    shapes = [model]
    for step in loc:
        fields = (field for shape in shapes for name, field in shape.model_fields.items() if field.alias == step)
        shapes = [inner for field in fields for inner in _shapes_in(field.annotation)] or shapes
    return [field.alias or name for shape in shapes for name, field in shape.model_fields.items()]


def _shapes_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _shapes_in(inner)


def _path_text(base: tuple[str, ...], loc: Sequence[str | int], *, tagged: bool) -> str:
    # A union's error names the member of the union that it tried: nothing that stands in the file.
    steps = list(loc)
    if tagged:
        del steps[:1]
    elif steps[:1] == ["nodes"] and steps[2:3] == ["inputs"]:
        del steps[4:5]
    text = ".".join(base)
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f"{'.' if text else ''}{step}"
    return text or "the definition"
