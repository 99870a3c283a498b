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

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.protocol.revisions import LEGACY

__all__ = (
    "AuthorizationError",
    "ConnectError",
    "ConnectionLostError",
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
    """The request cannot be built from what the caller gave; nothing was sent."""

    code = "validation_error"

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message, delivery=Delivery.NOT_SENT, path=path)


class NotCallableError(McpError):
    """The tool, as its server defines it, cannot be called; nothing was sent."""

    code = "forbidden"

    def __init__(self, message: str) -> None:
        super().__init__(message, delivery=Delivery.NOT_SENT)


class KeyMismatchError(McpError):
    """The caller's key names an effect that was asked for with other arguments; nothing was sent.

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
    """An earlier attempt at the effect left no outcome that could be found; nothing was sent by this one."""

    code = "upstream_unavailable"

    def __init__(self, message: str) -> None:
        super().__init__(message, delivery=Delivery.UNKNOWN, service="mcp")


class RpcError(McpError):
    """The server answered with a JSON-RPC error.

    Attributes:
        rpc_code: The error's ``code``.
        error: The exact bytes of the ``error`` member.
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
        self.http_status = http_status


class NoCommonRevisionError(McpError):
    """Client and server share no revision of MCP that the settings allow.

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
    """The address that would have been dialled is outside what the server's ``network`` setting allows."""

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
    """An answer, or arguments, over the ceiling named by ``setting``."""

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
    """The server acted, and storage did not take its result. The message says why, and names the setting."""

    code = "internal_error"

    def __init__(self, why: str, *, size: int, sha256: str) -> None:
        super().__init__(
            f"the server acted, and its result of {size} bytes could not be kept: {why}",
            delivery=Delivery.ANSWERED,
            size=size,
            sha256=sha256,
        )


class RateLimitedError(McpError):
    """The server answered 429. ``retry_after`` is in seconds, if it said so."""

    code = "rate_limited"
    retryable = True

    def __init__(self, message: str, *, retry_after: float | None) -> None:
        super().__init__(message, delivery=Delivery.NOT_PROCESSED, httpStatus=429, retryAfter=retry_after)


class RoundsExceededError(McpError):
    """The server asked for input where it must not any more; it was not answered.

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


class UnexpectedError(McpError):
    """The call ended by a fault of this client, not of the server. ``fault`` is the name of its class."""

    code = "internal_error"

    def __init__(self, fault: str) -> None:
        super().__init__(
            f"the call ended by a fault of the MCP client itself ({fault}), which the worker's log has",
            delivery=Delivery.UNKNOWN,
            fault=fault,
        )


class UpstreamError(McpError):
    """No usable answer came."""

    code = "upstream_unavailable"
    retryable = True

    def __init__(self, message: str, *, delivery: Delivery, retryable: bool = True, **facts: Any) -> None:
        super().__init__(message, delivery=delivery, service="mcp", **facts)
        self.retryable = retryable


class AuthorizationError(UpstreamError):
    """There is no token that the server takes, and none can be had as things are.

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
    """Name resolution, TCP or TLS failed; nothing was sent."""

    def __init__(self, message: str) -> None:
        super().__init__(message, delivery=Delivery.NOT_SENT)


class ConnectionLostError(UpstreamError):
    """The connection broke after the request had left, before a whole answer was read."""

    def __init__(self, message: str) -> None:
        super().__init__(message, delivery=Delivery.UNKNOWN)


class TimeLimitError(UpstreamError):
    """A time limit ran out.

    Attributes:
        limit: The settings key under ``timeouts``: ``connect``, ``first_byte``, ``idle`` or ``total``.
        seconds: How long it is.
    """

    def __init__(self, message: str, *, limit: str, seconds: float, delivery: Delivery) -> None:
        super().__init__(message, delivery=delivery, limit=limit, seconds=seconds)
        self.limit = limit
        self.seconds = seconds

    def of(self, seconds: float) -> None:
        """Tell the limit of the whole call, of which the request that ran into it had the rest."""
        self.message = self.message.replace(f" of {self.seconds:g} s", f" of {seconds:g} s")
        self.args = (self.message,)
        self.facts["seconds"] = self.seconds = seconds


class HttpStatusError(UpstreamError):
    """An HTTP status that came without a JSON-RPC answer.

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

    Attributes:
        fault: What is broken, one of a closed set of words (``openwop_mcp.protocol.messages.FAULTS``).
    """

    def __init__(
        self, message: str, *, fault: str, excerpt: str | None = None, delivery: Delivery, retryable: bool = True
    ) -> None:
        super().__init__(message, delivery=delivery, retryable=retryable, fault=fault, excerpt=excerpt)
        self.fault = fault


class InterruptedCallError(UpstreamError):
    """The call was given up on this side.

    Attributes:
        cancelled: Whether a caller wanted that; otherwise the worker is shutting down and another may go on.
    """

    def __init__(self, message: str, *, cancelled: bool, delivery: Delivery) -> None:
        super().__init__(message, delivery=delivery, retryable=not cancelled, cancelled=cancelled or None)
        self.cancelled = cancelled
