"""Why a call has no result: one class per cause, each with its OpenWOP code, what is known of delivery, and the facts.

The tree::

    McpError
    ├── UnknownServerError          not_found                    no such server id in this tenant
    ├── InvalidRequestError         validation_error             what the caller asked for cannot be sent
    ├── NotCallableError            forbidden                    a tool that cannot be called as it is defined
    ├── KeyMismatchError            idempotency_key_mismatch     a key that was used with other arguments
    ├── RpcError                    mcp_error                    the server answered with a JSON-RPC error
    ├── NoCommonRevisionError       interop_version_unsupported  no revision both sides speak
    ├── EffectInDoubtError          upstream_unavailable         an earlier attempt whose outcome cannot be found
    ├── EgressDeniedError           egress_denied                an address outside the server's network setting
    ├── ResultTooLargeError         storage_limit_exceeded       an answer (or an argument) over the ceiling
    ├── ResultNotKeptError          internal_error               an answer that storage did not take
    ├── RateLimitedError            rate_limited                 429
    ├── RoundsExceededError         mcp_mrtr_rounds_exceeded     a server that asks again and again
    ├── PostponedError              rate_limited                 no room at the worker for now, nothing was sent
    │   └── CircuitOpenError        upstream_unavailable         its server could not be reached by others
    ├── UnexpectedError             internal_error               a fault of this client; the effect may have happened
    └── UpstreamError               upstream_unavailable         no usable answer
        ├── AuthorizationError      no token that the server takes
        ├── ConnectError            nothing was sent
        ├── ConnectionLostError     the connection broke after the request had left
        ├── TimeLimitError          connect, first_byte, idle or total ran out
        ├── HttpStatusError         a status that carries no JSON-RPC answer
        ├── MalformedAnswerError    an answer that breaks JSON, JSON-RPC or MCP
        └── InterruptedCallError    the call was cancelled, or its worker is shutting down

This module knows nothing of HTTP, Temporal or settings. Messages hold no credential and no argument; excerpts of what
a server sent are bounded where they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.protocol.revisions import LEGACY

__all__ = (
    "AuthorizationError",
    "CircuitOpenError",
    "ConnectError",
    "ConnectionLostError",
    "EchoedCredentialError",
    "EffectInDoubtError",
    "EgressDeniedError",
    "HttpStatusError",
    "InterruptedCallError",
    "InvalidRequestError",
    "KeyMismatchError",
    "MalformedAnswerError",
    "McpError",
    "NoCommonRevisionError",
    "NotCallableError",
    "PostponedError",
    "RateLimitedError",
    "ResultNotKeptError",
    "ResultTooLargeError",
    "RoundsExceededError",
    "RpcError",
    "TimeLimitError",
    "UnexpectedError",
    "UnknownServerError",
    "UpstreamError",
)


_ALLOWED = {"public": "public", "private": "private", "any": "ordinary public and private"}

_WOULD_ALLOW = {"private": ("loopback", "private", "shared"), "public": ("public",)}
"""The policy that lets a class of addresses be dialled, if one does."""

FIRST_SERVER_ERROR = 500
"""HTTP statuses from here on are the server's fault (RFC 9110, section 15.6)."""


class McpError(Exception):
    """A call that ended without a result.

    Attributes:
        code: The registered OpenWOP error code (contract of OpenWOP v2, errors).
        delivery: What is known about the request having reached the server.
        retryable: Whether another attempt of the same request could end differently. Whether it is *safe* is a
            question of policy and delivery, answered by ``openwop_mcp.effects.decide``.
        facts: JSON-safe facts for machines; they travel as the failure's details.
    """

    code: ClassVar[str] = "internal_error"
    retryable: bool = False

    def __init__(self, message: str, *, delivery: Delivery, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.delivery = delivery
        self.facts: dict[str, Any] = {key: value for key, value in facts.items() if value is not None}

    def again(self) -> Self:
        """The same error for someone else, who may know other things of a call of their own."""
        copy = type(self).__new__(type(self))
        copy.__dict__.update(self.__dict__, facts=dict(self.facts))
        copy.args = self.args
        return copy

    def about(self, server_id: str) -> None:
        """Say of which server the settings are that the message names."""
        self.message = self.message.replace("servers.<id>", f"servers.{server_id}")
        self.args = (self.message,)


class UnknownServerError(McpError):
    """The server id is not configured for the caller's tenant.

    Delivery: not_sent.
    Again: no.
    To do: Name a server of the settings, or add it there (`tenants` has to admit the tenant), and restart the worker.

    Args:
        server_id: The id.
        barred: The operator's own tenant, where there is a server of that id that does not admit it. Not for others to
            hear: what other tenants have is none of theirs.
    """

    code = "not_found"

    def __init__(self, server_id: str, *, barred: str | None = None) -> None:
        super().__init__(
            f"no MCP server '{server_id}' is configured for this tenant: add [servers.{server_id}] to the settings, and"
            " restart the worker, which reads them once"
            if barred is None
            else f"servers.{server_id}.tenants does not admit tenant '{barred}': add it there, or change worker.tenant"
            " (the tenant of calls that come from no run) to one that is admitted, and restart the worker",
            delivery=Delivery.NOT_SENT,
            serverId=server_id,
        )


class InvalidRequestError(McpError):
    """The request cannot be built from what the caller gave; nothing was sent.

    Delivery: not_sent.
    Again: no.
    To do: Change what `path` names: arguments, names, or the node's config.
    """

    code = "validation_error"

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message, delivery=Delivery.NOT_SENT, path=path)


class NotCallableError(McpError):
    """The tool cannot be called as it is defined, is in quarantine, or is none that the graph may call.

    Delivery: not_sent.
    Again: no.
    To do: `worker.py tools show` says why: approve the definition, have its server mend it, or add the tool to the
    graph's `allowedTools`.
    """

    code = "forbidden"

    def __init__(self, message: str) -> None:
        super().__init__(message, delivery=Delivery.NOT_SENT)


class KeyMismatchError(McpError):
    """The caller's key names an effect that was asked for with other arguments; nothing was sent.

    Delivery: not_sent.
    Again: no.
    To do: Give the same arguments, or another key.

    ``given`` and ``recorded`` are the digests of the arguments, hexadecimal SHA-256 of their canonical form.
    """

    code = "idempotency_key_mismatch"

    def __init__(self, *, given: str, recorded: str) -> None:
        super().__init__(
            "nothing was sent: the idempotency key was used before, for this tool with other arguments; a key stands"
            " for one effect: give the same arguments, or another key",
            delivery=Delivery.NOT_SENT,
            argumentsSha256=given,
            recordedSha256=recorded,
        )


class EffectInDoubtError(McpError):
    """An earlier attempt at the effect left no outcome that could be found; nothing was sent by this one.

    Delivery: unknown.
    Again: no.
    To do: Look at the server whether it happened; then call with another key, or take it as done.
    """

    code = "upstream_unavailable"

    def __init__(self, message: str) -> None:
        super().__init__(message, delivery=Delivery.UNKNOWN, service="mcp")


class RpcError(McpError):
    """The server answered with a JSON-RPC error.

    Delivery: answered, not_processed.
    Again: no; once where the server had another definition of the tool.
    To do: Read `error`: the server says in it why.

    Attributes:
        rpc_code: The error's ``code``.
        error: The exact bytes of the ``error`` member.
        whole: Makes all that may be told of a long error, where ``error`` is but an outline of it since it has yet to
            be searched for credentials: that takes seconds, and is for a thread.
    """

    code = "mcp_error"

    def __init__(self, message: str, *, rpc_code: int, error: bytes, http_status: int, not_processed: bool) -> None:
        super().__init__(
            message,
            delivery=Delivery.NOT_PROCESSED if not_processed else Delivery.ANSWERED,
            rpcCode=rpc_code,
            httpStatus=http_status,
        )
        self.rpc_code = rpc_code
        self.error = error
        self.whole: Callable[[], bytes] | None = None
        self.http_status = http_status


class NoCommonRevisionError(McpError):
    """Client and server share no revision of MCP that the settings allow.

    Delivery: not_processed.
    Again: no.
    To do: If you trust an older revision, write `servers.ID.minimum_revision`; else have the server updated.

    Attributes:
        below_floor: Whether there is one, and it is older than the settings allow.
    """

    code = "interop_version_unsupported"

    def __init__(self, *, requested: str, supported: list[str], floor: str, legacy: bool = False) -> None:
        older = [revision for revision in supported if revision in LEGACY and revision < floor]
        self.below_floor = legacy or bool(older)
        said = f"offers {', '.join(supported)}" if supported else "names no revision"
        example = max(older, default=LEGACY[0])
        allow = f'; it speaks an older one: to allow that, write minimum_revision = "{example}" for servers.<id>'
        allow += "" if older else ", or one older still"
        advice = allow if self.below_floor else ""
        super().__init__(
            f"the server does not speak MCP {requested}, and {said}; the oldest allowed is {floor}{advice}",
            delivery=Delivery.NOT_PROCESSED,
            protocol="mcp",
            requested=requested,
            supported=supported,
            floor=floor,
            reason="below-floor" if self.below_floor else "unsupported",
        )


class EgressDeniedError(McpError):
    """The address that would have been dialled is outside what the server's ``network`` setting allows.

    Delivery: not_sent.
    Again: no.
    To do: Check the `url`; if the address is meant, write `servers.ID.network`.
    """

    code = "egress_denied"

    def __init__(self, *, address: str, reason: str, network: str) -> None:
        reachable = [policy for policy, reasons in _WOULD_ALLOW.items() if reason in reasons]
        mend = f'; if that is meant, write network = "{reachable[0]}" for servers.<id>' if reachable else ""
        super().__init__(
            f"the address {address} is {reason}, and this server may only be reached at {_ALLOWED[network]} addresses"
            f" (setting servers.<id>.network): check its url{mend}",
            delivery=Delivery.NOT_SENT,
            address=address,
            reason=reason,
            network=network,
        )


class ResultTooLargeError(McpError):
    """An answer, or arguments, over the ceiling named by ``setting``.

    Delivery: answered, unknown, not_sent.
    Again: no.
    To do: Ask for less, or raise the setting that `setting` names. The server acted where delivery is `answered`.
    """

    code = "storage_limit_exceeded"

    def __init__(
        self,
        message: str,
        *,
        delivery: Delivery,
        limit: int,
        setting: str,
        size: int | None = None,
        sha256: str | None = None,
    ) -> None:
        super().__init__(message, delivery=delivery, limit=limit, setting=setting, size=size, sha256=sha256)


class ResultNotKeptError(McpError):
    """The server acted, and storage did not take its result. The message says why, and names the setting.

    Delivery: answered.
    Again: no.
    To do: Mend `[storage]`; the server acted, so do not repeat what must not happen twice.
    """

    code = "internal_error"

    def __init__(self, why: str, *, size: int, sha256: str) -> None:
        super().__init__(
            f"the server acted, and its result of {size} bytes could not be kept: {why}",
            delivery=Delivery.ANSWERED,
            size=size,
            sha256=sha256,
        )


class RateLimitedError(McpError):
    """The server answered 429. ``retry_after`` is in seconds, if it said so.

    Delivery: not_processed.
    Again: after `Retry-After`.
    To do: Call less often, or raise `servers.ID.retry.max_wait` to what the server asks for.
    """

    code = "rate_limited"
    retryable = True

    def __init__(self, message: str, *, retry_after: float | None) -> None:
        super().__init__(message, delivery=Delivery.NOT_PROCESSED, httpStatus=429, retryAfter=retry_after)


class RoundsExceededError(McpError):
    """The server asked for input where it must not any more; it was not answered.

    Delivery: answered.
    Again: no.
    To do: Answer otherwise; where the server has good reason to ask on, raise `host.mrtr_max_rounds`.

    Args:
        rounds: How often it has asked in this call.
        limit: How often it may; None where it asked again what a person had declined.
    """

    code = "mcp_mrtr_rounds_exceeded"

    def __init__(self, *, rounds: int, limit: int | None = None) -> None:
        super().__init__(
            "the server asked again, word for word, what a person had declined or cancelled: the call ends here, and"
            " nobody is asked again"
            if limit is None
            else f"the server has asked for input {rounds} times in one call, over the limit of {limit} (setting"
            " host.mrtr_max_rounds): the call ends here, and nobody is asked again",
            delivery=Delivery.ANSWERED,
            rounds=rounds,
            limit=limit,
            setting=None if limit is None else "host.mrtr_max_rounds",
            declined=True if limit is None else None,
        )


class PostponedError(McpError):
    """The worker had no room for the call, or leaves its server alone for now; nothing was sent, nothing is used up.

    Delivery: not_sent.
    Again: by itself, for as long as `servers.ID.limits.patience` says.
    To do: Nothing, mostly. If it lasts, raise what `setting` names, or start more workers.

    Args:
        message: Why, for people.
        setting: The setting that says so; None where the server does.
        wait: Seconds after which it should come again; None where nobody knows.
        patience: Seconds that the call may wait so in all.
        patience_setting: The setting that says so.
        spread: From 0 to 1, see ``openwop_mcp.effects.decide.Postponement``.
    """

    code = "rate_limited"
    retryable = True

    def __init__(
        self,
        message: str,
        *,
        setting: str | None,
        wait: float | None,
        patience: float,
        patience_setting: str,
        spread: float,
    ) -> None:
        super().__init__(
            f"nothing was sent: {message}{f' (setting {setting})' if setting else ''}",
            delivery=Delivery.NOT_SENT,
            service="mcp",
            postponed=True,
            setting=setting,
            retryAfter=wait,
            patience=patience,
            patienceSetting=patience_setting,
            spread=spread,
        )


class CircuitOpenError(PostponedError):
    """Other calls could not reach the server; nothing was sent, and one after another finds out whether it is back.

    Delivery: not_sent.
    Again: by itself, for as long as `servers.ID.circuit.patience` says.
    To do: See why the server cannot be reached: `worker.py health ID` asks it at once.
    """

    code = "upstream_unavailable"


class UnexpectedError(McpError):
    """The call ended by a fault of this client, not of the server. ``fault`` is the name of its class.

    Delivery: unknown.
    Again: no.
    To do: Report it, with what the worker's log says; look at the server whether the effect happened.
    """

    code = "internal_error"

    def __init__(self, fault: str) -> None:
        super().__init__(
            f"the call ended by a fault of the MCP client itself ({fault}), which the worker's log has",
            delivery=Delivery.UNKNOWN,
            fault=fault,
        )


class UpstreamError(McpError):
    """No usable answer came.

    Delivery: not_sent, not_processed, answered, unknown.
    Again: where a repeat is safe.
    To do: See the causes below: it is always one of them.
    """

    code = "upstream_unavailable"
    retryable = True

    def __init__(self, message: str, *, delivery: Delivery, retryable: bool = True, **facts: Any) -> None:
        super().__init__(message, delivery=delivery, service="mcp", **facts)
        self.retryable = retryable


class AuthorizationError(UpstreamError):
    """There is no token that the server takes, and none can be had as things are.

    Delivery: not_sent, not_processed, answered, unknown.
    Again: only where the authorization server was out of reach.
    To do: `authorization` says what stands in the way; `login_required`: `worker.py login ID`.

    Attributes:
        cause: What stands in the way, one of a closed set of words (``openwop_mcp.client.auth.CAUSES``).
    """

    def __init__(
        self,
        message: str,
        *,
        cause: str,
        retryable: bool = False,
        delivery: Delivery = Delivery.NOT_SENT,
        oauth_error: str | None = None,
    ) -> None:
        super().__init__(message, delivery=delivery, retryable=retryable, authorization=cause, oauthError=oauth_error)
        self.cause = cause

    def after(self, delivery: Delivery) -> AuthorizationError:
        """The same error, raised anew for another call of which something else is known."""
        return AuthorizationError(
            self.message,
            cause=self.cause,
            retryable=self.retryable,
            delivery=delivery,
            oauth_error=self.facts.get("oauthError"),
        )


class ConnectError(UpstreamError):
    """Name resolution, TCP or TLS failed; nothing was sent.

    Delivery: not_sent.
    Again: yes.
    To do: Is the server up, and are host, port and certificate of `servers.ID.url` right?
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, delivery=Delivery.NOT_SENT)


class ConnectionLostError(UpstreamError):
    """The connection broke after the request had left, before a whole answer was read.

    Delivery: unknown.
    Again: where a repeat is safe.
    To do: See whether the server, or a proxy before it, closes connections while it works.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, delivery=Delivery.UNKNOWN)


class TimeLimitError(UpstreamError):
    """A time limit ran out.

    Delivery: not_sent, not_processed, answered, unknown.
    Again: where a repeat is safe.
    To do: Raise `servers.ID.timeouts` at the key that `limit` names, or what `setting` names where it waited for room.

    Attributes:
        limit: The settings key under ``timeouts``: ``connect``, ``first_byte``, ``idle`` or ``total``.
        seconds: How long it is.
    """

    def __init__(
        self, message: str, *, limit: str, seconds: float, delivery: Delivery, setting: str | None = None
    ) -> None:
        super().__init__(message, delivery=delivery, limit=limit, seconds=seconds, setting=setting)
        self.limit = limit
        self.seconds = seconds

    def of(self, seconds: float) -> None:
        """Tell the limit of the whole call, of which the request that ran into it had the rest."""
        self.message = self.message.replace(f" of {self.seconds:g} s", f" of {seconds:g} s")
        self.args = (self.message,)
        self.facts["seconds"] = self.seconds = seconds


class HttpStatusError(UpstreamError):
    """An HTTP status that came without a JSON-RPC answer.

    Delivery: not_processed, unknown.
    Again: from 500 on, where a repeat is safe.
    To do: Below 500 check `servers.ID.url` and credential; from 500 on the fault is the server's.

    Attributes:
        status: The status.
        challenges: The values of ``WWW-Authenticate``, as they came.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        delivery: Delivery,
        media_type: str | None = None,
        retry_after: float | None = None,
        excerpt: str | None = None,
        location: str | None = None,
        challenges: Sequence[str] = (),
    ) -> None:
        super().__init__(
            message,
            delivery=delivery,
            # A status below 500 says that the request, or the settings, must change first.
            retryable=status >= FIRST_SERVER_ERROR,
            httpStatus=status,
            mediaType=media_type,
            retryAfter=retry_after,
            excerpt=excerpt,
            location=location,
        )
        self.status = status
        self.challenges = challenges


class MalformedAnswerError(UpstreamError):
    """The answer breaks JSON, JSON-RPC or MCP.

    Delivery: answered, not_processed, unknown.
    Again: where a repeat is safe.
    To do: `fault` names what is broken: it is to be mended at the server, or at a proxy that answers in its place.

    Attributes:
        fault: What is broken, one of a closed set of words (``openwop_mcp.protocol.messages.FAULTS``).
    """

    def __init__(
        self, message: str, *, fault: str, excerpt: str | None = None, delivery: Delivery, retryable: bool = True
    ) -> None:
        super().__init__(message, delivery=delivery, retryable=retryable, fault=fault, excerpt=excerpt)
        self.fault = fault


class EchoedCredentialError(UpstreamError):
    """The server acted, and its answer holds a credential that it is called with: nothing of it is kept.

    Delivery: answered.
    Again: no.
    To do: Renew the credential, and have the server send none back; `setting`, if it is told, has it replaced instead.

    Args:
        why: Why it is not recorded without it.
        size: Bytes of the answer.
        sha256: Their SHA-256, in hexadecimal.
        setting: The setting that decides, where one does.
    """

    def __init__(self, why: str, *, size: int, sha256: str, setting: str | None = None) -> None:
        super().__init__(
            "the server acted, and its answer holds a credential that the server is called with, which no record may"
            f" repeat: {why}; renew the credential, and have the server's operator see to it that it sends none back",
            delivery=Delivery.ANSWERED,
            retryable=False,
            setting=setting,
            size=size,
            sha256=sha256,
        )


class InterruptedCallError(UpstreamError):
    """The call was given up on this side.

    Delivery: not_sent, not_processed, answered, unknown.
    Again: unless it was cancelled.
    To do: Nothing: a worker that shuts down leaves it to another one.

    Attributes:
        cancelled: Whether a caller wanted that; otherwise the worker is shutting down and another may go on.
    """

    def __init__(self, message: str, *, cancelled: bool, delivery: Delivery) -> None:
        super().__init__(message, delivery=delivery, retryable=not cancelled, cancelled=cancelled or None)
        self.cancelled = cancelled
