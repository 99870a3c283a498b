"""A question to a person: its name in the run, the interrupt that asks it, and the object that answers it. Pure."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from typing import Literal

from openwop_mcp import jsontext
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.protocol.messages import excerpt

__all__ = (
    "Kind",
    "Question",
    "Reason",
    "answer_members",
    "interrupt_id",
    "question",
    "question_key",
    "refused",
    "shown",
)

Kind = Literal["approval", "clarification", "external-event", "custom"]
"""The kinds of interrupts that are asked here (OpenWOP v2, interrupts)."""

Reason = Literal["in-doubt", "input-required", "approval-required", "gate"]
"""Why a node waits: its effect is in doubt, its server asks, its call needs approval, or waiting is what it is for."""

MAX_KEY = 256
"""Characters of a question's key (OpenWOP v2, interrupts)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as OpenWOP v2 asks it (interrupts).

    Attributes:
        key: Names the question in its run; asked once.
        payload: JSON text of the ``InterruptPayload``.
        kind: Its kind.
        reason: Why it is asked.
        timeout_ms: Milliseconds after which nobody is waited for any more; None for as long as it takes.
        round: Which round of a shared effect its answer starts; 0 where the effect is not shared.
    """

    key: str
    payload: bytes
    kind: Kind = "approval"
    reason: Reason = "in-doubt"
    timeout_ms: int | None = None
    round: int = 0


def question(
    kind: Kind,
    key: str,
    data: bytes,
    *,
    schema: bytes | None,
    reason: Reason,
    timeout_ms: int | None = None,
    round: int = 0,  # noqa: A002  the word for it everywhere else
) -> Question:
    """Put a question's payload together.

    Args:
        kind: Its kind.
        key: See :class:`Question`.
        data: JSON text of what is asked, in the shape of its kind.
        schema: JSON text of the schema of its answer.
        reason: Why it is asked.
        timeout_ms: See :class:`Question`.
        round: See :class:`Question`.
    """
    payload = jsontext.build(
        [
            ("kind", jsontext.encode(kind)),
            ("key", jsontext.encode(key)),
            ("data", data),
            *([] if schema is None else [("resumeSchema", schema)]),
            *([] if timeout_ms is None else [("timeoutMs", jsontext.encode(timeout_ms))]),
        ]
    )
    return Question(key, payload, kind, reason, timeout_ms, round)


def question_key(word: str, node: str, attempt: int) -> str:
    """The key of what a node asks at one of its attempts; a digest stands for a node whose id is too long for it."""
    key = f"{word}:{node}:{attempt}"
    if len(key) <= MAX_KEY:
        return key
    return f"{word}:{hashlib.sha256(jsontext.encode(node)).hexdigest()}:{attempt}"


def interrupt_id(tenant: str, run_id: str, key: str) -> str:
    """Id of an interrupt, bound to its tenant: ``<tenant>/<43 characters>`` (OpenWOP v2, identifiers)."""
    told = jsontext.encode(["openwop-mcp interrupt 1", run_id, key])
    return f"{tenant}/{base64.urlsafe_b64encode(hashlib.sha256(told).digest()).rstrip(b'=').decode()}"


def answer_members(text: bytes, path: str = "") -> dict[str, bytes]:
    """The members of an answer, or of an object in it.

    Args:
        text: JSON text.
        path: Where it stands in the answer; empty for the whole of it.

    Raises:
        InvalidRequestError: It is no object, or has a member twice: of two it is anybody's guess which one was meant,
            and readers of the log may take the other.
    """
    where = path or "resumeValue"
    try:
        if jsontext.kind(text) != "object":
            raise refused(where, "write a JSON object")
        given = jsontext.members(text)
    except jsontext.JsonTextError:
        raise refused(where, "write a JSON object") from None
    members = dict(given)
    if len(given) > len(members):
        raise refused(where, "write each member of the answer once")
    return members


def refused(path: str, what: str) -> InvalidRequestError:
    """Say what is wrong with an answer.

    Args:
        path: Where, in names that servers and whoever answers may have chosen.
        what: What to write, in words that hold no such name.
    """
    place = shown(path)
    return InvalidRequestError(f"{place}: {what}", path=place)


def shown(name: str) -> str:
    """A name from anywhere, for a message: its beginning, in printable characters.

    A run that refuses an answer in more words than Temporal carries never gets that across, and takes no other one.
    """
    return excerpt(name.encode("utf-8", "surrogatepass"))
