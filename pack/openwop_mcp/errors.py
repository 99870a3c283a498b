"""Why a call has no result: one class per cause, each with its OpenWOP code, what is known of delivery, and the facts.

The tree::

    McpError
    ├── UnknownServerError          not_found                    no such server id in this tenant
    ├── InvalidRequestError         validation_error             what the caller asked for cannot be sent
    ├── RpcError                    mcp_error                    the server answered with a JSON-RPC error
    ├── NoCommonRevisionError       interop_version_unsupported  no revision both sides speak
    ├── ResultTooLargeError         storage_limit_exceeded       an answer (or an argument) over the ceiling
    ├── RateLimitedError            rate_limited                 429
    └── UpstreamError               upstream_unavailable         no usable answer
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

from typing import Any, ClassVar

from openwop_mcp.effects.delivery import Delivery

__all__ = (
    "ConnectError",
    "ConnectionLostError",
    "HttpStatusError",
    "InterruptedCallError",
    "InvalidRequestError",
    "MalformedAnswerError",
    "McpError",
    "NoCommonRevisionError",
    "RateLimitedError",
    "ResultTooLargeError",
    "RpcError",
    "TimeLimitError",
    "UnknownServerError",
    "UpstreamError",
)


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


class UnknownServerError(McpError):
    """The server id is not configured for the caller's tenant."""

    code = "not_found"

    def __init__(self, server_id: str) -> None:
        super().__init__(
            f"no MCP server '{server_id}' is configured for this tenant: add [servers.{server_id}] to the settings, and"
            " restart the worker, which reads them once",
            delivery=Delivery.NOT_SENT,
            serverId=server_id,
        )


class InvalidRequestError(McpError):
    """The request cannot be built from what the caller gave; nothing was sent."""

    code = "validation_error"

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message, delivery=Delivery.NOT_SENT, path=path)


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


class NoCommonRevisionError(McpError):
    """Client and server share no revision of MCP."""

    code = "interop_version_unsupported"

    def __init__(self, *, requested: str, supported: list[str]) -> None:
        offered = ", ".join(supported) or "none"
        super().__init__(
            f"the server does not speak MCP {requested} (it offers {offered})",
            delivery=Delivery.NOT_PROCESSED,
            protocol="mcp",
            requested=requested,
            supported=supported,
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


class RateLimitedError(McpError):
    """The server answered 429. ``retry_after`` is in seconds, if it said so."""

    code = "rate_limited"
    retryable = True

    def __init__(self, message: str, *, retry_after: float | None) -> None:
        super().__init__(message, delivery=Delivery.NOT_PROCESSED, httpStatus=429, retryAfter=retry_after)


class UpstreamError(McpError):
    """No usable answer came."""

    code = "upstream_unavailable"
    retryable = True

    def __init__(self, message: str, *, delivery: Delivery, retryable: bool = True, **facts: Any) -> None:
        super().__init__(message, delivery=delivery, service="mcp", **facts)
        self.retryable = retryable


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
    """

    def __init__(self, message: str, *, limit: str, seconds: float, delivery: Delivery) -> None:
        super().__init__(message, delivery=delivery, limit=limit, seconds=seconds)
        self.limit = limit


class HttpStatusError(UpstreamError):
    """An HTTP status that came without a JSON-RPC answer."""

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
