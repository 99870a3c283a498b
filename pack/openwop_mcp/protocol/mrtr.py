"""Multi round-trip requests: reads what a result asks for, and makes the members that answer it.

Pure. ``requestState`` is bytes that go back as they came; nothing here looks into it (MCP 2026-07-28, multi round-trip
requests).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openwop_mcp import jsontext

__all__ = ("InputRequest", "InputRequired", "MalformedInputError", "read", "retry")

RESPONSES = "inputResponses"
STATE = "requestState"
KINDS = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})


class MalformedInputError(ValueError):
    """A result that asks for input in a way that cannot be answered."""


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One thing that is asked for.

    Attributes:
        method: ``elicitation/create``, ``sampling/createMessage`` or ``roots/list``.
        params: JSON text.
    """

    method: str
    params: bytes


@dataclass(frozen=True, slots=True)
class InputRequired:
    """What a server needs before it goes on.

    Attributes:
        requests: What is asked, by the server's keys; empty where it only wants to be called again.
        state: JSON text of ``requestState``, if there is one.
    """

    requests: Mapping[str, InputRequest]
    state: bytes | None


def read(result: bytes) -> InputRequired:
    """Read a result of type ``input_required``.

    Raises:
        MalformedInputError: It asks for nothing, or for what the protocol does not have.
    """
    state, asked = jsontext.member(result, STATE), jsontext.member(result, "inputRequests")
    if state is not None and jsontext.kind(state) != "string":
        raise MalformedInputError("requestState is no string")
    if asked is None and state is None:
        raise MalformedInputError("neither inputRequests nor requestState")
    if asked is not None and jsontext.kind(asked) != "object":
        raise MalformedInputError("inputRequests is no object")
    requests = {key: _request(value) for key, value in (jsontext.members(asked) if asked is not None else [])}
    return InputRequired(requests, state)


def retry(
    members: Sequence[tuple[str, bytes]], asked: InputRequired, responses: Mapping[str, bytes]
) -> list[tuple[str, bytes]]:
    """The params of the request that answers: the original's, every answer, and the state as it came.

    Args:
        members: Params of the original request.
        asked: What the last round asked.
        responses: JSON text of an answer for each of its keys.
    """
    answered = (
        [(RESPONSES, jsontext.build([(key, responses[key]) for key in asked.requests]))] if asked.requests else []
    )
    state = [(STATE, asked.state)] if asked.state is not None else []
    return [*members, *answered, *state]


def _request(value: bytes) -> InputRequest:
    found = dict(jsontext.members(value)) if jsontext.kind(value) == "object" else {}
    method = jsontext.decode(found["method"]) if "method" in found else None
    if not isinstance(method, str) or method not in KINDS:
        raise MalformedInputError("an input request of a kind that the protocol does not have")
    return InputRequest(method, found.get("params", b"{}"))
