"""JSON-RPC messages of MCP: requests put together from exact values, answers judged and their result cut out.

Knows JSON-RPC and what MCP 2026-07-28 lays on it; knows no transport and nothing inside a result but its type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from openwop_mcp import jsontext
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import MalformedAnswerError, RpcError

__all__ = (
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "EXCERPT_BYTES",
    "FAULTS",
    "HEADER_MISMATCH",
    "INPUT_METHODS",
    "INVALID_PARAMS",
    "LOG_LEVEL",
    "MAX_DEPTH",
    "METHOD_NOT_FOUND",
    "MISSING_CAPABILITY",
    "PROTOCOL_VERSION",
    "SUBSCRIPTION_ID",
    "UNSUPPORTED_REVISION",
    "StreamMessage",
    "TooDeepError",
    "answer",
    "batch",
    "classify_stream_message",
    "error_response",
    "excerpt",
    "is_error",
    "is_input_required",
    "members",
    "notification",
    "request",
    "response",
    "terms_meta",
)

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
"""``_meta`` key for the revision of a request."""

CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
"""``_meta`` key for who is asking."""

CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
"""``_meta`` key for what the asking side can do for this one request."""

LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
"""``_meta`` key for the level from which on log messages may come with the answer."""

SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
"""``_meta`` key that says to which ``subscriptions/listen`` a notification belongs."""

METHOD_NOT_FOUND: Final = -32601
"""The other side has no such method."""

INVALID_PARAMS: Final = -32602
"""The method cannot take these params; of a list, that its cursor is none."""

HEADER_MISMATCH: Final = -32020
"""A header is missing or differs from the body."""

MISSING_CAPABILITY: Final = -32021
"""The server needs a client capability that the request did not declare."""

UNSUPPORTED_REVISION: Final = -32022
"""The server does not speak the request's revision."""

INPUT_METHODS: Final = frozenset({"tools/call", "resources/read", "prompts/get"})
"""Methods whose result may ask for input (MCP 2026-07-28, multi round-trip requests); elsewhere that is a fault."""

FAULTS: Final[Mapping[str, str]] = {
    "invalid_http": "is not HTTP, or is encoded in a way that cannot be undone",
    "empty": "is empty",
    "invalid_utf8": "is not UTF-8",
    "invalid_json": "is not JSON",
    "not_an_object": "is not a JSON object",
    "duplicate_member": "has a member of the envelope twice",
    "not_jsonrpc": "is not JSON-RPC 2.0",
    "both_result_and_error": "has both a result and an error",
    "neither_result_nor_error": "has neither a result nor an error",
    "wrong_id": "answers another request",
    "invalid_error": "has an error without an integer code and a text message",
    "invalid_result": "has a result that is not an object",
    "unknown_result_type": "has a result of a type that this request cannot have",
    "invalid_session_id": "opens a session with an id that no header can carry",
    "input_required_undeclared": "asks for input although the client declared that it cannot be asked",
    "invalid_input_request": "asks for input in a way that cannot be answered",
    "too_deep": "is nested deeper than is read",
    "too_wide": "has more members than a message can have",
    "endless_input_requests": "asks for input again and again",
}
"""What can be wrong with an answer: the closed set of words, each with how a sentence about the answer goes on."""

MAX_EXCERPT = 256
"""Characters shown of what a server sent: enough to recognise an error page, too little to hold a document."""

EXCERPT_BYTES = 4 * (MAX_EXCERPT + 1)
"""Bytes that an excerpt is made from: one character more than fits tells a cut, and none takes more than four bytes."""

MAX_DEPTH: Final = 512
"""Levels of a message: far above what results have, and half of what the decoders written in C take before they give
up, which then would be done in Python, a second for each megabyte."""

MAX_MEMBERS: Final = 64
"""Members of a message, of which JSON-RPC has five: each one costs a hundred times its bytes."""

MAX_BATCH: Final = 256
"""Messages of a batch: what a server can have to say at once, in the one revision that lets it."""

StreamMessage = Literal["answer", "notification", "request", "other"]

_WHITE = b" \t\r\n"

_ENVELOPE = frozenset({"jsonrpc", "id", "result", "error"})

# With these codes the server refused the envelope, so the method never ran.
_REFUSED = frozenset({HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_REVISION})

# From this status on, HTTP itself says that the body is about the request that it answers.
_ERROR_STATUS = 400

# With this one it says that the request was refused as such.
_BAD_REQUEST = 400


class TooDeepError(jsontext.JsonTextError):
    """The message is nested deeper than messages are read."""


def terms_meta(revision: str, client_info: bytes, capabilities: bytes) -> list[tuple[str, bytes]]:
    """List the members of ``_meta`` that every request of revision 2026-07-28 has.

    Args:
        revision: The revision; the same as in the header.
        client_info: JSON object text: who is asking.
        capabilities: JSON object text: what the client declares for this request.
    """
    return [
        (PROTOCOL_VERSION, jsontext.encode(revision)),
        (CLIENT_INFO, client_info),
        (CLIENT_CAPABILITIES, capabilities),
    ]


def request(
    request_id: int, method: str, params: Sequence[tuple[str, bytes]], meta: Sequence[tuple[str, bytes]] = ()
) -> bytes:
    """Put a request's body together; every value goes in byte for byte.

    Args:
        request_id: JSON-RPC id, new for each request.
        method: Method name.
        params: Members of ``params`` in the order wanted.
        meta: Members of ``_meta``, which is added to the params as the last. Without either there are no params.
    """
    own = [("_meta", jsontext.build(meta))] if meta else []
    given = [*params, *own]
    return jsontext.build(
        [
            ("jsonrpc", b'"2.0"'),
            ("id", b"%d" % request_id),
            ("method", jsontext.encode(method)),
            *([("params", jsontext.build(given))] if given else []),
        ]
    )


def notification(method: str, params: Sequence[tuple[str, bytes]] = ()) -> bytes:
    """Put a notification together."""
    own = [("params", jsontext.build(params))] if params else []
    return jsontext.build([("jsonrpc", b'"2.0"'), ("method", jsontext.encode(method)), *own])


def response(request_id: bytes, result: bytes) -> bytes:
    """Answer what a server of a revision before 2026-07-28 asked; ``request_id`` is the JSON text of its id."""
    return jsontext.build([("jsonrpc", b'"2.0"'), ("id", request_id), ("result", result)])


def error_response(request_id: bytes, code: int, message: str) -> bytes:
    """Refuse what a server of a revision before 2026-07-28 asked."""
    error = jsontext.encode({"code": code, "message": message})
    return jsontext.build([("jsonrpc", b'"2.0"'), ("id", request_id), ("error", error)])


def batch(data: bytes) -> list[bytes]:
    """Take a batch apart, which revision 2025-03-26 alone has; any other message is the only one of its list."""
    if not data.lstrip(_WHITE).startswith(b"[") or jsontext.nests(data, MAX_DEPTH):
        return [data]
    try:
        return jsontext.elements(data, MAX_BATCH) or [data]
    except jsontext.JsonTextError:
        return [data]


def answer(data: bytes, request_id: int, *, method: str, http_status: int, legacy: bool = False) -> bytes:
    """Judge an answer and cut the exact bytes of its result out.

    Args:
        data: The message as it came.
        request_id: Id of the request that was sent.
        method: Method of the request; decides which results can be.
        http_status: Status the message came with.
        legacy: Whether the revision is one that knows no types of result, and no errors that refuse an envelope.

    Raises:
        RpcError: if the server answered with an error.
        MalformedAnswerError: if the message breaks JSON, JSON-RPC or MCP; the request may have taken effect.
    """
    envelope = _envelope(data, method)
    if envelope.get("jsonrpc") != b'"2.0"' and _value(envelope.get("jsonrpc")) != "2.0":
        raise _malformed("not_jsonrpc", data, method)
    result, error = envelope.get("result"), envelope.get("error")
    if result is not None and error is not None:
        raise _malformed("both_result_and_error", data, method)
    if result is None and error is None:
        raise _malformed("neither_result_nor_error", data, method)
    if not _is_about(envelope, request_id, http_status):
        received = excerpt(envelope["id"]) if "id" in envelope else "none"
        raise _malformed("wrong_id", data, method, f": expected id {request_id}, received {received}")
    if error is not None:
        raise _rpc_error(error, data, method, http_status, legacy=legacy)
    if result is None or jsontext.kind(result) != "object":
        raise _malformed("invalid_result", data, method)
    found = None if legacy else jsontext.member(result, "resultType")
    if found is not None and found != b'"complete"':
        result_type = _value(found)
        if not (result_type == "complete" or (result_type == "input_required" and method in INPUT_METHODS)):
            raise _malformed("unknown_result_type", data, method, f": {excerpt(found)}")
    return result


def classify_stream_message(data: bytes) -> StreamMessage:
    """Tell what a message on the stream of one request is.

    What cannot be read, what answers another request and what answers nothing is an answer too: :func:`answer` names
    its fault. Only an object that is no JSON-RPC message and a bare value, such as home-made heartbeats, are ``other``.
    """
    if not data.lstrip(_WHITE).startswith(b"{"):
        return "other" if _is_bare(data) else "answer"
    try:
        found = dict(members(data))
    except jsontext.JsonTextError:
        return "answer"
    if "method" in found:
        return "request" if "id" in found else "notification"
    return "answer" if "result" in found or "error" in found or {"jsonrpc", "id"} <= found.keys() else "other"


def is_error(data: bytes) -> bool:
    """Tell whether the body of an HTTP error is meant as a JSON-RPC error; :func:`answer` says whether it is sound.

    Gateways and authorization servers have errors of their own in JSON, so the word alone means nothing.
    """
    try:
        found = dict(members(data))
    except jsontext.JsonTextError:
        return False
    return "jsonrpc" in found and "error" in found


def members(data: bytes) -> list[tuple[str, bytes]]:
    """Take a message apart, if it is no deeper and no wider than messages are read.

    Raises:
        JsonTextError: if it is, or is not a JSON object; :func:`answer` names the fault.
    """
    if jsontext.nests(data, MAX_DEPTH):
        raise TooDeepError("a message nested too deep", 0)
    return jsontext.members(data, MAX_MEMBERS)


def is_input_required(result: bytes) -> bool:
    """Tell whether a result that :func:`answer` cut out asks for input instead of giving any."""
    found = jsontext.member(result, "resultType")
    return found is not None and found != b'"complete"' and _value(found) == "input_required"


def excerpt(data: bytes) -> str:
    """Show the beginning of what a server sent, in at most 256 printable characters."""
    shown = data[:EXCERPT_BYTES].decode("utf-8", "backslashreplace")
    escaped = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown[: MAX_EXCERPT + 1])
    return escaped if len(escaped) <= MAX_EXCERPT else escaped[: MAX_EXCERPT - 1] + "…"


def _is_bare(data: bytes) -> bool:
    """Whether it is JSON, and neither an object nor an array: nothing that could hold a message."""
    try:
        if jsontext.kind(data) in ("object", "array"):
            return False
        jsontext.check(data)
    except jsontext.JsonTextError:
        return False
    return True


def _envelope(data: bytes, method: str) -> dict[str, bytes]:
    """Read the members that JSON-RPC gives meaning to, each at most once however its name is escaped."""
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise _malformed("invalid_utf8", data, method, f" (byte {error.start})") from None
    try:
        found = members(data)
    except TooDeepError:
        raise _malformed("too_deep", data, method, f": more than {MAX_DEPTH} levels", retryable=False) from None
    except jsontext.TooManyError:
        raise _malformed("too_wide", data, method, f": more than {MAX_MEMBERS}", retryable=False) from None
    except jsontext.JsonTextError as error:
        raise _unreadable(data, method, error) from None
    envelope: dict[str, bytes] = {}
    for name, value in found:
        if name in _ENVELOPE:
            if name in envelope:
                raise _malformed("duplicate_member", data, method, f": {name}")
            envelope[name] = value
    return envelope


def _unreadable(data: bytes, method: str, error: jsontext.JsonTextError) -> MalformedAnswerError:
    try:
        if jsontext.kind(data) != "object":
            jsontext.check(data)
            return _malformed("not_an_object", data, method)
    except jsontext.JsonTextError as found:
        error = found
    return _malformed("invalid_json", data, method, f" (byte {error.position})")


def _is_about(envelope: Mapping[str, bytes], request_id: int, http_status: int) -> bool:
    received = envelope.get("id")
    if received == b"%d" % request_id:
        return True
    if "error" not in envelope:
        return False
    # A server that could not read the id sends none or null (JSON-RPC 2.0), and older ones a word of their own.
    return received in (None, b"null") or (http_status >= _ERROR_STATUS and received.startswith(b'"'))


def _rpc_error(
    error: bytes, data: bytes, method: str, http_status: int, *, legacy: bool
) -> RpcError | MalformedAnswerError:
    fields = dict(jsontext.members(error)) if jsontext.kind(error) == "object" else {}
    code, message = _value(fields.get("code")), _value(fields.get("message"))
    if isinstance(code, float) and code.is_integer():
        code = int(code)
    if not isinstance(code, int) or isinstance(code, bool) or not isinstance(message, str):
        return _malformed("invalid_error", data, method)
    return RpcError(
        f"the server answered {method} with error {code}: {excerpt(message.encode('utf-8', 'backslashreplace'))}",
        rpc_code=code,
        error=error,
        http_status=http_status,
        # In older revisions these codes are a server's own, unless HTTP says as well that the request was refused.
        not_processed=code in _REFUSED and (not legacy or http_status == _BAD_REQUEST),
    )


def _value(data: bytes | None) -> Any:
    return None if data is None else jsontext.decode(data)


def _malformed(
    fault: str, data: bytes, method: str, detail: str = "", *, retryable: bool = True
) -> MalformedAnswerError:
    return MalformedAnswerError(
        f"the answer to {method} {FAULTS[fault]}{detail}",
        fault=fault,
        excerpt=excerpt(data),
        delivery=Delivery.UNKNOWN,
        retryable=retryable,
    )
