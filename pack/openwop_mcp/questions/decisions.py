"""What an answer decides: by whom, whether it granted what was asked, and by which action. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from openwop_mcp import jsontext
from openwop_mcp.questions.question import Kind

__all__ = ("attributed", "decision")

_GRANTS = frozenset({"accept", "edit-accept"})
_TOLD = frozenset({"accept", "reject", "refine", "edit-accept"})
"""Actions that an event has a word for (OpenWOP v2, interrupts): ``ask`` it has none for."""

DECIDED_BY = "decidedBy"
"""The member of an approval's answer that names who gave it (OpenWOP v2, interrupts)."""


def attributed(kind: Kind, resume_value: bytes, subject: bytes) -> bytes:
    """An answer as it counts: of an approval, who gave it is told by whoever took it, and never by the answer.

    Args:
        kind: The kind of the question.
        resume_value: JSON text of an answer to it.
        subject: JSON text of the subject that gave it.
    """
    if kind != "approval":
        return resume_value
    given = jsontext.members(resume_value)
    if not any(name == DECIDED_BY for name, _ in given):
        return resume_value
    known = jsontext.member(subject, "subjectId") if jsontext.kind(subject) == "object" else None
    return jsontext.build((name, (known or b"null") if name == DECIDED_BY else value) for name, value in given)


def decision(kind: Kind, resume_value: bytes | None) -> Sequence[tuple[str, bytes]]:
    """The members of ``interrupt.resolved`` that follow from an answer; None where nobody answered in time."""
    if resume_value is None:
        return [*([("decision", b'"rejected"')] if kind == "approval" else []), ("action", b'"timeout"')]
    if kind != "approval":
        return []
    given = dict(jsontext.members(resume_value))
    action = jsontext.decode(given["action"])
    refine = [("refineFeedback", given["refineFeedback"])] if action == "refine" and "refineFeedback" in given else []
    edited = [("editedArtifactData", given["editedArtifactData"])] if "editedArtifactData" in given else []
    return [
        ("decision", b'"granted"' if action in _GRANTS else b'"rejected"'),
        *([("action", given["action"])] if action in _TOLD else []),
        *refine,
        *edited,
    ]
