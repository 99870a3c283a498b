"""Questions of an author's workflow to a person: asked in the memo, answered by an Update, waited for durably."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.effects.decide import Ask
    from openwop_mcp.effects.doubt import Answer, Question, interrupt_id, question, read_answer
    from openwop_mcp.errors import InvalidRequestError
    from openwop_mcp.failures import CallFailure, conclude, json_payload
    from openwop_mcp.jsontext import decode
    from openwop_mcp.runs.interrupts import MEMO, RESOLVE, WAITING, OpenInterrupt, Resolution, encode_open

__all__ = ("ask_about_doubt",)

MAX_QUESTIONS = 50
"""Questions that the memo shows at once: more than a person reads in one go."""

MAX_SHOWN = 32_768
"""Bytes that the memo's questions have together, unless the first alone has more. What is shown stands in history again
with every answer, so that a thousand answers come to 32 MB of the 50 MiB that Temporal lets a history have."""


async def ask_about_doubt(failure: CallFailure, room: int, *, key: str | None, arguments: bytes | None) -> Answer:
    """Ask a person what is to become of an effect in doubt, and wait for the answer.

    Args:
        failure: That of the attempt which left it so.
        room: Bytes that a result may have which a person gives, as it travels together with the call.
        key: The author's key of the effect.
        arguments: JSON text of what the tool was called with.
    """
    asked = question(failure.details, conclude(failure, Ask()).message, key=key, arguments=arguments)
    tenant = str(decode(failure.details).get("effectId", "")).rpartition("/")[0]
    return await _interrupts().ask(interrupt_id(tenant, workflow.info().workflow_id, asked.key), asked, room)


def _interrupts() -> _Interrupts:
    """Those of the workflow that runs; the handler of its Update holds them."""
    handler = workflow.get_update_handler(RESOLVE)
    if handler is None:
        interrupts = _Interrupts()
        workflow.set_update_handler(RESOLVE, interrupts.resolve, validator=interrupts.check)
        return interrupts
    owner = getattr(handler, "__self__", None)
    assert isinstance(owner, _Interrupts), f"the Update {RESOLVE} belongs to the pack"
    return owner


@dataclass(slots=True)
class _Open:
    """A question, and how many calls wait for its answer; ``room`` is that of the one with the least."""

    asked: Question
    room: int
    calls: int = 0
    answer: Answer | None = None


class _Interrupts:
    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._answered: set[str] = set()
        self._changed = False
        self._shown, self._counted = b"", 0
        # Begun here and never ended, as an eviction, in which calls stop waiting, must not leave a new task behind.
        self._showing = asyncio.create_task(self._keep_shown())

    async def ask(self, identity: str, asked: Question, room: int) -> Answer:
        # An answer holds for those who wait for it. Who comes once all of them have gone on asks anew: the doubt may be
        # another by then, and where it is the same, whatever is answered then finds what the first answer started.
        one = self._open.setdefault(identity, _Open(asked, room))
        one.room = min(one.room, room)
        one.calls += 1
        self._changed = True
        try:
            await workflow.wait_condition(lambda: one.answer is not None)
        finally:
            one.calls -= 1
            self._changed = True
            if not one.calls:
                del self._open[identity]
            if not self._open:
                # Now, as a workflow that was cancelled may be over before anything else of it runs.
                self._show()
        assert one.answer is not None
        return one.answer

    def check(self, given: RawValue) -> None:
        try:
            resolution = Resolution.decode(given.payload.data)
        except (ValueError, KeyError):
            raise _refused("validation_error", "the Update takes interruptId, resumeValue and resolvedBy") from None
        one = self._open.get(resolution.interrupt_id)
        answered = resolution.interrupt_id in self._answered if one is None else one.answer is not None
        if answered:
            raise _refused("interrupt_already_resolved", "the interrupt has an answer")
        if one is None:
            raise _refused("not_found", "the workflow has no such interrupt")
        try:
            _read(resolution, one)
        except InvalidRequestError as error:
            raise _refused(error.code, error.message) from None

    def resolve(self, given: RawValue) -> None:
        resolution = Resolution.decode(given.payload.data)
        one = self._open[resolution.interrupt_id]
        one.answer = _read(resolution, one)
        self._answered.add(resolution.interrupt_id)

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
        size = number = 0
        for identity, one in self._open.items():
            if one.answer is not None:
                continue
            shown = OpenInterrupt(identity, "", one.asked.payload)
            size += len(shown.encode())
            number += 1
            if number > 1 and (size > MAX_SHOWN or number > MAX_QUESTIONS):
                return
            yield shown


def _read(resolution: Resolution, one: _Open) -> Answer:
    return read_answer(resolution.resume_value, one.asked.round, one.room)


def _refused(code: str, message: str) -> ApplicationError:
    return ApplicationError(message, type=code, non_retryable=True)
