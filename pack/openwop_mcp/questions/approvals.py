"""A call that a person has to approve before anything of it is sent: the question, and what its answer means. Pure."""

from __future__ import annotations

from typing import Any, Literal

from openwop_mcp import jsontext
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.questions.question import Question, answer_members, question

__all__ = ("ACTIONS", "ARTIFACT", "approved", "call_question", "read_call_answer")

ACTIONS = ("accept", "reject")
"""What a person can say to a call."""

ARTIFACT = "openwop-mcp.call"
"""What is approved: a call as it will be sent."""

MAX_TITLE = 200
"""Characters of a question's title, which is a line in a list."""


def call_question(
    facts: bytes,
    arguments: bytes | None,
    *,
    key: str,
    idempotency_key: str | None = None,
    timeout_ms: int | None = None,
) -> Question:
    """Ask whether a call may be made.

    Args:
        facts: What the activity found, a JSON object: server id, tool name, safety tier, effect id.
        arguments: JSON text of the tool's arguments, as they will be sent: who approves has to see all of them.
        key: Names the question in its run.
        idempotency_key: The author's key of the effect: it says which order or transfer this is.
        timeout_ms: Milliseconds to wait.
    """
    told: dict[str, Any] = jsontext.decode(facts)
    about = " ".join(str(told[name]) for name in ("serverId", "name") if name in told) or "a call"
    shown: list[tuple[str, bytes]] = [
        (name, jsontext.encode(told[name])) for name in ("serverId", "name", "safetyTier", "effectId") if name in told
    ]
    if idempotency_key is not None:
        shown.append(("idempotencyKey", jsontext.encode(idempotency_key)))
    if arguments is not None:
        shown.append(("arguments", arguments))
    data = [
        ("artifactId", jsontext.encode(str(told.get("effectId") or "unknown"))),
        ("artifactType", jsontext.encode(ARTIFACT)),
        ("title", jsontext.encode(f"approve: {about}"[:MAX_TITLE])),
        ("description", jsontext.encode(f"A person has to approve this call. {MEANINGS}")),
        ("artifactData", jsontext.build(shown)),
        ("actions", jsontext.encode(ACTIONS)),
    ]
    schema = {"type": "object", "required": ["action"], "properties": {"action": {"enum": ACTIONS}}}
    return question(
        "approval",
        key,
        jsontext.build(data),
        schema=jsontext.encode(schema),
        reason="approval-required",
        timeout_ms=timeout_ms,
    )


MEANINGS = "'accept' sends it as it stands here, 'reject' fails it with nothing sent."
"""What each answer means, for people: the end of the question's description."""


def read_call_answer(resume_value: bytes) -> Literal["accept", "reject"]:
    """Read an answer.

    Raises:
        InvalidRequestError: It is none; the message says what to write.
    """
    action = jsontext.decode(answer_members(resume_value).get("action", b"null"))
    if action == "accept":
        return "accept"
    if action == "reject":
        return "reject"
    raise InvalidRequestError(f"write one of {', '.join(ACTIONS)} as 'action'", path="action")


def approved(facts: bytes) -> bytes:
    """What the call says that follows an approval, JSON text: what was approved, see ``CallRequest.approved``."""
    fingerprint = jsontext.member(facts, "fingerprint")
    return jsontext.build(
        [
            ("tier", jsontext.member(facts, "safetyTier") or b"null"),
            *([] if fingerprint is None else [("fingerprint", fingerprint)]),
        ]
    )
