"""Which request a line belongs to, and as what. Judges no answer: whoever does gets the server's bytes."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Mapping
from typing import Final, Literal, NamedTuple

from openwop_mcp import jsontext
from openwop_mcp.client.stdio._lines import HEAD_BYTES, TAIL_BYTES
from openwop_mcp.protocol import messages

__all__ = ("Match", "matches", "pieces", "response_id")

PROGRESS: Final = "notifications/progress"
CANCELLED: Final = "notifications/cancelled"

SUBSCRIPTION: Final = ("_meta", "io.modelcontextprotocol/subscriptionId")
"""Names the request whose subscription a notification is for (MCP 2026-07-28, subscriptions)."""

OWNERS: Final[Mapping[str, tuple[str, ...]]] = {PROGRESS: ("progressToken",), CANCELLED: ("requestId",)}
"""Where in its ``params`` a notification names its request; all others do it in :data:`SUBSCRIPTION`."""

MAX_DIGITS: Final = len(str(2**63))
"""Digits of an id; none of ours has more, and reading very long ones takes very long."""

_MAY_BE_MESSAGE = re.compile(rb"\s*[\[{](?s:.{15})")
"""How each line begins that holds a message, none of which is shorter. To read one that holds none costs many times
more, and a program can write thirty thousand of them at once."""

_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID = rb'"id"\s*:\s*"?(\d{1,18})"?\s*'
_VERDICT = rb'"(?:result|error)"\s*:'

# Spellings of a response's envelope, for lines that cannot be read as a whole.
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",\s*(?:" + _VERSION + rb",\s*)?" + _VERDICT)
_VERDICT_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _VERDICT)
# What stands right before the brace that ends the text is the envelope's own, however much is nested before it.
_ID_LAST = re.compile(rb"[,{]\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z")


class Match(NamedTuple):
    """A message and what it is.

    Attributes:
        kind: ``answer``, ``notice`` (what comes before the answer) and ``cancelled`` have a request in flight;
            ``unmatched`` has a method and belongs to none; ``late`` is about a request that is not in flight;
            ``noise`` is no message of MCP.
        message: Its bytes.
        request_id: The request in flight that it belongs to.
    """

    kind: Literal["answer", "notice", "cancelled", "unmatched", "late", "noise"]
    message: bytes
    request_id: int | None = None


def pieces(line: bytes) -> list[bytes]:
    """The objects of a line that has several, as many as a batch may have, and nothing else; otherwise the line.

    Programs whose threads print without a lock write two messages and then the ends of two lines.
    """
    if b"}{" not in line or jsontext.nests(line, messages.MAX_DEPTH):
        return [line]
    try:
        jsontext.check(line)
    except jsontext.JsonTextError:
        return _unglued(line) or [line]
    return [line]


def matches(line: bytes, in_flight: Collection[int], sent: range) -> list[Match]:
    """Tell what a line holds: one message, several in an array, or noise.

    Args:
        line: The line.
        in_flight: Ids of the requests that wait for an answer.
        sent: Covers the ids of all requests that were ever sent.
    """
    if _MAY_BE_MESSAGE.match(line) is None:
        return [Match("noise", line)]
    try:
        return [_message(line, dict(messages.members(line)), in_flight, sent)]
    except jsontext.JsonTextError:
        pass
    parts = messages.batch(line)
    if len(parts) > 1 or parts[0] is not line:
        with contextlib.suppress(jsontext.JsonTextError):
            return [_message(part, dict(messages.members(part)), in_flight, sent) for part in parts]
    number = response_id(line[:HEAD_BYTES], line[-TAIL_BYTES:])
    return [Match("answer", line, number) if number is not None and number in in_flight else Match("noise", line)]


def _unglued(line: bytes) -> list[bytes]:
    """Each object; none if anything else is among them, if they are too many, or nested too deeply for the scanner."""
    found: list[bytes] = []
    scan = json.JSONDecoder().raw_decode
    try:
        text = line.decode().strip()
        start = 0
        while start < len(text):
            if len(found) == messages.MAX_BATCH:
                return []
            value, end = scan(text, start)
            if not isinstance(value, dict):
                return []
            found.append(text[start:end].encode())
            start = end
    except (ValueError, RecursionError):
        return []
    return found


def response_id(head: bytes, tail: bytes) -> int | None:
    """The id of a response of which only the ends are at hand, or which is no JSON; None if it shows none."""
    found = _ID_FIRST.match(head)
    if found is None and _VERDICT_FIRST.match(head) is not None:
        found = _ID_LAST.search(tail)
    return None if found is None else int(found[1])


def _message(message: bytes, found: Mapping[str, bytes], in_flight: Collection[int], sent: range) -> Match:
    if "method" not in found:
        return _response(message, found, in_flight, sent)
    if "jsonrpc" not in found:
        return Match("noise", message)
    if "id" in found:
        return Match("unmatched", message)
    try:
        return _notification(message, found["method"], found.get("params", b"{}"), in_flight)
    except jsontext.JsonTextError:
        return Match("noise", message)


def _response(message: bytes, found: Mapping[str, bytes], in_flight: Collection[int], sent: range) -> Match:
    number, versioned = found.get("id"), "jsonrpc" in found
    if not ("result" in found or "error" in found or (versioned and number is not None)):
        return Match("noise", message)
    # A string that holds an id names its request too; whoever judges the answer names the fault.
    request_id = _integer(None if number is None else number.strip(b'"'))
    if request_id is not None and request_id in in_flight:
        return Match("answer", message, request_id)
    if not versioned:
        return Match("noise", message)
    # With an id that was never sent, or an error with none, it was meant for the only request or for nothing.
    nameless = number is None or number == b"null"
    stray = "error" in found if nameless else _integer(number) not in sent
    return Match("answer", message, *in_flight) if stray and len(in_flight) == 1 else Match("late", message)


def _notification(message: bytes, name: bytes, params: bytes, in_flight: Collection[int]) -> Match:
    if jsontext.kind(name) != "string" or jsontext.kind(params) != "object":
        return Match("noise", message)
    method = jsontext.decode(name)
    owner = _integer(jsontext.pointer(params, OWNERS.get(method, SUBSCRIPTION)))
    if owner is None or owner not in in_flight:
        return Match("late" if method == PROGRESS else "unmatched", message)
    return Match("cancelled" if method == CANCELLED else "notice", message, owner)


def _integer(value: bytes | None) -> int | None:
    """An id or a token, if it is a whole number as ours are."""
    return int(value) if value is not None and value.isdigit() and len(value) <= MAX_DIGITS else None
