"""The shape in which a failed call crosses Temporal: written by activities, read by workflows and projections.

One function writes it and bounds its size, one reads it, from the failure's protobuf and never from decoded details, so
that a JSON-RPC error keeps its bytes. Knows Temporal's failure message and nothing of activities or workflows.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from enum import StrEnum

import temporalio.api.common.v1
import temporalio.api.enums.v1
import temporalio.api.failure.v1
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from openwop_mcp import jsontext
from openwop_mcp.effects.decide import Ask, Decision, Fail, Failure, InDoubt, Postponement, RetryPolicy
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import McpError, PostponedError, RpcError
from openwop_mcp.verbatim import Verbatim

__all__ = (
    "CallFailure",
    "Escaped",
    "McpCallError",
    "conclude",
    "final",
    "forward",
    "json_payload",
    "read",
    "read_settled",
    "refusal",
    "remembered",
    "said",
    "settled",
    "uncover",
    "unsaid",
    "write",
    "written",
)

MAX_MESSAGE = 1_000
"""Characters of a failure's message. A failure over 2 MB loses its type, so nothing in it may grow with an answer."""

MAX_DETAILS = 3_000
"""Bytes of the facts: Temporal keeps about 4 kB of a failure that is not an attempt's last."""

MAX_RPC_ERROR = 64 * 1024
"""Bytes of a JSON-RPC error that travel unaltered in history: far under the 2 MB at which a failure is lost."""

SETTLED = "openwop-mcp.failed"
"""Marks the payload of an outcome that is no result, among the metadata."""

UNOPENED = "EncryptionError"
"""Type of the failure beneath that of an activity which was given what its worker has no key for."""

NEEDED = (
    "code",
    "delivery",
    "retryable",
    "repeatSafe",
    "retry",
    "retryAfter",
    "cancelled",
    "effectId",
    "onDoubt",
    "waited",
    "round",
    "postponed",
    "patience",
    "spread",
)
"""Facts that decide what follows. They are small, and stay where there is no room for all."""

IN_DOUBT = "the effect may have happened"

WHOSE = "by the call's own limits or its server's"

ENDED = {
    "attempts": ("servers.{server}.retry.attempts", f"no attempt is left, {WHOSE}"),
    "max_wait": ("servers.{server}.retry.max_wait", f"the server asks for a longer wait than one may take, {WHOSE}"),
    "total": ("servers.{server}.retry.total", f"another wait would be longer than all of them may take, {WHOSE}"),
    "patience": ("servers.{server}.limits.patience", "it has waited for room as long as it may"),
}
"""Why there is no further attempt: the setting, and words, by the limit that ended it."""


@dataclass(frozen=True, slots=True)
class CallFailure:
    """A failed attempt as the record holds it.

    Attributes:
        code: OpenWOP code.
        message: Prose for people.
        details: JSON object text, for machines; holds ``error`` (exact bytes) for a JSON-RPC error.
        happened: What the retry table needs.
        policy: The retry limits in force for the call.
        cancelled: Whether the attempt ended because it was cancelled.
        unclaimed: Whether the worker was lost without a word, so that what had to be claimed was not sent.
    """

    code: str
    message: str
    details: bytes
    happened: Failure
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    cancelled: bool = False
    unclaimed: bool = False


class Escaped(StrEnum):
    """Whether one of the attempts at an effect so far may have had it, whatever the last of them says of itself."""

    NO = "no"
    """None has."""

    PERHAPS = "perhaps"
    """The worker of one was lost without a word: it had sent something only where that needs no claim."""

    YES = "yes"
    """One was sent, and nobody knows what came of it."""

    def after(self, failure: CallFailure) -> Escaped:
        """The same after one more attempt."""
        if failure.unclaimed:
            return Escaped.PERHAPS if self is Escaped.NO else self
        happened = failure.happened
        # Whether a claim is needed is told by an attempt that came so far, and could have been sent.
        waived = happened.repeat_safe and happened.retryable
        sent = happened.delivery is Delivery.UNKNOWN or (self is Escaped.PERHAPS and waived)
        return Escaped.YES if sent and _has_effect(failure) else self


def json_payload(data: bytes, **metadata: bytes) -> temporalio.api.common.v1.Payload:
    """A payload that holds exactly ``data``, readable as JSON by every SDK."""
    return temporalio.api.common.v1.Payload(metadata={"encoding": b"json/plain", **metadata}, data=data)


class McpCallError(ApplicationError):
    """A call that ended without a result, as workflow code sees it.

    Left uncaught it fails the workflow; its ``type`` is the code.

    Attributes:
        code: OpenWOP error code, such as ``mcp_error`` or ``upstream_unavailable``.
        delivery: What is known of the last attempt's request; ``unknown`` also where an attempt before it may have had
            the effect.
        in_doubt: Whether the effect may have happened and was not tried again for that reason.
        facts: What is known beside the message, a JSON object.
        error: The server's JSON-RPC error, unaltered, where that is the reason.
    """

    def __init__(self, failure: CallFailure, *, in_doubt: bool) -> None:
        super().__init__(
            failure.message, RawValue(json_payload(failure.details)), type=failure.code, non_retryable=True
        )
        self.code = failure.code
        self.delivery = failure.happened.delivery
        self.in_doubt = in_doubt
        self.facts = Verbatim(failure.details)
        self.error = self.facts.span("error")

    @classmethod
    def of(cls, failure: CallFailure, decision: Decision | None = None) -> McpCallError:
        """The error for the last attempt's failure and what the retry table said of it."""
        return cls(failure if decision is None else conclude(failure, decision), in_doubt=isinstance(decision, InDoubt))


def conclude(failure: CallFailure, decision: Decision) -> CallFailure:
    """The failure of the call as a whole: that of its last attempt, and what kept it from another."""
    if isinstance(decision, InDoubt | Ask) and IN_DOUBT not in failure.message:
        follows = ", and it is not sent again" if isinstance(decision, InDoubt) else ""
        return replace(failure, message=f"{failure.message}; {IN_DOUBT}{follows}")
    if isinstance(decision, Fail) and decision.limit is not None:
        name, why = ENDED[decision.limit]
        told = jsontext.decode(failure.details)
        setting = name.format(server=told.get("serverId", "ID"))
        if decision.limit == "patience":
            setting = told.get("patienceSetting", setting)
        details = jsontext.build(
            [
                *((k, v) for k, v in jsontext.members(failure.details) if k != "ended"),
                ("ended", jsontext.encode(setting)),
            ]
        )
        return replace(failure, message=f"{failure.message}; {why} (setting {setting})", details=details)
    return failure


def remembered(failure: CallFailure, escaped: Escaped) -> CallFailure:
    """The failure of a call's last attempt in the light of all: the effect may have happened, though not by that one.

    It is given back itself where there is nothing to add.
    """
    if escaped is not Escaped.YES or not failure.happened.delivery.nothing_happened:
        return failure
    told = [(name, value) for name, value in jsontext.members(failure.details) if name != "delivery"]
    return replace(
        failure,
        message=f"{failure.message}; an attempt before it had no answer, so that {IN_DOUBT}",
        details=jsontext.build([*told, ("delivery", jsontext.encode(Delivery.UNKNOWN.value))]),
        happened=replace(failure.happened, delivery=Delivery.UNKNOWN),
    )


def _has_effect(failure: CallFailure) -> bool:
    """Whether a tool was called: reading has no effect."""
    return jsontext.member(failure.details, "effectId") is not None


def refusal(error: McpError) -> CallFailure:
    """The failure of a call that workflow code refuses before it schedules anything."""
    details = jsontext.encode({"delivery": error.delivery.value, **error.facts})
    return final(error.code, error.message, error.delivery, details)


def final(code: str, message: str, delivery: Delivery, details: bytes) -> CallFailure:
    """The failure of a call that ends where nothing was tried: by what is asked, or what somebody said or did not say.

    Args:
        code: Its code.
        message: Why, for people.
        delivery: What is known of the request of the attempt before.
        details: JSON text of an object, which tells the delivery too.
    """
    return CallFailure(code, message, details, replace(_closed(delivery), code=code))


def write(
    error: McpError, error_bytes: int = MAX_RPC_ERROR, /, *, repeat_safe: bool, policy: RetryPolicy, **facts: object
) -> ApplicationError:
    """Turn a call's error into the failure that is recorded.

    Args:
        error: Why there is no result.
        error_bytes: Bytes of a JSON-RPC error that can be recorded unaltered: more than by default where a payload of
            that size is kept outside history.
        repeat_safe: Whether the effect may happen twice without harm.
        policy: The retry limits in force.
        facts: Where it happened: server id, tool name, effect id, attempt.
    """
    head: dict[str, object] = {
        "code": error.code,
        "delivery": error.delivery.value,
        "retryable": error.retryable,
        "repeatSafe": repeat_safe,
        "retry": policy.facts,
        **{key: value for key, value in facts.items() if value is not None},
    }
    known = {**head, **error.facts}
    details = jsontext.encode(known)
    if (size := len(details)) > MAX_DETAILS:
        needed = {key: known[key] for key in NEEDED if key in known}
        details = jsontext.encode({**head, **needed, "factsBytes": size})
        if len(details) > MAX_DETAILS:
            details = jsontext.encode({**needed, "factsBytes": size})
    payloads = [RawValue(json_payload(details))]
    if isinstance(error, RpcError):
        payloads.append(RawValue(json_payload(_bounded_error(error, error_bytes))))
    # That there is no room yet is no fault: Temporal's SDK then logs it at debug, and does not count it as failed.
    benign = isinstance(error, PostponedError)
    category = ApplicationErrorCategory.BENIGN if benign else ApplicationErrorCategory.UNSPECIFIED
    message = error.message[:MAX_MESSAGE]
    return ApplicationError(message, *payloads, type=error.code, non_retryable=True, category=category)


def _bounded_error(error: RpcError, limit: int) -> bytes:
    if len(error.error) <= limit:
        return error.error
    return jsontext.encode(
        {
            "code": error.rpc_code,
            "message": error.message[:MAX_MESSAGE],
            "omittedBytes": len(error.error),
            "sha256": hashlib.sha256(error.error).hexdigest(),
        }
    )


class _UnsaidError(ApplicationError):
    """A failure whose message is recorded, and not written where Temporal's SDK logs or traces what failed."""

    def __str__(self) -> str:
        return f"{self.type}: what was said of a call with sensitive parts is in the run's history"

    __repr__ = __str__


def unsaid(error: ApplicationError) -> ApplicationError:
    """The same failure for a call whose server may quote what must not be logged."""
    return _UnsaidError(error.message, *error.details, type=error.type, non_retryable=True, category=error.category)


def forward(failure: CallFailure, note: str = "", **facts: object) -> ApplicationError:
    """The failure of a call as that of another which waited for it. It is final: the attempts were made.

    Args:
        failure: What came of the call.
        note: What the other has to know besides, for people.
        facts: The same, for machines.
    """
    head = {
        **facts,
        "code": failure.code,
        "delivery": failure.happened.delivery.value,
        "retryable": False,
        "repeatSafe": failure.happened.repeat_safe,
        "onDoubt": "ask" if failure.happened.ask else None,
    }
    members = [
        *((key, jsontext.encode(value)) for key, value in head.items() if value is not None),
        *((key, value) for key, value in jsontext.members(failure.details) if key not in {*head, "error"}),
    ]
    error = jsontext.member(failure.details, "error")
    payloads = [RawValue(json_payload(part)) for part in (jsontext.build(members), error) if part is not None]
    return ApplicationError(failure.message + note, *payloads, type=failure.code, non_retryable=True)


def written(error: ApplicationError) -> CallFailure:
    """The failure that :func:`write` wrote, before it has travelled."""
    details = [raw.payload.data for raw in error.details]
    return _written(error.message, details[0], jsontext.decode(details[0]), details[1] if details[1:] else None)


def settled(failure: CallFailure) -> temporalio.api.common.v1.Payload:
    """The failure as what a workflow returns: an effect's outcome, which no later attempt changes."""
    forwarded = forward(failure)
    details = [raw.payload.data for raw in forwarded.details]
    names = ("details", "error")[: len(details)]
    text = jsontext.build([("message", jsontext.encode(failure.message)), *zip(names, details, strict=True)])
    return json_payload(text, **{SETTLED: b"true"})


def read_settled(payload: temporalio.api.common.v1.Payload) -> CallFailure | None:
    """Read what :func:`settled` wrote; None where it is a result."""
    if SETTLED not in payload.metadata:
        return None
    members = dict(jsontext.members(payload.data))
    details = members["details"]
    return _written(jsontext.decode(members["message"]), details, jsontext.decode(details), members.get("error"))


def said(failure: temporalio.api.failure.v1.Failure) -> str:
    """The message of a failure, also where it stands apart to be encrypted (and is open by now)."""
    return _words(failure)[0]


def uncover(failure: temporalio.api.failure.v1.Failure) -> None:
    """Put message and stack of a failure into their places, in the failure itself. Its causes stay as they are."""
    if failure.HasField("encoded_attributes"):
        failure.message, failure.stack_trace = _words(failure)
        failure.ClearField("encoded_attributes")


def _words(failure: temporalio.api.failure.v1.Failure) -> tuple[str, str]:
    if failure.HasField("encoded_attributes"):
        try:
            match json.loads(failure.encoded_attributes.data):
                case {"message": str(message), "stack_trace": str(stack)}:
                    return message, stack
        except ValueError:
            pass  # it is of another converter than the SDK's own
    return failure.message, failure.stack_trace


def read(failure: temporalio.api.failure.v1.Failure) -> CallFailure:
    """Read a recorded failure: one written by :func:`write`, or one that Temporal made."""
    taken = False
    while failure.HasField("activity_failure_info") and failure.HasField("cause"):
        taken = failure.activity_failure_info.started_event_id > 0
        failure = failure.cause
    if failure.HasField("application_failure_info"):
        info = failure.application_failure_info
        payloads = info.details.payloads
        head = _facts(payloads[0].data) if payloads else None
        if head is not None:
            # A refusal of workflow code has no code among its facts: it is the type.
            head.setdefault("code", info.type)
            return _written(said(failure), payloads[0].data, head, payloads[1].data if len(payloads) > 1 else None)
        if failure.cause.application_failure_info.type == UNOPENED:
            return _unopened(said(failure.cause))
        return CallFailure(
            code="internal_error",
            message=_prose(info.type, said(failure)),
            details=b"{}",
            happened=_closed(Delivery.UNKNOWN),
        )
    if failure.HasField("timeout_failure_info"):
        return _timed_out(failure)
    if failure.HasField("canceled_failure_info"):
        return _canceled(taken=taken)
    return CallFailure(code="internal_error", message=said(failure), details=b"{}", happened=_closed(Delivery.UNKNOWN))


def _unopened(why: str) -> CallFailure:
    """A worker that lacked the key of what it was given. Another one may have it."""
    delivery = Delivery.NOT_SENT
    return CallFailure(
        code="upstream_unavailable",
        message=f"nothing was sent, as the worker could not open what it was given: {why}"[:MAX_MESSAGE],
        details=jsontext.encode({"service": "mcp", "delivery": delivery.value, "setting": "encryption.keys"}),
        happened=Failure("upstream_unavailable", delivery, retryable=True, repeat_safe=True),
    )


def _canceled(*, taken: bool) -> CallFailure:
    """An activity that ended as cancelled without a word. What no worker has taken cannot have been sent."""
    happened = _closed(Delivery.UNKNOWN if taken else Delivery.NOT_SENT)
    return CallFailure(
        code="run_cancelled",
        message="cancelled",
        details=b"{}",
        happened=replace(happened, repeat_safe=not taken),
        cancelled=True,
    )


def _closed(delivery: Delivery) -> Failure:
    return Failure(code="internal_error", delivery=delivery, retryable=False, repeat_safe=True)


def _prose(type_name: str, message: str) -> str:
    return (f"{type_name}: {message}" if type_name else message)[:MAX_MESSAGE]


def _facts(data: bytes) -> dict[str, object] | None:
    try:
        value = jsontext.decode(data)
    except jsontext.JsonTextError:
        return None
    return value if isinstance(value, dict) and "delivery" in value else None


def _written(message: str, details: bytes, head: dict[str, object], error: bytes | None) -> CallFailure:
    if error is not None:
        details = jsontext.build([*jsontext.members(details), ("error", error)])
    code = str(head["code"])
    retry_after = head.get("retryAfter")
    return CallFailure(
        code=code,
        message=message,
        details=details,
        happened=Failure(
            code=code,
            delivery=Delivery(str(head["delivery"])),
            retryable=head.get("retryable") is True,
            repeat_safe=head.get("repeatSafe") is True,
            retry_after=float(retry_after) if isinstance(retry_after, int | float) else None,
            ask=head.get("onDoubt") == "ask",
            waited=head.get("waited") is True,
            postponed=_postponed(head),
        ),
        policy=_policy(head.get("retry")),
        cancelled=head.get("cancelled") is True,
    )


def _postponed(head: dict[str, object]) -> Postponement | None:
    # A failure that is final says, too, that its last attempt was postponed: nothing follows from it any more.
    if head.get("postponed") is not True or head.get("retryable") is not True:
        return None
    patience, spread = head.get("patience"), head.get("spread")
    return Postponement(
        float(patience) if isinstance(patience, int | float) else 0.0,
        float(spread) if isinstance(spread, int | float) else 0.0,
    )


def _policy(value: object) -> RetryPolicy:
    if not isinstance(value, dict):
        return RetryPolicy()
    return RetryPolicy(attempts=int(value["attempts"]), max_wait=float(value["maxWait"]), total=float(value["total"]))


def _timed_out(failure: temporalio.api.failure.v1.Failure) -> CallFailure:
    """A worker that went away. Its last beat, if there was one, is its claim.

    Without one another attempt is safe: a call that must not be repeated is claimed before it is sent.
    """
    info = failure.timeout_failure_info
    claim = next(
        (head for payload in info.last_heartbeat_details.payloads if (head := _facts(payload.data)) is not None), None
    )
    timeout = temporalio.api.enums.v1.TimeoutType.Name(info.timeout_type).removeprefix("TIMEOUT_TYPE_").lower()
    ask = waited = False
    if claim is None:
        delivery, repeat_safe, policy = Delivery.UNKNOWN, True, RetryPolicy()
        message = f"the worker was lost before it claimed the call ({timeout} timeout)"
        facts: dict[str, object] = {}
    else:
        delivery, repeat_safe = Delivery(str(claim["delivery"])), claim.get("repeatSafe") is True
        policy = _policy(claim.get("retry"))
        ask, waited = claim.get("onDoubt") == "ask", claim.get("waited") is True
        doing = "it waited for an effect that goes on" if waited else "the call was under way"
        message = f"the worker was lost while {doing} ({timeout} timeout)"
        facts = {key: value for key, value in claim.items() if key not in {"delivery", "repeatSafe", "retry"}}
    details = {"service": "mcp", "delivery": delivery.value, "limit": timeout, **facts}
    return CallFailure(
        code="upstream_unavailable",
        message=message,
        details=jsontext.encode(details),
        happened=Failure(
            "upstream_unavailable", delivery, retryable=True, repeat_safe=repeat_safe, ask=ask, waited=waited
        ),
        policy=policy,
        unclaimed=claim is None,
    )
