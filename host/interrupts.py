"""Questions of runs that wait for an answer: found in the log, shown, and answered by an Update.

What an answer has to be, and who may give it, is the run's to say; that a token may not be enough is said here. Knows
Temporal's answers and no request.
"""

from __future__ import annotations

import hashlib
from http import HTTPStatus
from typing import NoReturn

from temporalio.client import Client

from openwop_mcp import jsontext
from openwop_mcp.questions.eligibility import takes_tokens
from openwop_mcp.runs.interrupts import RESOLVE, Resolution

from .errors import HostError, invalid
from .ids import BoundId
from .logs import RunLog, RunLogs
from .principals import TOKEN_ISSUER, Principal
from .snapshot import RunView, Waiting
from .tokens import Claims
from .updates import RunOverError, UpdateRefusedError, update, was_taken
from .web import Answer

__all__ = ("Interrupts", "bearer_of")

PRIVATE = {"Cache-Control": "no-store"}
"""Headers of what a token shows: its address is a credential, and nothing between may keep what lies there."""

DIGITS = 32
"""Hexadecimal digits of a token's subject: half a SHA-256, which is more than enough to tell any two apart."""


class Interrupts:
    """Shows and answers the questions of runs.

    Args:
        client: Connected to the namespace of the runs.
        logs: Tell what the runs wait with.
    """

    def __init__(self, client: Client, logs: RunLogs) -> None:
        self._client = client
        self._logs = logs

    async def resolve(
        self, run_id: BoundId, node_id: str, resume_value: bytes, by: Principal, *, again: str | None
    ) -> Answer:
        """Answer the question that a node waits with.

        Args:
            run_id: The run.
            node_id: The node.
            resume_value: JSON text of the answer.
            by: Who gives it.
            again: Names the request where it may come again; it then counts once.

        Raises:
            HostError: ``not_found``, ``interrupt_already_resolved``, ``validation_error``, ``forbidden``, or
                ``service_unavailable`` if no worker took it in time.
            RPCError: Temporal does not answer.
        """
        log = await self._logs.open(run_id)
        waiting = log.view.waiting_at(node_id)
        try:
            if waiting is None:
                raise _not_waiting(log.view, node_id)
            return await self._resolve(run_id, waiting, resume_value, by, again)
        except HostError as error:
            return await self._taken_before(error, run_id, node_id, again)

    async def resolve_by_token(
        self, claims: Claims, resume_value: bytes, by: Principal, *, again: str | None
    ) -> Answer:
        """Answer the question that a token is for. See :meth:`resolve`."""
        try:
            run_id, waiting, _ = await self._of_token(claims)
            return await self._resolve(run_id, waiting, resume_value, by, again)
        except HostError as error:
            run_id = BoundId.parse(claims.run_id, name="runId")
            return await self._taken_before(error, run_id, claims.node_id, again)

    async def inspect(self, claims: Claims) -> Answer:
        """Show the question that a token is for: its ``InterruptPayload``, as the run's log has it.

        Raises:
            HostError: ``not_found``, ``interrupt_already_resolved`` or ``forbidden``.
            RPCError: Temporal does not answer.
        """
        _, _, payload = await self._of_token(claims)
        return Answer(HTTPStatus.OK, payload, PRIVATE)

    async def _of_token(self, claims: Claims) -> tuple[BoundId, Waiting, bytes]:
        """The run, what it waits with, and how that was asked."""
        run_id = BoundId.parse(claims.run_id, name="runId")
        log = await self._logs.open(run_id)
        waiting = log.view.waiting_with(claims.interrupt_id)
        if waiting is None:
            # It was signed for a question that there was.
            raise _resolved()
        payload = await _asked(log, waiting)
        if not takes_tokens(payload, _config(log.view, waiting.node_id)):
            raise HostError(
                "forbidden",
                "this question is not answered by a link: answer it with a key, at /runs/{runId}/interrupts/{nodeId}",
            )
        return run_id, waiting, payload

    async def _resolve(
        self, run_id: BoundId, waiting: Waiting, resume_value: bytes, by: Principal, again: str | None
    ) -> Answer:
        given = Resolution(waiting.interrupt_id, resume_value, jsontext.encode(by.subject))
        try:
            await update(self._client, run_id, RESOLVE, given.encode(), again=again)
        except UpdateRefusedError as error:
            _refuse(error)
        except RunOverError:
            raise _resolved() from None
        return await self._taken(run_id, waiting.node_id)

    async def _taken_before(self, error: HostError, run_id: BoundId, node_id: str, again: str | None) -> Answer:
        """The answer to a request that comes again and was carried out since: no worker had taken it in time."""
        if error.code != "interrupt_already_resolved" or again is None:
            raise error
        if not await was_taken(self._client, run_id, again):
            raise error
        return await self._taken(run_id, node_id)

    async def _taken(self, run_id: BoundId, node_id: str) -> Answer:
        log = await self._logs.open(run_id)
        body = {"runId": str(run_id), "nodeId": node_id, "status": log.view.status(cancelling=log.cancelling)}
        return Answer(HTTPStatus.OK, jsontext.encode(body))


def bearer_of(claims: Claims) -> Principal:
    """Who a request comes from that has a token: whoever it was given to, which is all that is known of them."""
    digest = hashlib.sha256(claims.interrupt_id.encode()).hexdigest()[:DIGITS]
    tenant = BoundId.parse(claims.run_id, name="runId").tenant
    return Principal(
        f"token-{digest}", tenant, digest, frozenset(), issuer=TOKEN_ISSUER, lane="workload", kind="workload"
    )


async def _asked(log: RunLog, waiting: Waiting) -> bytes:
    async for event in log.events(waiting.sequence - 1):
        return event.payload
    raise AssertionError("unreachable")


def _config(view: RunView, node_id: str) -> bytes:
    """The config of a node, JSON text."""
    return jsontext.member(_nodes(view)[node_id], "config") or b"{}"


def _nodes(view: RunView) -> dict[str, bytes]:
    nodes = jsontext.elements(jsontext.member(view.definition, "nodes") or b"[]")
    return {jsontext.decode(jsontext.member(node, "id") or b'""'): node for node in nodes}


def _not_waiting(view: RunView, node_id: str) -> HostError:
    if view.has_asked(node_id) or (view.is_terminal and node_id in _nodes(view)):
        return _resolved()
    return HostError("not_found", "there is no such node, or it has asked nothing yet")


def _resolved() -> HostError:
    return HostError("interrupt_already_resolved", "the question has its answer, or the run has ended without one")


def _refuse(error: UpdateRefusedError) -> NoReturn:
    """Tell why a run did not take an answer."""
    match error.code:
        case "validation_error":
            raise invalid("resumeValue", error.message) from None
        case "forbidden":
            raise HostError("forbidden", error.message) from None
        case "interrupt_already_resolved" | "not_found":
            # It waited a moment ago.
            raise _resolved() from None
        case _:
            raise error
