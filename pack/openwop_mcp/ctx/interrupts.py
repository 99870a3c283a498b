"""Interrupts of an author's workflow: shown in the memo, told by a Query, answered by an Update, waited for durably.

Knows neither what is asked nor what an answer means: whoever asks brings both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.errors import InvalidRequestError
    from openwop_mcp.failures import json_payload
    from openwop_mcp.jsontext import decode, member
    from openwop_mcp.questions.decisions import attributed
    from openwop_mcp.questions.eligibility import may_answer
    from openwop_mcp.questions.expiry import EXPIRED
    from openwop_mcp.runs.events import timestamp
    from openwop_mcp.runs.interrupts import MEMO, PENDING, RESOLVE, WAITING, OpenInterrupt, Resolution, encode_open

__all__ = ("MAX_QUESTION", "is_used", "resolved")

MAX_QUESTION = 512 * 1024
"""Bytes of one question. It has to fit into the memo, of which Temporal takes 2 MB, and nobody reads as much."""

MAX_QUESTIONS = 50
"""Questions that the memo shows at once: more than a person reads in one go."""

MAX_SHOWN = 32_768
"""Bytes that the memo's questions have together, unless the first alone has more. What is shown stands in history again
with every answer, so that a thousand answers come to 32 MB of the 50 MiB that Temporal lets a history have."""

TIMEOUT = "interrupt-timeout"
"""Summary of the timer that ends a wait."""

RESOLVED = "interrupt_already_resolved"

Check = Callable[[bytes], None]
"""Raises ``InvalidRequestError`` for what is no answer. It is asked when one is given, and never in a replay."""


async def resolved(identity: str, payload: bytes, check: Check, *, timeout: timedelta | None = None) -> bytes | None:
    """Ask a question and wait for its answer. Who asks what is open already waits for the same answer.

    Args:
        identity: Id of the interrupt.
        payload: JSON text of the ``InterruptPayload`` (OpenWOP v2, interrupts).
        check: Tells whether an answer may be given.
        timeout: How long this caller waits; None for as long as it takes.

    Returns:
        JSON text of the ``resumeValue``, as it was given; None where nobody gave one in time.
    """
    return await _desk().ask(identity, payload, check, timeout)


def is_used(identity: str) -> bool:
    """Whether there is or was an interrupt of that id in this part of the workflow's chain."""
    desk = _found()
    return desk is not None and desk.is_used(identity)


def _found() -> _Desk | None:
    """That of the workflow that runs; the handler of its Update holds it."""
    handler = workflow.get_update_handler(RESOLVE)
    if handler is None:
        return None
    owner = getattr(handler, "__self__", None)
    assert isinstance(owner, _Desk), f"the Update {RESOLVE} belongs to the pack"
    return owner


def _desk() -> _Desk:
    desk = _found()
    if desk is None:
        desk = _Desk()
        workflow.set_update_handler(RESOLVE, desk.resolve, validator=desk.check)
        workflow.set_query_handler(PENDING, desk.pending)
    return desk


@dataclass(slots=True)
class _Open:
    """A question, and the checks of those who wait for its answer: it has to do for all of them."""

    payload: bytes
    asked_at: str
    checks: list[Check] = field(default_factory=list)
    answer: bytes | None = None


class _Desk:
    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._closed: dict[str, str] = {}
        self._changed = False
        self._shown, self._counted = b"", 0
        # Begun here and never ended, as an eviction, in which calls stop waiting, must not leave a new task behind.
        self._showing = asyncio.create_task(self._keep_shown())

    def is_used(self, identity: str) -> bool:
        return identity in self._open or identity in self._closed

    async def ask(self, identity: str, payload: bytes, check: Check, timeout: timedelta | None) -> bytes | None:
        # An answer holds for those who wait for it. Who comes once all of them have gone on asks anew: the doubt may be
        # another by then, and where it is the same, whatever is answered then finds what the first answer started.
        one = self._open.setdefault(identity, _Open(payload, timestamp(round(workflow.time() * 1000))))
        one.checks.append(check)
        self._changed = True
        ended = RESOLVED
        try:
            await workflow.wait_condition(lambda: one.answer is not None, timeout=timeout, timeout_summary=TIMEOUT)
        except TimeoutError:
            # Both may arrive in one workflow task: an answer that was taken counts.
            ended = EXPIRED
        finally:
            one.checks.remove(check)
            self._changed = True
            if not one.checks:
                del self._open[identity]
                self._closed[identity] = ended if one.answer is None else RESOLVED
            if not self._open and workflow.in_workflow():
                # Now, as a workflow that was cancelled may be over before anything else of it runs. One that
                # was evicted ends outside of itself, and shows nothing.
                self._show()
        return one.answer

    def check(self, given: RawValue) -> None:
        try:
            resolution = Resolution.decode(given.payload.data)
        except (ValueError, KeyError):
            raise _refused("validation_error", "the Update takes interruptId, resumeValue and resolvedBy") from None
        one = self._open.get(resolution.interrupt_id)
        if one is None:
            code = self._closed.get(resolution.interrupt_id, "not_found")
            raise _refused(code, _GONE[code])
        if one.answer is not None:
            raise _refused(RESOLVED, _GONE[RESOLVED])
        if not may_answer(one.payload, resolution.resolved_by):
            raise _refused("forbidden", "the interrupt names who may answer it, and you are not among them")
        try:
            for check in one.checks:
                check(resolution.resume_value)
        except InvalidRequestError as error:
            raise _refused(error.code, error.message) from None

    def resolve(self, given: RawValue) -> None:
        resolution = Resolution.decode(given.payload.data)
        one = self._open[resolution.interrupt_id]
        kind = decode(member(one.payload, "kind") or b"null")
        one.answer = attributed(kind, resolution.resume_value, resolution.resolved_by)

    def pending(self) -> RawValue:
        """All open questions, oldest first."""
        return RawValue(json_payload(encode_open(list(self._waiting()))))

    async def _keep_shown(self) -> None:
        """Show what has changed once all that is ready has run: many calls may come into doubt at the same time."""
        while True:
            await workflow.wait_condition(lambda: self._changed)
            self._show()

    def _show(self) -> None:
        self._changed = False
        shown = list(self._to_show())
        text = encode_open(shown) if shown else b""
        waiting = sum(one.answer is None for one in self._open.values())
        memo: dict[str, Any] = {}
        if waiting != self._counted:
            self._counted = waiting
            memo[WAITING] = waiting or None
        if text != self._shown:
            self._shown = text
            memo[MEMO] = RawValue(json_payload(text)) if shown else None
        if memo:
            workflow.upsert_memo(memo)

    def _to_show(self) -> Iterator[OpenInterrupt]:
        """The open questions, oldest first, as far as there is room. The others are shown once these have answers."""
        size = 0
        for number, shown in enumerate(self._waiting(), 1):
            size += len(shown.encode())
            if number > 1 and (size > MAX_SHOWN or number > MAX_QUESTIONS):
                return
            yield shown

    def _waiting(self) -> Iterator[OpenInterrupt]:
        for identity, one in self._open.items():
            if one.answer is None:
                yield OpenInterrupt(identity, "", one.payload, asked_at=one.asked_at)


_GONE = {
    RESOLVED: "the interrupt has an answer, or nobody waits for one any more",
    EXPIRED: "nobody answered the interrupt in time",
    "not_found": "the workflow has no such interrupt",
}
"""Why an interrupt takes no answer, by the code that says so."""


def _refused(code: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=code, non_retryable=True)
