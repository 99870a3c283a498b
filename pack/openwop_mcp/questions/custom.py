"""A question of an author's own, of any kind: what it has to hold, and which answers its schema takes. Pure."""

from __future__ import annotations

from typing import cast

from openwop_mcp import jsontext, schemas
from openwop_mcp.effects.identity import canonical
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.questions.formats import format_fault
from openwop_mcp.questions.question import Kind, Question, answer_members, question, refused

__all__ = ("check_kind", "check_own", "own_question")


def own_question(
    kind: Kind, data: bytes, *, key: str, resume_schema: bytes | None, timeout_ms: int | None = None
) -> Question:
    """Ask what an author wrote.

    Args:
        kind: Its kind.
        data: JSON text of what is asked, in the shape of its kind (OpenWOP v2, interrupts).
        key: Names the question in its run.
        resume_schema: JSON text of the schema that an answer has to hold to; None for any answer of its kind.
        timeout_ms: Milliseconds to wait.
    """
    return question(kind, key, data, schema=resume_schema, reason="gate", timeout_ms=timeout_ms)


def check_own(payload: bytes, resume_value: bytes) -> None:
    """Tell whether an answer may be given to an author's question.

    Takes processor time, so that it stands apart from what a replay does again. A schema that cannot be used lets no
    answer through: what its author wanted to hold cannot be seen to.

    Args:
        payload: JSON text of the ``InterruptPayload``.
        resume_value: JSON text of the answer.

    Raises:
        InvalidRequestError: It may not; the message names the place and echoes no value.
    """
    asked = dict(jsontext.members(payload))
    check_kind(cast("Kind", jsontext.decode(asked["kind"])), asked["data"], resume_value)
    if (schema := asked.get("resumeSchema")) is not None:
        _check_value(schema, resume_value, "")


def check_kind(kind: Kind, data: bytes, resume_value: bytes) -> None:
    """Hold an answer to what follows from the question's kind and data alone.

    Raises:
        InvalidRequestError: It does not fit; the message names the place and echoes no value.
    """
    match kind:
        case "approval":
            _check_action(data, resume_value)
        case "clarification":
            _check_answers(data, resume_value)
        case "external-event":
            _check_correlation(data, resume_value)


def _check_value(schema: bytes, value: bytes, path: str) -> None:
    """Hold a value to an author's schema.

    Args:
        schema: JSON text.
        value: JSON text.
        path: Where the value stands in the answer; empty for the whole of it.

    Raises:
        InvalidRequestError: It breaks the schema, or the schema cannot be used.
    """
    verdict = schemas.check(schema, value)
    where = ".".join(part for part in (path, (verdict.path or "").strip("/").replace("/", ".")) if part)
    where = where or "resumeValue"
    if verdict.state == "unchecked":
        raise refused(where, f"its schema cannot be used: {verdict.reason}")
    if verdict.state == "mismatch":
        raise refused(where, f"{verdict.reason}")
    if (fault := format_fault(schema, value)) is not None:
        raise refused(".".join(part for part in (path, fault[0]) if part) or "resumeValue", f"write {fault[1]}")


def _check_action(data: bytes, resume_value: bytes) -> None:
    actions = jsontext.decode(jsontext.member(data, "actions") or b"[]")
    members = answer_members(resume_value)
    action = jsontext.decode(members.get("action", b"null"))
    if action not in actions:
        raise InvalidRequestError(f"write one of {', '.join(actions)} as 'action'", path="action")
    if action == "edit-accept" and "editedArtifactData" not in members:
        raise InvalidRequestError("write what is accepted as 'editedArtifactData'", path="editedArtifactData")
    if action == "refine" and "refineFeedback" in members:
        _check_feedback(members["refineFeedback"])


_SCOPES = ("whole", "section", "items")
_FEEDBACK = frozenset({"scope", "sectionPath", "itemIds", "tags", "text"})
"""What a wish for changes says (OpenWOP v2, interrupts): the log has room for nothing else."""


def _check_feedback(text: bytes) -> None:
    path = "refineFeedback"
    members = answer_members(text, path)
    if jsontext.decode(members.get("scope", b"null")) not in _SCOPES:
        raise InvalidRequestError(f"write one of {', '.join(_SCOPES)} as 'scope'", path=f"{path}.scope")
    for name in members:
        if name not in _FEEDBACK:
            raise refused(f"{path}.{name}", "there is no such member: leave it out")


def _check_answers(data: bytes, resume_value: bytes) -> None:
    asked = [dict(jsontext.members(one)) for one in jsontext.elements(jsontext.member(data, "questions") or b"[]")]
    by_id = {jsontext.decode(one["id"]): one.get("schema") for one in asked}
    members = answer_members(resume_value)
    answers = answer_members(members.get("answers", b"null"), "answers")
    for name in by_id:
        if name not in answers:
            raise refused(f"answers.{name}", "write an answer")
    for name, value in answers.items():
        if name not in by_id:
            raise refused(f"answers.{name}", "nothing of that name was asked")
        _check_value(by_id[name] or b'{"type":"string"}', value, f"answers.{name}")


def _check_correlation(data: bytes, resume_value: bytes) -> None:
    members = answer_members(resume_value)
    for name, expected in jsontext.members(jsontext.member(data, "correlation") or b"{}"):
        if name not in members or canonical(members[name]) != canonical(expected):
            raise refused(name, "this is not the event that is waited for: it lacks the correlation's value")
