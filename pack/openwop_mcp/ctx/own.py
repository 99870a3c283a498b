"""A question of an author's own: asked like any other interrupt, and recorded by the Update that answers it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, get_args

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from openwop_mcp import schemas
    from openwop_mcp.calls import MAX_DEPTH
    from openwop_mcp.ctx.asking import NO_TENANT, PATIENCE, is_patience, milliseconds, named
    from openwop_mcp.ctx.interrupts import MAX_QUESTION, is_used, resolved
    from openwop_mcp.jsontext import build, check, check_depth, encode, kind, member, members
    from openwop_mcp.questions.custom import check_own, own_question
    from openwop_mcp.questions.expiry import REJECTED, expired_code, expired_message
    from openwop_mcp.questions.question import MAX_KEY, Kind
    from openwop_mcp.verbatim import Verbatim

__all__ = ("InterruptError", "InterruptExpiredError", "InterruptRejectedError", "interrupt")

ARTIFACT = "openwop-mcp.question"
"""What is approved where the author does not say it."""

TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "array", "items": {"type": "string"}}
ACTIONS = ("accept", "reject", "refine", "edit-accept", "ask")

SHAPES: dict[Kind, dict[str, Any]] = {
    "approval": {
        "required": ["title"],
        "properties": {
            "title": TEXT,
            "description": {"type": "string"},
            "artifactId": TEXT,
            "artifactType": TEXT,
            "artifactData": {},
            "actions": {"type": "array", "items": {"enum": ACTIONS}, "minItems": 1, "uniqueItems": True},
            "approversList": TEXTS,
        },
    },
    "clarification": {
        "required": ["questions"],
        "properties": {
            "questions": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "type": "object",
                    "required": ["id", "question"],
                    "properties": {"id": TEXT, "question": TEXT, "schema": {"type": "object"}},
                    "additionalProperties": False,
                },
            },
            "contextType": {"type": "string"},
        },
    },
    "external-event": {
        "required": ["eventType", "correlation"],
        "properties": {"eventType": TEXT, "correlation": {"type": "object"}},
    },
    "custom": {"required": ["customKind"], "properties": {"customKind": TEXT, "payload": {}}},
}
"""What each kind asks with (OpenWOP v2, interrupts). Of approvals only what is kept here: nobody counts votes."""


class InterruptError(ApplicationError):
    """A question that did not end as the author hoped. Left uncaught it fails the workflow; its ``type`` is the code.

    Attributes:
        code: OpenWOP error code.
    """

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message, type=code, non_retryable=True)
        self.code = code


class InterruptRejectedError(InterruptError):
    """A person rejected it.

    Attributes:
        answer: All that they answered.
    """

    def __init__(self, message: str, answer: Verbatim) -> None:
        super().__init__(message, REJECTED)
        self.answer = answer


class InterruptExpiredError(InterruptError):
    """Nobody answered in time."""


async def interrupt(
    kind: Kind,
    data: Mapping[str, Any] | bytes | Verbatim,
    *,
    key: str,
    resume_schema: Mapping[str, Any] | bytes | Verbatim | None = None,
    timeout: timedelta | None = None,
) -> Verbatim:
    """Ask a person, or wait for an event from outside, for as long as it takes.

    Args:
        kind: ``approval``, ``clarification``, ``external-event`` or ``custom``.
        data: What is asked, as a mapping or as JSON text. An approval needs a ``title``, a clarification ``questions``,
            an external event ``eventType`` and ``correlation``, a custom question a ``customKind``.
        key: Names the question, 1 to 256 characters. It is asked once: another question needs another key.
        resume_schema: JSON Schema that an answer has to hold to, beside what its kind asks of it.
        timeout: How long to wait.

    Returns:
        The answer, exactly as it was given: of an approval with its ``action``, of a clarification with ``answers``.

    Raises:
        InterruptRejectedError: The action of an approval is ``reject``.
        InterruptExpiredError: Nobody answered in time.
        InterruptError: There can be no such question, ``code`` is ``validation_error``.
    """
    if kind not in get_args(Kind):
        raise _invalid(f"kind: give one of {', '.join(get_args(Kind))}")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY:
        raise _invalid(f"key: give a text of 1 to {MAX_KEY} characters")
    if not is_patience(timeout):
        raise _invalid(f"timeout: give a timedelta {PATIENCE}, or None")
    asked = own_question(
        kind,
        _data(kind, data, key),
        key=key,
        resume_schema=None if resume_schema is None else _object("resume_schema", resume_schema),
        timeout_ms=milliseconds(timeout),
    )
    if len(asked.payload) > MAX_QUESTION:
        raise _invalid(f"data: {len(asked.payload)} bytes are over the {MAX_QUESTION} that a question may have")
    identity = named(NO_TENANT, f"own:{key}")
    if is_used(identity):
        raise _invalid("key: a question of that key was asked before")
    value = await resolved(identity, asked.payload, lambda given: check_own(asked.payload, given), timeout=timeout)
    if value is None:
        raise InterruptExpiredError(expired_message(asked.timeout_ms or 0, called=False), expired_code(kind))
    answer = Verbatim(value)
    if kind == "approval" and answer.get("action") == "reject":
        raise InterruptRejectedError(f"'{key}' was rejected", answer)
    return answer


def _data(asked: Kind, given: Any, key: str) -> bytes:
    text = _object("data", given)
    shape = encode({"type": "object", "additionalProperties": False, **SHAPES[asked]})
    verdict = schemas.check(shape, text)
    if verdict.state == "mismatch":
        raise _invalid(f"data{(verdict.path or '').replace('/', '.')}: {verdict.reason}")
    if asked != "approval":
        return text
    defaults = {"artifactId": key, "artifactType": ARTIFACT, "actions": ACTIONS[:2]}
    missing = [(name, encode(value)) for name, value in defaults.items() if member(text, name) is None]
    return build([*members(text), *missing])


def _object(name: str, given: Any) -> bytes:
    """The JSON text of an object; a fault fails the workflow, as a workflow task would be tried for ever."""
    try:
        text = given if isinstance(given, bytes) else encode(given)
        check_depth(text, MAX_DEPTH)
        check(text)
    except (TypeError, ValueError) as error:
        raise _invalid(f"{name}: {error}") from None
    if kind(text) != "object":
        raise _invalid(f"{name}: give a mapping, or the JSON text of an object")
    return text


def _invalid(message: str) -> InterruptError:
    return InterruptError(message, "validation_error")
