"""What a person is asked about an effect in doubt, and what each answer means for the next attempt. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from openwop_mcp import jsontext
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.questions.question import Question

__all__ = ("MEANINGS", "Answer", "Verdict", "question", "read_answer", "read_verdict")

Verdict = Literal["resend", "done", "fail"]
"""What becomes of the effect: it is sent again, it happened and has a result, or the call fails."""

VERDICTS: Mapping[str, Verdict] = {"accept": "resend", "edit-accept": "done", "reject": "fail"}
"""Verdict by the action of an approval (OpenWOP v2, interrupts)."""

MEANINGS = (
    "'accept' sends it again, 'edit-accept' takes it as done with the result in editedArtifactData, 'reject' fails the"
    " call."
)
"""What each answer to a question means, for people: the end of its description."""

MAX_SHOWN = 8_192
"""Bytes of arguments that a question shows: more is not read, and what shows it in Temporal is to be small."""

MAX_TITLE = 200
"""Characters of a question's title, which is a line in a list."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a person decided about an effect in doubt. It travels with the next attempts, until one carries it out.

    Attributes:
        verdict: What becomes of the effect.
        result: JSON text of the result that it is taken to have had; only for ``done``.
        round: Which round of an effect that several runs share it starts; 0 where no other run shares it.
        since: The attempt that it was given for: those before it were asked about, and no later one. 0 where its record
            is older and does not say: then it travelled with that attempt alone.
    """

    verdict: Verdict
    result: bytes | None = None
    round: int = 0
    since: int = 0

    def encode(self) -> bytes:
        """JSON text, the result in it byte for byte."""
        since = [("since", jsontext.encode(self.since))] if self.since else []
        result = [] if self.result is None else [("result", self.result)]
        return jsontext.build(
            [("verdict", jsontext.encode(self.verdict)), ("round", jsontext.encode(self.round)), *since, *result]
        )


def question(details: bytes, message: str, *, key: str | None = None, arguments: bytes | None = None) -> Question:
    """Ask what is to become of an effect in doubt.

    Args:
        details: Facts of the failed attempt, a JSON object: effect id, server id, tool name, attempt.
        message: Why the outcome is unknown, for people.
        key: The author's key of the effect: it says which order or transfer this is.
        arguments: JSON text of what the tool was called with; shown where it is short enough to be read.
    """
    facts: dict[str, Any] = jsontext.decode(details)
    about = " ".join(str(facts[name]) for name in ("serverId", "name") if name in facts) or "a call"
    effect_id = str(facts.get("effectId", "unknown"))
    asked = [] if key is None else [("idempotencyKey", jsontext.encode(key))]
    if arguments is not None and len(arguments) <= MAX_SHOWN:
        asked.append(("arguments", arguments))
    shown = jsontext.build([*jsontext.members(details), *asked]) if asked else details
    data = {
        "artifactId": effect_id,
        "artifactType": "openwop-mcp.effect",
        "title": f"in doubt: {about}"[:MAX_TITLE],
        "description": f"{message}. {MEANINGS}",
        "actions": list(VERDICTS),
    }
    schema = {
        "type": "object",
        "required": ["action"],
        "properties": {"action": {"enum": list(VERDICTS)}, "editedArtifactData": {"type": "object"}},
        "if": {"properties": {"action": {"const": "edit-accept"}}},
        "then": {"required": ["editedArtifactData"]},
    }
    number = int(facts.get("round", 0))
    # An effect that was sent again may come into doubt again, another question. Each round counts its own attempts.
    name = f"in-doubt:{effect_id.rpartition('/')[2]}:{facts.get('attempt', 1)}" + (f":{number}" if number else "")
    payload = jsontext.build(
        [
            ("kind", b'"approval"'),
            ("key", jsontext.encode(name)),
            ("data", jsontext.build([*((k, jsontext.encode(v)) for k, v in data.items()), ("artifactData", shown)])),
            ("resumeSchema", jsontext.encode(schema)),
        ]
    )
    return Question(name, payload, round=number)


def read_answer(resume_value: bytes, number: int, room: int | None = None) -> Answer:
    """Read an answer to a question.

    Args:
        resume_value: JSON text of a ``resumeValue`` (OpenWOP v2, interrupts).
        number: The question's ``round``.
        room: Bytes that a result may have, as it travels together with the call; None where that was seen to.

    Raises:
        InvalidRequestError: It is none, or too large; the message says what to write.
    """
    try:
        given = jsontext.members(resume_value)
        members = dict(given)
        action = jsontext.decode(members.get("action", b"null"))
    except jsontext.JsonTextError:
        given, members, action = [], {}, None
    # Of two it is anybody's guess which one was meant, and readers of the log may take the other.
    if len(given) > len(members):
        raise InvalidRequestError("write each member of the answer once", path="action")
    verdict = VERDICTS.get(action) if isinstance(action, str) else None
    if verdict is None:
        raise InvalidRequestError(f"write one of {', '.join(VERDICTS)} as 'action'", path="action")
    if verdict != "done":
        return Answer(verdict, round=number)
    result = members.get("editedArtifactData")
    if result is None or not _is_result(result):
        raise InvalidRequestError(
            "write the result that the call is taken to have had as 'editedArtifactData', as a server would: a JSON"
            ' object with its content, such as {"content": [{"type": "text", "text": "done"}]}',
            path="editedArtifactData",
        )
    if room is not None and len(result) > room:
        raise InvalidRequestError(
            f"write a smaller result: it has {len(result)} bytes, and what carries the call has room for {room}",
            path="editedArtifactData",
        )
    return Answer(verdict, result, number)


def _is_result(text: bytes) -> bool:
    """Whether it has what every ``CallToolResult`` has (MCP 2026-07-28, tools)."""
    content = jsontext.member(text, "content") if jsontext.kind(text) == "object" else None
    return content is not None and jsontext.kind(content) == "array"


def read_verdict(data: bytes) -> Answer:
    """Read what :meth:`Answer.encode` wrote."""
    members = dict(jsontext.members(data))
    return Answer(
        jsontext.decode(members["verdict"]),
        members.get("result"),
        jsontext.decode(members["round"]),
        jsontext.decode(members.get("since", b"0")),
    )
