"""What a call of an author's workflow asks: about a doubt, for a server's input, for an approval. And who answers.

A person answers, or the author's own code where a server asks. Nothing that a server sends is an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import temporalio.api.common.v1
from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from openwop_mcp.calls import EFFECT_ROUND, METHODS, CallRequest, provenance
    from openwop_mcp.ceilings import call_ceiling
    from openwop_mcp.ctx.attempts import in_light_of
    from openwop_mcp.ctx.interrupts import MAX_QUESTION, resolved
    from openwop_mcp.effects.decide import Ask
    from openwop_mcp.effects.delivery import Delivery
    from openwop_mcp.effects.doubt import Answer, question, read_answer
    from openwop_mcp.errors import InvalidRequestError
    from openwop_mcp.failures import CallFailure, Escaped, McpCallError, conclude, final
    from openwop_mcp.jsontext import decode, encode, member
    from openwop_mcp.questions.approvals import approved, call_question, read_call_answer
    from openwop_mcp.questions.elicitation import asked, check_input, input_question, read_input
    from openwop_mcp.questions.expiry import REJECTED, expired_code, expired_message
    from openwop_mcp.questions.question import Question, interrupt_id, question_key
    from openwop_mcp.verbatim import Verbatim

__all__ = (
    "LONGEST",
    "PATIENCE",
    "Asked",
    "InputRequest",
    "OnInput",
    "Questions",
    "is_patience",
    "milliseconds",
    "named",
)

LONGEST = timedelta(days=3650)
"""For so long nobody waits, and so far ahead Temporal still takes a timer."""

PATIENCE = f"above 0 and of at most {LONGEST.days} days"
"""What :func:`is_patience` takes, in words."""

NO_TENANT = "default"
"""Stands in an interrupt's id for a tenant that workflow code does not know: it is that of settings which name none."""


@dataclass(frozen=True, slots=True)
class InputRequest:
    """One thing that a server asks for.

    Attributes:
        mode: A form to fill in, or an address that a person is to visit.
        message: The server's words, which are not to be trusted.
        schema: What is to be filled in; only of a form.
        url: The address; only where one is to be visited. Nothing here opens it.
    """

    mode: Literal["form", "url"]
    message: str
    schema: Verbatim | None
    url: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a server asks for in one round of a call.

    Attributes:
        server_id: The server.
        subject: The tool, prompt or resource that was called.
        round: 1 where it asks for the first time in this call.
        requests: What it asks for, by the server's keys.
    """

    server_id: str
    subject: str
    round: int
    requests: Mapping[str, InputRequest]


OnInput = Callable[[Asked], Awaitable[Mapping[str, Any] | bytes | Verbatim]]
"""Answers in a person's place: for each key ``{"action": "accept" | "decline" | "cancel", "content"?: {…}}``."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Those of one call.

    Attributes:
        taken: Bytes that the call takes up by itself, as answers travel together with it.
        arguments: JSON text of what is called with.
        key: The author's key of the effect.
        on_input: Answers what the server asks, in a person's place.
        timeout: How long a person is waited for.
    """

    taken: int
    arguments: bytes | None
    key: str | None
    on_input: OnInput | None
    timeout: timedelta | None

    async def about_doubt(self, failure: CallFailure) -> Answer:
        """What is to become of an effect in doubt."""
        told = conclude(failure, Ask()).message
        doubt = question(failure.details, told, key=self.key, arguments=self.arguments)
        tenant = str(decode(failure.details).get("effectId", "")).rpartition("/")[0]
        identity = interrupt_id(tenant, workflow.info().workflow_id, doubt.key)
        room = self._room()

        def check(given: bytes) -> None:
            read_answer(given, doubt.round, room)

        value = await resolved(identity, doubt.payload, check)
        assert value is not None, "without a timeout there is an answer"
        return read_answer(value, doubt.round)

    async def for_input(
        self, request: CallRequest, record: temporalio.api.common.v1.Payload
    ) -> tuple[bytes, tuple[str, ...]]:
        """The ``inputResponses`` to what a server asks, and the digests of what was declined of it."""
        result = record.data
        if self.on_input is not None:
            given = read_input(await self._in_code(request, result, self.on_input), result)
            return given.responses, given.declined
        effect_id, number = provenance(record.metadata, "effect-id"), provenance(record.metadata, EFFECT_ROUND)
        # Calls that share an effect are asked once; of any other each is asked for itself.
        shared = None if effect_id is None or number is None else (effect_id.rpartition("/")[2], int(number))
        ask = input_question(
            result,
            server_id=request.server_id,
            tool=request.name if request.method == "callTool" else None,
            key=question_key("input", *(shared or (_call(request), request.attempt))),
            timeout_ms=milliseconds(self.timeout),
        )
        room = self._room(member(result, "requestState"))

        def check(value: bytes) -> None:
            check_input(value, result)
            if len(value) > room:
                raise InvalidRequestError(
                    f"write less: the answer has {len(value)} bytes, and what carries the call has room for {room}"
                )

        value = await self._asked(ask, effect_id, check)
        if value is None:
            raise self._expired(ask, request, Delivery.ANSWERED)
        given = read_input(value, result)
        return given.responses, given.declined

    async def for_approval(self, request: CallRequest, facts: bytes, escaped: Escaped) -> bytes:
        """The ``approved`` of a call that a person approves."""
        key = question_key("approval", _call(request), request.attempt)
        ask = call_question(
            facts, self.arguments, key=key, idempotency_key=self.key, timeout_ms=milliseconds(self.timeout)
        )
        if len(ask.payload) > MAX_QUESTION:
            told = f"a person has to approve the call, and can be shown no more than {MAX_QUESTION} bytes of it"
            raise failed("forbidden", told, request, Delivery.NOT_SENT, escaped)

        def check(given: bytes) -> None:
            read_call_answer(given)

        value = await self._asked(ask, str(decode(facts).get("effectId", "")), check)
        if value is None:
            raise self._expired(ask, request, Delivery.NOT_SENT, escaped)
        if read_call_answer(value) == "reject":
            raise failed(REJECTED, "the call was rejected, and nothing was sent", request, Delivery.NOT_SENT, escaped)
        return approved(facts)

    async def _in_code(self, request: CallRequest, result: bytes, on_input: OnInput) -> bytes:
        """An answer of the author's code, which stands in no history of its own: a replay runs the code again.

        It is held to its structure alone. Verdicts on content may differ with the time that they take and from one
        version of a library to the next, so that no replay may depend on them; the server has one of its own.
        """
        requests = {
            key: InputRequest(one.mode, one.message, None if one.schema is None else Verbatim(one.schema), one.url)
            for key, one in asked(result).items()
        }
        try:
            given = await on_input(Asked(request.server_id, request.subject, request.round + 1, requests))
            text = given if isinstance(given, bytes) else encode(given)
            read_input(text, result)
        except FailureError:
            # Temporal's own, such as that of an activity that the code called: it says what happened itself.
            raise
        except InvalidRequestError as error:
            told = f"on_input: {error.message}"
            raise failed(error.code, told, request, Delivery.ANSWERED, path=error.facts.get("path")) from None
        except Exception as error:
            # Left to itself it would fail the workflow task, which is tried again for ever.
            told = f"on_input raised {type(error).__name__}"
            raise failed("internal_error", told, request, Delivery.ANSWERED) from error
        return text

    async def _asked(self, ask: Question, effect_id: str | None, check: Callable[[bytes], None]) -> bytes | None:
        tenant = (effect_id or "").rpartition("/")[0] or NO_TENANT
        return await resolved(named(tenant, ask.key), ask.payload, check, timeout=self.timeout)

    def _room(self, state: bytes | None = None) -> int:
        """Bytes that an answer may have, as it travels together with the call."""
        return max(0, call_ceiling(workflow.payload_converter()) - self.taken - len(state or b""))

    def _expired(
        self, ask: Question, request: CallRequest, delivery: Delivery, escaped: Escaped = Escaped.NO
    ) -> McpCallError:
        told = expired_message(ask.timeout_ms or 0, called=delivery is Delivery.ANSWERED)
        return failed(expired_code(ask.kind), told, request, delivery, escaped)


def named(tenant: str, key: str) -> str:
    """Id of an interrupt of this part of the workflow's chain; ids of calls begin anew in each."""
    info = workflow.info()
    return interrupt_id(tenant, f"{info.workflow_id}\n{info.original_execution_run_id}", key)


def is_patience(timeout: object) -> bool:
    """Whether somebody can be waited for that long; None is for as long as it takes."""
    return timeout is None or (isinstance(timeout, timedelta) and timedelta(0) < timeout <= LONGEST)


def milliseconds(timeout: timedelta | None) -> int | None:
    """The same in whole milliseconds, at least 1."""
    return None if timeout is None else max(1, round(timeout.total_seconds() * 1000))


def failed(
    code: str,
    message: str,
    request: CallRequest,
    delivery: Delivery,
    escaped: Escaped = Escaped.NO,
    **facts: object,
) -> McpCallError:
    """A call that ends with what a person, or the author's code, said or did not say."""
    about = {
        "delivery": delivery.value,
        "serverId": request.server_id,
        "method": METHODS[request.method],
        "name": request.name,
        "uri": request.uri,
        "attempt": request.attempt,
        **facts,
    }
    details = encode({name: value for name, value in about.items() if value is not None})
    return McpCallError.of(in_light_of(escaped, final(code, message, delivery, details)))


def _call(request: CallRequest) -> str:
    """Names the call in its workflow."""
    return request.node or ""
