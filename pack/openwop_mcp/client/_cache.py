"""What a server said for a while: results of lists, reads and discovery, kept as long as the server allows.

Pure of I/O; the clock is given. Knows which result may be served to whom, and nothing of how one is had. To lose any of
it changes nothing but time.
"""

from __future__ import annotations

import decimal
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from openwop_mcp import jsontext

__all__ = ("CACHEABLE", "Asker", "ResultCache", "Ticket")

CACHEABLE: Final = frozenset(
    {"server/discover", "tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read"}
)
"""Methods whose results carry ``ttlMs`` and ``cacheScope`` (MCP 2026-07-28, caching)."""

MAX_AGE: Final = 3600.0
"""Seconds for which a result is fresh at most, whatever its ttlMs: a server must not pin what we think of it."""

MAX_ENTRIES: Final = 1024
"""Results kept: the pages and resources of a few dozen servers."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""Bytes of results and parameters kept: a fraction of what a worker has, and hundreds of pages of usual size."""

CONCERNS: Final[Mapping[str, frozenset[str]]] = {
    "notifications/tools/list_changed": frozenset({"tools/list"}),
    "notifications/prompts/list_changed": frozenset({"prompts/list"}),
    "notifications/resources/list_changed": frozenset({"resources/list", "resources/templates/list"}),
    "notifications/resources/updated": frozenset({"resources/read"}),
}
"""Which results a notification makes stale (MCP 2026-07-28, caching and subscriptions)."""

_ROUND_TRIP = frozenset({"inputResponses", "requestState"})


class Result(Protocol):
    """What is kept: whatever has the exact bytes of a result."""

    @property
    def result(self) -> bytes:
        """The result's JSON text."""
        ...


R = TypeVar("R", bound=Result)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks whom.

    Attributes:
        tenant: The tenant on whose behalf.
        origin: What the server is known by.
        revision: Revision of MCP of the request.
        principal: On whose authority.
        context: The authorization context of the connection.
    """

    tenant: str
    origin: str
    revision: str
    principal: str
    context: int


@dataclass(eq=False, slots=True, weakref_slot=True)
class Ticket:
    """A request under way whose result may be kept. To let go of it is to give it up.

    Attributes:
        asker: Who asks.
        method: The request's method.
        params: Its parameters without ``_meta``, as JSON text.
        uri: The resource that it reads, for ``resources/read``.
        began: When it was about to be sent.
        void: Whether its result must not be kept: it never may be, or something made it stale while it was under way.
    """

    asker: Asker
    method: str
    params: bytes
    uri: str | None
    began: float
    void: bool

    @property
    def shared(self) -> tuple[object, ...]:
        """The key of a ``public`` result."""
        return self.asker.tenant, self.asker.origin, self.asker.revision, self.method, self.params

    @property
    def private(self) -> tuple[object, ...]:
        """The key of any other."""
        return *self.shared, self.asker.principal, self.asker.context


@dataclass(frozen=True, slots=True)
class _Entry(Generic[R]):
    value: R
    ticket: Ticket
    is_private: bool
    until: float
    size: int


class ResultCache(Generic[R]):
    """Fresh results of many servers, the least recently used of which go first. For one event loop.

    Args:
        clock: Monotonic seconds.
        max_entries: Results kept at once.
        max_bytes: Bytes of results and parameters kept at once.
    """

    def __init__(
        self, clock: Callable[[], float], *, max_entries: int = MAX_ENTRIES, max_bytes: int = MAX_BYTES
    ) -> None:
        self._clock = clock
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[tuple[object, ...], _Entry[R]] = OrderedDict()
        self._under_way: weakref.WeakSet[Ticket] = weakref.WeakSet()

    def begin(self, asker: Asker, method: str, params: bytes) -> Ticket:
        """Say that a request is about to be sent. ``params`` is the JSON text of an object, with ``_meta`` or without.

        Raises:
            JsonTextError: if it is none.
        """
        ticket = _ticket(asker, method, params, self._clock())
        if not ticket.void:
            self._under_way.add(ticket)
        return ticket

    def find(self, asker: Asker, method: str, params: bytes) -> R | None:
        """The fresh result of such a request that this asker may see, if there is one."""
        now = self._clock()
        ticket = _ticket(asker, method, params, now)
        if ticket.void:
            return None
        for key in (ticket.private, ticket.shared):
            entry = self._entries.get(key)
            if entry is None:
                continue
            if now < entry.until:
                self._entries.move_to_end(key)
                return entry.value
            self._remove(key)
        return None

    def keep(self, ticket: Ticket, value: R) -> None:
        """Keep the answer to a request, unless something has made it stale meanwhile.

        It is fresh for as long as it says from when it was asked for: nobody knows when on the way it was made.

        It takes the place of what this asker was answered before, even if it may not be kept itself.
        """
        self._under_way.discard(ticket)
        if ticket.void:
            return
        self._remove(ticket.private)
        self._remove(ticket.shared)
        age = _age(value.result)
        if not age or not _is_complete(value.result):
            return
        is_private = _text(value.result, "cacheScope") != "public"
        key = ticket.private if is_private else ticket.shared
        size = len(value.result) + len(ticket.params)
        if size > self._max_bytes:
            return
        self._entries[key] = _Entry(value, ticket, is_private, ticket.began + age, size)
        self._bytes += size
        while len(self._entries) > self._max_entries or self._bytes > self._max_bytes:
            self._remove(next(iter(self._entries)))

    def drop(self, origin: str, notification: str, params: bytes | None = None) -> None:
        """A server's notification came: what it concerns is stale, and so is what is under way.

        ``notifications/resources/updated`` names a resource, a part of one that was read as a whole, or a whole of
        which parts were read.
        """
        methods = CONCERNS.get(notification, frozenset())
        uri = _text(params or b"{}", "uri") if notification == "notifications/resources/updated" else None
        self._drop(
            lambda ticket: ticket.asker.origin == origin and ticket.method in methods and _is_about(ticket.uri, uri)
        )

    def drop_list(self, origin: str, method: str) -> None:
        """A cursor was refused: all pages of that list are void (MCP 2026-07-28, pagination)."""
        self._drop(lambda ticket: ticket.asker.origin == origin and ticket.method == method)

    def authorization_changed(self, asker: Asker) -> None:
        """This asker's authorization context is a new one: what only an earlier one might see goes."""

        def is_earlier(ticket: Ticket) -> bool:
            other = ticket.asker
            return other.context != asker.context and (other.tenant, other.origin, other.principal) == (
                asker.tenant,
                asker.origin,
                asker.principal,
            )

        self._drop(is_earlier, private_only=True)

    def _drop(self, concerns: Callable[[Ticket], bool], *, private_only: bool = False) -> None:
        for ticket in self._under_way:
            ticket.void |= concerns(ticket)
        stale = [
            key
            for key, entry in self._entries.items()
            if (entry.is_private or not private_only) and concerns(entry.ticket)
        ]
        for key in stale:
            self._remove(key)

    def _remove(self, key: tuple[object, ...]) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._bytes -= entry.size


def _ticket(asker: Asker, method: str, params: bytes, began: float) -> Ticket:
    members = jsontext.members(params) if method in CACHEABLE else []
    told = jsontext.build([(name, value) for name, value in members if name != "_meta"])
    uri = _text(told, "uri") if method == "resources/read" else None
    void = method not in CACHEABLE or any(name in _ROUND_TRIP for name, _ in members)
    return Ticket(asker, method, told, uri, began, void)


def _is_about(read: str | None, updated: str | None) -> bool:
    """Whether a resource that was read may hold what was updated. A notification without one is about all."""
    return read is None or updated is None or read.startswith(updated) or updated.startswith(read)


def _age(result: bytes) -> float:
    """Seconds for which a result is fresh: what is no whole positive number of milliseconds means not at all."""
    value = _value(result, "ttlMs")
    if isinstance(value, bool) or not isinstance(value, int | float | decimal.Decimal) or value <= 0:
        return 0.0
    if value >= MAX_AGE * 1000:
        return MAX_AGE
    return float(value) / 1000 if value % 1 == 0 else 0.0


def _is_complete(result: bytes) -> bool:
    kind = _value(result, "resultType", absent="complete")
    return bool(kind == "complete")


def _text(data: bytes, name: str) -> str | None:
    value = _value(data, name)
    return value if isinstance(value, str) else None


def _value(data: bytes, name: str, *, absent: Any = None) -> Any:
    found = jsontext.member(data, name)
    return absent if found is None else jsontext.decode(found)
