"""Clients of several hosts: whoever loses one goes on at another. Knows the REST surface, and nothing behind it."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from http import HTTPStatus
from typing import Any

import aiohttp

from openwop_mcp import jsontext
from tests.cluster.plan import PlannedRun
from tests.support.host_process import path_of

__all__ = ("Clients", "RefusedError")

LOST = (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)
"""What a client sees of a host that has gone."""

AWAY = 0.1
"""Seconds until a client that has lost one host asks the other: both may be away, for all that it knows."""

AGAIN = frozenset({HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS})
"""Refusals after which the same request may be made again."""

IN_FLIGHT = "idempotency_in_flight"

TERMINAL = frozenset({"run.completed", "run.failed", "run.cancelled"})


class RefusedError(Exception):
    """A host has refused what it should have done; the message has its words."""


class Clients:
    """All clients.

    Attributes:
        creating: Creations under way, by host.
        following: Streams and polls under way, by host.
        cut: What was cut off by the loss of a host, and made again at another.
        repeated: Creations that were answered to be those of an earlier request.
    """

    def __init__(self, http: aiohttp.ClientSession, addresses: Sequence[str]) -> None:
        self._http = http
        self._addresses = addresses
        self.creating: Counter[int] = Counter()
        self.following: Counter[int] = Counter()
        self.cut: Counter[str] = Counter()
        self.repeated = 0

    def _from(self, first: int) -> Iterator[int]:
        while True:
            yield first % len(self._addresses)
            first += 1

    async def create(self, planned: PlannedRun) -> list[str]:
        """Create a run, by the same request until it is answered, and then once more at another host.

        Returns:
            The ids that it was told.
        """
        headers = {"Idempotency-Key": str(uuid.uuid4()), "Content-Type": "application/json"}
        body = jsontext.encode(planned.create)
        told: list[str] = []
        for host in self._from(planned.number):
            self.creating[host] += 1
            try:
                async with self._http.post(f"{self._addresses[host]}/runs", data=body, headers=headers) as answer:
                    said = await answer.json()
            except LOST:
                self.cut["creations"] += 1
                await asyncio.sleep(AWAY)
                continue
            finally:
                self.creating[host] -= 1
            if answer.status == HTTPStatus.CREATED:
                told.append(said["runId"])
                self.repeated += "OpenWOP-Idempotent-Replay" in answer.headers
            elif answer.status in AGAIN or said.get("error") == IN_FLIGHT:
                await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
            else:
                raise RefusedError(f"run {planned.number} was refused: {said}")
            if len(told) == 2:
                break
        return told

    async def follow(self, run_id: str, planned: PlannedRun, events: list[bytes]) -> None:
        """Put the events of a run into a list as they come, to its end; half of the runs by streams, half by polls."""
        # By another host than the one that was asked to create it.
        for host in self._from(planned.number // 2):
            self.following[host] += 1
            try:
                if planned.number % 4 < 2:
                    await self._stream(host, run_id, events)
                else:
                    await self._poll(host, run_id, events)
            except LOST:
                self.cut["events"] += 1
                await asyncio.sleep(AWAY)
            finally:
                self.following[host] -= 1
            if events and jsontext.decode(events[-1])["type"] in TERMINAL:
                return

    async def _stream(self, host: int, run_id: str, events: list[bytes]) -> None:
        after = {"Last-Event-ID": str(_sequence(events[-1]))} if events else {}
        url = f"{self._addresses[host]}{path_of(run_id)}/events?streamMode=debug"
        async with self._http.get(url, headers=after) as answer:
            if await self._refused(answer):
                return
            async for line in answer.content:
                name, _, value = line.partition(b": ")
                if name == b"data":
                    events.append(value.rstrip(b"\n"))

    async def _poll(self, host: int, run_id: str, events: list[bytes]) -> None:
        after = f"&afterSequence={_sequence(events[-1])}" if events else ""
        url = f"{self._addresses[host]}{path_of(run_id)}/events/poll?timeout=10{after}"
        async with self._http.get(url) as answer:
            if not await self._refused(answer):
                found = jsontext.member(await answer.read(), "events")
                events += [bytes(event) for event in jsontext.elements(found or b"[]")]

    async def _refused(self, answer: aiohttp.ClientResponse) -> bool:
        """Whether it is to be asked again; waits until it may be."""
        if answer.status == HTTPStatus.OK:
            return False
        if answer.status not in AGAIN:
            raise RefusedError(f"{answer.url.path} was refused: {await answer.text()}")
        await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
        return True

    async def everywhere(self, path: str) -> list[bytes]:
        """What each host answers to a question."""
        found: list[bytes] = []
        for address in self._addresses:
            async with self._http.get(f"{address}{path}") as answer:
                found.append(await answer.read())
        return found

    async def listed(self) -> AsyncIterator[str]:
        """Ids of all runs, newest first, page by page, each page from another host."""
        cursor = ""
        for host in self._from(0):
            async with self._http.get(f"{self._addresses[host]}/runs?limit=100{cursor}") as answer:
                page: dict[str, Any] = await answer.json()
            for run in page["runs"]:
                yield run["runId"]
            if "nextCursor" not in page:
                return
            cursor = f"&cursor={page['nextCursor']}"


def _sequence(event: bytes) -> int:
    sequence: int = jsontext.decode(event)["sequence"]
    return sequence
