"""What the core nodes do: functions from exact inputs to exact outputs. No I/O, no clock, no Temporal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from openwop_mcp import jsontext
from openwop_mcp.nodes.models import DelayConfig, DelayInputs, FailConfig

__all__ = ("NodeError", "delay_ms", "evaluate")

_Model = TypeVar("_Model", bound=BaseModel)


class NodeError(Exception):
    """A core node cannot do, or is made not to do, what its type says.

    Attributes:
        code: OpenWOP code of the failure.
        message: Prose for people.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def evaluate(type_id: str, config: bytes, inputs: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Run a pure node: its inputs in, its outputs out, every value as exact bytes.

    Raises:
        NodeError: if the node fails.
    """
    match type_id:
        case "core.noop":
            return {}
        case "core.identity":
            return {"payload": inputs["payload"]}
        case "core.fail":
            message = FailConfig.model_validate(jsontext.decode(config)).message
            raise NodeError("internal_error", message or "the node is of type core.fail, which always fails")
        case _:
            raise NodeError("internal_error", "this node type does not run inside the machine")


def delay_ms(config: bytes, inputs: Mapping[str, bytes]) -> int:
    """How long a ``core.delay`` waits: its input, or else its config.

    Raises:
        NodeError: if neither says so, or not in whole milliseconds within the bounds.
    """
    given = _checked(DelayInputs, jsontext.build(inputs.items())).delay_ms
    if given is None:
        given = _checked(DelayConfig, config).delay_ms
    if given is None:
        raise NodeError("validation_error", "delayMs: no value came in and the config has none")
    return given


def _checked(model: type[_Model], data: bytes) -> _Model:
    try:
        return model.model_validate(jsontext.decode(data))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        path = ".".join(str(step) for step in first["loc"])
        raise NodeError("validation_error", f"{path}: {first['msg']}") from None
