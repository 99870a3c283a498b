"""How much one key may ask for: requests at once, requests a second, and bytes of bodies at once.

Counts in this process and for nobody else; knows no request beyond whose it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from .errors import HostError

__all__ = ("Admission", "KeyLimits", "Limited")

MAX_IDLE = 10_000
"""Keys that are remembered while they ask for nothing: a megabyte. What is forgotten has a full bucket anyway."""

_SCOPE = "openwop.admission"
"""Where a request's admission stands in its scope."""


@dataclass(slots=True)
class _Use:
    """What a key has taken."""

    tokens: float
    at: float
    under_way: int = 0
    held: int = 0


class KeyLimits:
    """Counts the requests of each key.

    Args:
        at_once: Requests of a key that may be under way; a stream is one for as long as it lasts.
        per_second: Requests of a key that may begin in a second. As many may begin together.
        body_bytes: Bytes that the bodies of its requests under way may have together.
        clock: Seconds, never going back.
    """

    def __init__(
        self, *, at_once: int, per_second: int, body_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._at_once = at_once
        self._per_second = per_second
        self._body_bytes = body_bytes
        self._clock = clock
        self._uses: dict[str, _Use] = {}

    def take(self, key_id: str) -> None:
        """Count a request that begins.

        Raises:
            HostError: ``rate_limited``; the request is not counted.
        """
        now = self._clock()
        use = self._uses.get(key_id)
        if use is None:
            self._forget_idle(now)
            use = self._uses[key_id] = _Use(self._per_second, now)
        use.tokens = self._filled(use, now)
        use.at = now
        if use.under_way >= self._at_once:
            raise HostError(
                "rate_limited",
                f"the key has {self._at_once} requests under way, which is as many as it may: wait for one to end",
                retry_after=1,
            )
        if use.tokens < 1:
            raise HostError(
                "rate_limited",
                f"the key may begin {self._per_second} requests a second: wait",
                retry_after=math.ceil((1 - use.tokens) / self._per_second),
            )
        use.tokens -= 1
        use.under_way += 1

    def hold(self, key_id: str, size: int) -> None:
        """Count bytes of a body, of a request that is counted.

        Raises:
            HostError: ``rate_limited``; the bytes are not counted.
        """
        use = self._uses[key_id]
        if use.held + size > self._body_bytes:
            raise HostError(
                "rate_limited",
                f"the key's requests under way have bodies of {self._body_bytes} bytes, which is as much as they may: "
                "wait for one to end",
                retry_after=1,
            )
        use.held += size

    def give_back(self, key_id: str, held: int = 0) -> None:
        """Count a request that has ended, with the bytes that it held."""
        use = self._uses[key_id]
        use.under_way -= 1
        use.held -= held

    def _filled(self, use: _Use, now: float) -> float:
        return min(self._per_second, use.tokens + (now - use.at) * self._per_second)

    def _forget_idle(self, now: float) -> None:
        if len(self._uses) < MAX_IDLE:
            return
        idle = [
            key_id
            for key_id, use in self._uses.items()
            if not use.under_way and self._filled(use, now) == self._per_second
        ]
        for key_id in idle:
            del self._uses[key_id]


class Admission:
    """One request's place among those of its key; taken when it is known whose it is."""

    def __init__(self, limits: KeyLimits) -> None:
        self._limits = limits
        self._key_id: str | None = None
        self._held = 0

    @classmethod
    def of(cls, scope: Scope) -> Admission | None:
        """That of a request; None where nobody counts."""
        admission: Admission | None = scope.get(_SCOPE)
        return admission

    def take(self, key_id: str) -> None:
        """Count the request.

        Raises:
            HostError: ``rate_limited``.
        """
        self._limits.take(key_id)
        self._key_id = key_id

    def hold(self, size: int) -> None:
        """Count bytes of the request's body, which are held until it ends.

        Raises:
            HostError: ``rate_limited``.
        """
        if self._key_id is not None:
            self._limits.hold(self._key_id, size)
            self._held += size

    def give_back(self) -> None:
        """The request has ended."""
        if self._key_id is not None:
            self._limits.give_back(self._key_id, self._held)


class Limited:
    """Middleware that lets requests be counted, from when their key is known to the last byte of their answer."""

    def __init__(self, app: ASGIApp, limits: KeyLimits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request (ASGI)."""
        admission = scope[_SCOPE] = Admission(self._limits)
        try:
            await self._app(scope, receive, send)
        finally:
            admission.give_back()
