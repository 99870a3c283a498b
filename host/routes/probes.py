"""Whether the process lives, and whether it can serve: for whoever runs it, and no part of OpenWOP."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from temporalio.api.workflowservice.v1 import GetSystemInfoRequest
from temporalio.client import Client, RPCTimeoutOrCancelledError
from temporalio.service import RPCError

from ..context import Host

__all__ = ("PATHS", "routes")

HEALTH = "/healthz"
READY = "/readyz"

PATHS = frozenset({HEALTH, READY})
"""These paths are beside the protocol: their answers follow no contract of OpenWOP."""

TEMPORAL_SECONDS = 2
"""What Temporal is given to answer a probe. It takes a millisecond."""

KEPT_SECONDS = 1.0
"""How long an answer of Temporal's holds: probes need no key, and must not become a load on it."""

UNREADY = 503

_METHODS = ["GET", "HEAD"]


def routes(host: Host) -> APIRouter:
    """The probes."""
    router = APIRouter(include_in_schema=False)
    temporal = _Temporal(host.client)

    @router.api_route(HEALTH, methods=_METHODS)
    async def healthz() -> PlainTextResponse:
        return PlainTextResponse("ok\n")

    @router.api_route(READY, methods=_METHODS)
    async def readyz() -> PlainTextResponse:
        if host.stopping.is_set():
            return PlainTextResponse("the host is about to end\n", UNREADY)
        if not await temporal.answers():
            return PlainTextResponse("Temporal does not answer\n", UNREADY)
        return PlainTextResponse("ok\n")

    return router


class _Temporal:
    """Whether Temporal answers, as it was a moment ago."""

    def __init__(self, client: Client, clock: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._clock = clock
        self._at: float | None = None
        self._answered = False

    async def answers(self) -> bool:
        """Ask it, if that was not done just now."""
        if self._at is None or self._clock() - self._at >= KEPT_SECONDS:
            self._answered = await self._ask()
            self._at = self._clock()
        return self._answered

    async def _ask(self) -> bool:
        try:
            await self._client.workflow_service.get_system_info(
                GetSystemInfoRequest(), timeout=timedelta(seconds=TEMPORAL_SECONDS)
            )
        except (RPCError, RPCTimeoutOrCancelledError):
            return False
        return True
