"""What came of the calls that workflows make, counted where each attempt ends.

Knows records and failures as they cross Temporal, and nothing of how a call is made.
"""

from __future__ import annotations

from collections.abc import Mapping

import temporalio.api.common.v1
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from openwop_mcp import failures, jsontext
from openwop_mcp.calls import METHODS, CallRequest, interim
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.telemetry import attributes as names
from openwop_mcp.telemetry._tools import tool_names
from openwop_mcp.telemetry.instruments import ARGUMENTS, CALLS, IN_DOUBT, RESULTS, counter, histogram
from openwop_mcp.telemetry.switch import measured

__all__ = ("EndedAttempt", "count_doubt")

_calls = counter(CALLS)
_in_doubt = counter(IN_DOUBT)
_arguments = histogram(ARGUMENTS)
_results = histogram(RESULTS)

INTERIM: Mapping[str, tuple[str, Delivery]] = {
    "input": ("input_required", Delivery.ANSWERED),
    "approval": ("approval", Delivery.NOT_SENT),
}
"""Outcome and delivery of an attempt that is no outcome of its call, by its kind."""


class EndedAttempt:
    """What one attempt came to, counted once it has ended, however that was.

    Args:
        request: The call.
        arguments: JSON text of its arguments.
        known: Whether the settings have its server. A caller can make up ids of others.

    Attributes:
        answer: Its record, if it has one.
        failure: Why it has none, or why that was not kept. Without either nothing has ended: it goes on elsewhere.
    """

    def __init__(self, request: CallRequest, arguments: bytes | None, *, known: bool) -> None:
        self._request = request
        self._arguments = arguments
        self._known = known
        self.answer: temporalio.api.common.v1.Payload | None = None
        self.failure: ApplicationError | None = None

    def count(self) -> None:
        """Count it."""
        if not measured():
            return
        if self.failure is not None:
            ended = failures.written(self.failure)
            outcome = "failed" if ended.happened.postponed is None else "postponed"
            delivery, told = ended.happened.delivery, {names.OUTCOME: outcome, names.ERROR_TYPE: ended.code}
        elif self.answer is not None:
            delivery, told = self._read(self.answer)
        else:
            return
        _arguments.record(len(self._arguments or b""), self._about)
        _calls.add(1, {**self._about, **told, names.DELIVERY: delivery.value})

    def _read(self, answer: temporalio.api.common.v1.Payload) -> tuple[Delivery, dict[str, str]]:
        kind = interim(answer.metadata)
        if kind is not None:
            outcome, delivery = INTERIM[kind]
            return delivery, {names.OUTCOME: outcome}
        _results.record(len(answer.data), self._about)
        failed = self._request.method == "callTool" and jsontext.member(answer.data, "isError") == b"true"
        return Delivery.ANSWERED, {names.OUTCOME: "tool_error" if failed else "result"}

    @property
    def _about(self) -> dict[str, str]:
        server_id = self._request.server_id if self._known else names.OTHER
        about = {names.SERVER_ID: server_id, names.METHOD: METHODS[self._request.method]}
        if self._request.method == "callTool" and self._request.name:
            about[names.TOOL] = tool_names.bounded(server_id, self._request.name)
        return about


def count_doubt(failure: failures.CallFailure) -> None:
    """Count an attempt that left its effect in doubt, where workflow code decides what follows: once, in no replay.

    Nobody else hears of attempts whose worker was lost.
    """
    if not failure.happened.in_doubt or not measured() or workflow.unsafe.is_replaying():
        return
    facts = jsontext.decode(failure.details)
    server_id, name = str(facts.get("serverId", names.OTHER)), facts.get("name")
    about = {names.SERVER_ID: server_id}
    if isinstance(name, str):
        about[names.TOOL] = tool_names.bounded(server_id, name)
    _in_doubt.add(1, about)
