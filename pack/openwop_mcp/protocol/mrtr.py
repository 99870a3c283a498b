"""Multi round-trip requests: reads what a result asks for, and makes the members that answer it.

Pure. ``requestState`` is bytes that go back as they came; nothing here looks into it (MCP 2026-07-28, multi round-trip
requests).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from openwop_mcp import jsontext
from openwop_mcp.effects.identity import canonical

__all__ = (
    "ELICITATION",
    "MAX_ASKED",
    "Input",
    "InputRequest",
    "InputRequired",
    "MalformedInputError",
    "carrying",
    "read",
    "read_elicitations",
    "request_digest",
    "retry",
)

RESPONSES = "inputResponses"
STATE = "requestState"
ELICITATION = "elicitation/create"
KINDS = frozenset({ELICITATION, "sampling/createMessage", "roots/list"})

MAX_ASKED = 256 * 1024
"""Bytes of a result that asks people: more nobody reads, and its state travels with every later request of the call."""

SCHEMED = {"form": ("requestedSchema", "object"), "url": ("url", "string")}
"""What an elicitation must have besides its message, and of which kind, by its mode (MCP 2026-07-28, elicitation)."""


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


@dataclass(frozen=True, slots=True)
class Input:
    """What a repeated request carries beside the params of the first one. Answers and state are in no representation.

    Attributes:
        round: How often the server has asked by then.
        responses: JSON text of ``inputResponses``; None where the last round asked nothing.
        state: JSON text of ``requestState``, byte for byte as it came; None where the last round had none.
        declined: What people declined or cancelled in this call, each as its :func:`request_digest`.
        effect_round: Which round of an effect that several runs share it starts; 0 where no other run shares it.
    """

    round: int
    responses: bytes | None = field(default=None, repr=False)
    state: bytes | None = field(default=None, repr=False)
    declined: tuple[str, ...] = ()
    effect_round: int = 0

    def encode(self) -> bytes:
        """JSON text, answers and state in it byte for byte; what is not there is left out."""
        return jsontext.build(
            [
                ("round", jsontext.encode(self.round)),
                *([] if self.responses is None else [("responses", self.responses)]),
                *([] if self.state is None else [("state", self.state)]),
                *([("declined", jsontext.encode(self.declined))] if self.declined else []),
                *([("effectRound", jsontext.encode(self.effect_round))] if self.effect_round else []),
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Input:
        """Read what :meth:`encode` wrote; unknown members are ignored, as they come from a newer workflow."""
        members = dict(jsontext.members(data))
        return cls(
            jsontext.decode(members["round"]),
            members.get("responses"),
            members.get("state"),
            tuple(jsontext.decode(members.get("declined", b"[]"))),
            jsontext.decode(members.get("effectRound", b"0")),
        )


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
    found = jsontext.members(asked) if asked is not None else []
    requests = {key: _request(value) for key, value in found}
    if len(requests) < len(found) or "" in requests:
        raise MalformedInputError("an input request without a name of its own")
    return InputRequired(requests, state)


def read_elicitations(result: bytes) -> InputRequired:
    """Read a result of type ``input_required`` that asks a person, in form or URL mode, or nobody.

    Raises:
        MalformedInputError: As :func:`read`; or an elicitation lacks what its mode must have, has a mode that the
            protocol does not have, or is larger than people read.
    """
    if len(result) > MAX_ASKED:
        raise MalformedInputError(f"{len(result)} bytes are over the {MAX_ASKED} that a question may have")
    asked = read(result)
    for one in asked.requests.values():
        if one.method == ELICITATION:
            _check_elicitation(one.params)
    return asked


def _check_elicitation(params: bytes) -> None:
    if jsontext.kind(params) != "object":
        raise MalformedInputError("an elicitation without params")
    given = dict(jsontext.members(params))
    mode = jsontext.decode(given.get("mode", b'"form"'))
    if not isinstance(mode, str) or mode not in SCHEMED:
        raise MalformedInputError("an elicitation of a mode that the protocol does not have")
    for name, kind in (("message", "string"), SCHEMED[mode]):
        if name not in given or jsontext.kind(given[name]) != kind:
            raise MalformedInputError(f"an elicitation whose {name} is missing, or is no {kind}")


def request_digest(key: str, request: InputRequest) -> str:
    """What tells that the same is asked again, however it is spelled: SHA-256 of key, method and params, in hex."""
    told = jsontext.build(
        [("key", jsontext.encode(key)), ("method", jsontext.encode(request.method)), ("params", request.params)]
    )
    return hashlib.sha256(canonical(told)).hexdigest()


def carrying(members: Sequence[tuple[str, bytes]], given: Input) -> list[tuple[str, bytes]]:
    """The params of a repeated request: the original's, the answers to the last round, and the state as it came."""
    answered = [] if given.responses is None else [(RESPONSES, given.responses)]
    state = [] if given.state is None else [(STATE, given.state)]
    return [*members, *answered, *state]


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
