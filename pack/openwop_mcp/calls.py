"""One call as it travels from workflow code to an activity and back: the request's shape and the record's provenance.

Shared by ``ctx`` and ``activities``. Knows neither how a call is scheduled nor how it is sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import temporalio.api.common.v1

from openwop_mcp import jsontext
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.effects.doubt import Answer, read_verdict
from openwop_mcp.effects.identity import Effect, by_key, by_recipe
from openwop_mcp.errors import InvalidRequestError
from openwop_mcp.failures import json_payload
from openwop_mcp.protocol import messages
from openwop_mcp.protocol.mrtr import Input
from openwop_mcp.verbatim import Verbatim

__all__ = (
    "ACTIVITY_NAMES",
    "DEFAULT_TASK_QUEUE",
    "EFFECT_ROUND",
    "INTERIM",
    "LOG_LEVELS",
    "MAX_DEPTH",
    "MAX_KEY",
    "MAX_NAME",
    "MAX_URI",
    "METHODS",
    "NODE",
    "NO_ARGUMENTS",
    "ROUND",
    "CallRequest",
    "Input",
    "Interim",
    "LogLevel",
    "answering",
    "class_queue",
    "completion",
    "interim",
    "noted",
    "of_redaction",
    "provenance",
    "record",
    "recorded",
)

DEFAULT_TASK_QUEUE = "openwop-mcp"
"""Task queue of a pack worker of its own: what ``ctx`` schedules on and ``worker.py run`` polls by default."""

MAX_KEY = 512
"""Characters of an author's idempotency key: more than names of orders and transfers have."""

MAX_NAME = 1_024
"""Characters of a tool's or prompt's name: far above what servers use, far below what a header holds."""

MAX_URI = 8_192
"""Characters of a resource's URI; common HTTP servers refuse longer ones."""

MAX_DEPTH = messages.MAX_DEPTH
"""Levels of what callers give: as many as of a server's message, which it becomes a part of."""

METHODS: Mapping[str, str] = {
    "callTool": "tools/call",
    "listTools": "tools/list",
    "listResources": "resources/list",
    "listResourceTemplates": "resources/templates/list",
    "readResource": "resources/read",
    "listPrompts": "prompts/list",
    "getPrompt": "prompts/get",
    "complete": "completion/complete",
    "serverHealth": "server/discover",
}
"""Host method (OpenWOP v2, host services) to MCP method."""

ACTIVITY_NAMES: Mapping[str, str] = {method: f"mcp.{method}" for method in METHODS}
"""Activity type by host method. Activity types are persisted in histories: they are never renamed."""

NO_ARGUMENTS = b"null"
"""Stands for arguments that are absent: a tool's arguments are an object, so that null can mean nothing else."""

LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""From which level on a server may send log messages with its answer (MCP 2026-07-28, logging)."""

LOG_LEVELS: frozenset[str] = frozenset(get_args(LogLevel))
"""The same as values, for who has no type checker."""

METADATA_PREFIX = "openwop-mcp."
"""Namespace of the record's keys in a payload's metadata, which is shared with Temporal and with codecs."""


Interim = Literal["input", "approval"]
"""What an attempt ended with that is no outcome of its call: the server's ``input_required``, whose bytes the record
has; or the facts of a call that a person has to approve, of which nothing was sent."""

INTERIM = "interim"
"""The provenance that tells a record of such an attempt, by an :data:`Interim`."""

NODE = "node"
"""The provenance of such a record that names its call, as the attempts after it have to."""

ROUND = "round"
"""The provenance of a record of kind ``input``: how often the server has asked by then."""

REDACTED = "redacted"
"""The provenance of a record that is not all of what the server sent: in how many places a credential of the server was
replaced in it."""

ORIGINAL = "original-sha256"
"""The provenance of such a record that has the SHA-256 of the result as it came."""

EFFECT_ROUND = "effect-round"
"""The provenance of such a record where several runs share the effect: in which of its rounds that was."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """What is asked of a server. Arguments, or a :func:`completion`, travel beside it as JSON text of their own.

    Attributes:
        method: Host method, a key of :data:`METHODS`.
        server_id: The server, by its id in the settings.
        name: Name of the tool (``callTool``) or prompt (``getPrompt``).
        cursor: Cursor of the page (the ``list…`` methods); the empty string is a cursor.
        uri: Resource (``readResource``).
        tenant: Tenant of the caller; None means the worker's own.
        principal: On whose authority; what was read for one is not shown to another.
        idempotency_key: The author's business key.
        timeout: Seconds; a total limit below the server's own.
        retry: Retry limits that replace the server's.
        log_level: From which level on the worker logs what the server says; None for the server's setting.
        attempt: 1 for the first; counted by the workflow.
        node: Names the call in its run: a node, or the activity of the first attempt. None where that is this one.
        origin: The Temporal run that asks, as it was named before any reset. It names the call's part of a chain unless
            ``whole_chain`` is set. An activity that finds itself in another run knows by it that its own was reset.
        whole_chain: Whether the node names the call in its whole chain, and not only in one part of it.
        reset: Whether a part of the chain before this one was reset.
        answer: What a person decided about the effect, which was in doubt after an attempt before.
        heartbeat: Seconds without a beat after which the worker of a shared effect counts as lost; None elsewhere.
        sensitive: Whether a server's words about it are recorded only, and neither logged nor shown as progress: they
            may quote what is masked elsewhere.
        suspends: Whether the caller can wait for a person, so that an attempt may end with an interim record.
        input: What answers the server's last question; None as long as it has asked nothing.
        approved: JSON text ``{"tier", "fingerprint"?}``: the safety tier, and the definition of the tool where one was
            known, with which a person has approved the call.
        queue: Task queue of the class that the call of a shared effect is made in; None for that of shared effects.
    """

    method: str
    server_id: str
    name: str | None = None
    cursor: str | None = None
    uri: str | None = None
    tenant: str | None = None
    principal: str = ""
    idempotency_key: str | None = None
    timeout: float | None = None
    retry: RetryPolicy | None = None
    log_level: LogLevel | None = None
    attempt: int = 1
    node: str | None = None
    origin: str | None = None
    whole_chain: bool = False
    reset: bool = False
    answer: Answer | None = None
    heartbeat: float | None = None
    sensitive: bool = False
    suspends: bool = False
    input: Input | None = None
    approved: bytes | None = None
    queue: str | None = None

    @property
    def round(self) -> int:
        """How often the server has asked before this attempt."""
        return 0 if self.input is None else self.input.round

    @property
    def subject(self) -> str:
        """What the call is about, for a summary in Temporal's UI."""
        return self.name or self.uri or ""

    def effect(
        self, arguments: bytes | None, *, tenant: str, workflow_id: str, run_id: str, activity_id: str
    ) -> Effect:
        """Which effect a tool's call stands for.

        Args:
            arguments: JSON text of its arguments.
            tenant: Whose effect it is.
            workflow_id: The workflow that calls.
            run_id: Its Temporal run, for a request that names none.
            activity_id: The activity of this attempt, for a request that names no node.
        """
        name = self.name or ""
        if self.idempotency_key is not None:
            return by_key(tenant, self.server_id, name, self.idempotency_key, arguments)
        part = "" if self.whole_chain else self.origin or run_id
        return by_recipe(
            tenant,
            self.server_id,
            name,
            arguments,
            workflow_id=workflow_id,
            part=part,
            node=self.node or activity_id,
        )

    def was_reset(self, run_id: str) -> bool:
        """Whether what is asked for may have happened before: the run was reset.

        Args:
            run_id: The Temporal run that the activity finds itself in.
        """
        return self.reset or (self.origin is not None and self.origin != run_id)

    def next_attempt(self, node: str | None = None, answer: Answer | None = None) -> CallRequest:
        """The same call, to be tried again.

        Args:
            node: Names the call, if the request did not do so yet.
            answer: What a person decided, where the attempt before left the effect in doubt. It holds for every attempt
                until another is decided: one that failed may have ended before it was carried out.
        """
        attempt = self.attempt + 1
        given = self.answer if answer is None else replace(answer, since=attempt)
        return replace(self, attempt=attempt, node=self.node or node, answer=given)

    def next_round(self, given: Input, node: str | None = None) -> CallRequest:
        """The same call with the answer to what its server asked in the attempt before.

        Args:
            given: The answer, as :func:`answering` makes it.
            node: See :meth:`next_attempt`.
        """
        # What was decided was carried out: the server has answered.
        return replace(self.next_attempt(node), input=given, answer=None)

    def approved_as(self, tier: bytes, node: str | None = None) -> CallRequest:
        """The same call, which a person has approved: the attempt before it sent nothing and used nothing up.

        Args:
            tier: See :attr:`approved`.
            node: See :meth:`next_attempt`.
        """
        return replace(self.next_attempt(node), approved=tier)

    def encode(self) -> bytes:
        """JSON text of the request; absent members are left out, so that fields can be added later."""
        retry = self.retry
        members: dict[str, object] = {
            "method": self.method,
            "serverId": self.server_id,
            "name": self.name,
            "cursor": self.cursor,
            "uri": self.uri,
            "tenant": self.tenant,
            "principal": self.principal or None,
            "idempotencyKey": self.idempotency_key,
            "timeout": self.timeout,
            "retry": retry and retry.facts,
            "logLevel": self.log_level,
            "attempt": self.attempt,
            "node": self.node,
            "origin": self.origin,
            "wholeChain": self.whole_chain or None,
            "reset": self.reset or None,
            "heartbeat": self.heartbeat,
            "sensitive": self.sensitive or None,
            "suspends": self.suspends or None,
            "queue": self.queue,
        }
        text = jsontext.encode({key: value for key, value in members.items() if value is not None})
        exact = [
            *([] if self.answer is None else [("answer", self.answer.encode())]),
            *([] if self.input is None else [("input", self.input.encode())]),
            *([] if self.approved is None else [("approved", self.approved)]),
        ]
        return jsontext.build([*jsontext.members(text), *exact]) if exact else text

    @classmethod
    def decode(cls, data: bytes) -> CallRequest:
        """Read a request; unknown members are ignored, as they come from a newer workflow."""
        value = jsontext.decode(data)
        retry = value.get("retry")
        return cls(
            method=value["method"],
            server_id=value["serverId"],
            name=value.get("name"),
            cursor=value.get("cursor"),
            uri=value.get("uri"),
            tenant=value.get("tenant"),
            principal=value.get("principal", ""),
            idempotency_key=value.get("idempotencyKey"),
            timeout=value.get("timeout"),
            retry=retry and RetryPolicy(retry["attempts"], retry["maxWait"], retry["total"]),
            log_level=value.get("logLevel"),
            attempt=value.get("attempt", 1),
            node=value.get("node"),
            origin=value.get("origin"),
            whole_chain=value.get("wholeChain", False),
            reset=value.get("reset", False),
            heartbeat=value.get("heartbeat"),
            sensitive=value.get("sensitive", False),
            answer=read_verdict(jsontext.member(data, "answer") or b"") if "answer" in value else None,
            suspends=value.get("suspends", False),
            input=Input.decode(jsontext.member(data, "input") or b"") if "input" in value else None,
            approved=jsontext.member(data, "approved") if "approved" in value else None,
            queue=value.get("queue"),
        )


def class_queue(name: str, task_queue: str = DEFAULT_TASK_QUEUE) -> str:
    """The task queue of a class of servers, whose calls then wait for none but each other.

    Args:
        name: The class, as the worker's settings have it in ``[worker.classes.NAME]``.
        task_queue: The worker's ``task_queue``.
    """
    return f"{task_queue}-class-{name}"


def completion(ref: bytes | None, argument: bytes | None, context: bytes | None) -> bytes:
    """Put together what ``complete`` is given in place of arguments: the params of ``completion/complete``.

    Args:
        ref: JSON text of a ``PromptReference`` or ``ResourceTemplateReference`` (MCP 2026-07-28, completion).
        argument: JSON text of ``{"name": …, "value": …}``.
        context: JSON text of ``{"arguments": {…}}``; None leaves it out.

    Raises:
        InvalidRequestError: A part is missing or no object. What stands inside them is for the server to judge.
    """
    parts = [("ref", ref), ("argument", argument), *([] if context is None else [("context", context)])]
    params: list[tuple[str, bytes]] = []
    for name, part in parts:
        if part is None or jsontext.kind(part) != "object":
            raise InvalidRequestError(f"'{name}' is {'missing' if part is None else 'not an object'}", path=name)
        params.append((name, part))
    return jsontext.build(params)


def record(data: bytes, provenance: Mapping[str, str]) -> temporalio.api.common.v1.Payload:
    """The payload that is the record: exactly ``data``, with its provenance in the metadata."""
    return json_payload(data, **{METADATA_PREFIX + key: value.encode() for key, value in provenance.items()})


def noted(payload: temporalio.api.common.v1.Payload, provenance: Mapping[str, str]) -> temporalio.api.common.v1.Payload:
    """The same record with more provenance."""
    noted = temporalio.api.common.v1.Payload()
    noted.CopyFrom(payload)
    for key, value in provenance.items():
        noted.metadata[METADATA_PREFIX + key] = value.encode()
    return noted


def provenance(metadata: Mapping[str, bytes], key: str) -> str | None:
    """One word of a record's provenance, from the metadata of its payload; None where it has none of that name."""
    value = metadata.get(METADATA_PREFIX + key)
    return None if value is None else value.decode(errors="replace")


def interim(metadata: Mapping[str, bytes]) -> Interim | None:
    """What a record stands for that is no outcome, from the metadata of its payload; None where it is one."""
    match provenance(metadata, INTERIM):
        case "input":
            return "input"
        case "approval":
            return "approval"
        case _:
            return None


def of_redaction(metadata: Mapping[str, bytes]) -> Sequence[tuple[str, bytes]]:
    """What an event says of a record that is not all of what the server sent; nothing of one that is."""
    count, original = provenance(metadata, REDACTED), provenance(metadata, ORIGINAL)
    if count is None or original is None or not count.isdecimal():
        return ()
    return [("x-redacted", jsontext.encode({"count": int(count), "originalSha256": original}))]


def answering(
    result: bytes,
    metadata: Mapping[str, bytes],
    responses: bytes | None,
    declined: Iterable[str] = (),
    *,
    before: Input | None,
) -> Input:
    """What the next request carries after a record of kind ``input``.

    Args:
        result: The record: the server's ``input_required``, byte for byte.
        metadata: That of the record's payload.
        responses: JSON text of an object that has each key that was asked; None where nothing was.
        declined: What of it was declined or cancelled, each as its ``openwop_mcp.protocol.mrtr.request_digest``.
        before: What the request carried that was answered so.
    """
    # A record may be that of a later round: where its workflow was reset, and where others share the effect.
    number = provenance(metadata, ROUND)
    started = provenance(metadata, EFFECT_ROUND)
    kept = () if before is None else before.declined
    return Input(
        round=(0 if before is None else before.round) + 1 if number is None else int(number),
        responses=responses,
        state=jsontext.member(result, "requestState"),
        declined=tuple(dict.fromkeys([*kept, *declined])),
        effect_round=0 if started is None else int(started) + 1,
    )


def recorded(payload: temporalio.api.common.v1.Payload) -> Verbatim:
    """Read a record back; a payload without provenance has none."""
    return Verbatim(
        payload.data,
        {
            key.removeprefix(METADATA_PREFIX): value.decode(errors="replace")
            for key, value in payload.metadata.items()
            if key.startswith(METADATA_PREFIX)
        },
    )
