"""Hosts as their clients have them: processes of `worker.py` with keys of two tenants, and what is asked of them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from host.ids import project
from tests.support.cli import Serving, serving
from tests.support.patience import PATIENCE

__all__ = (
    "ACME",
    "READER",
    "SECONDS",
    "UMBRELLA",
    "Frame",
    "HostProcess",
    "frames_of",
    "host_process",
    "keys",
    "path_of",
)

ACME, READER, UMBRELLA = "acme-key-of-a-developer", "acme-key-of-an-auditor", "umbrella-key-of-a-developer"
"""Keys. The first and the last may do all in their tenants, the other one may read."""

SECONDS = PATIENCE
"""What a request or a run may take in a test."""

MANY = httpx.Limits(max_connections=None, max_keepalive_connections=None)
"""Tests have many clients in one."""

_KEYS = ((ACME, "acme", '"*"'), (READER, "acme", '"runs:read"'), (UMBRELLA, "umbrella", '"*"'))


def keys() -> str:
    """The keys as settings have them."""
    tables = [
        f'[[keys]]\nid = "{key}"\nsha256 = "{hashlib.sha256(key.encode()).hexdigest()}"\n'
        f'tenant = "{tenant}"\nsubject = "dev"\nscopes = [{scopes}]\n'
        for key, tenant, scopes in _KEYS
    ]
    return "\n".join(tables)


def path_of(run_id: str) -> str:
    """The path of a run."""
    return f"/runs/{project(run_id)}"


class Frame(NamedTuple):
    """A frame of an event stream, as it was sent."""

    id: str | None
    event: str
    data: bytes

    @property
    def json(self) -> Any:
        """What it tells."""
        return json.loads(self.data)


@dataclass(frozen=True)
class HostProcess:
    """A host that serves. Requests are those of :data:`ACME` unless they have another key."""

    serving: Serving
    http: httpx.AsyncClient

    async def create(self, workflow_id: str, inputs: Mapping[str, Any] | None = None, **members: Any) -> str:
        """Create a run; gives its id."""
        body = {"workflowId": workflow_id, **({} if inputs is None else {"inputs": inputs}), **members}
        answer = await self.http.post("/runs", json=body)
        assert answer.status_code == 201, answer.text
        run_id: str = answer.json()["runId"]
        return run_id

    async def log(self, run_id: str) -> list[dict[str, Any]]:
        """All events of a run, once it has ended."""
        events: list[dict[str, Any]] = []
        async with asyncio.timeout(SECONDS):
            while True:
                after = f"&afterSequence={events[-1]['sequence']}" if events else ""
                answer = await self.http.get(f"{path_of(run_id)}/events/poll?timeout=10{after}")
                assert answer.status_code == 200, answer.text
                page = answer.json()
                events += page["events"]
                if page["isTerminal"]:
                    return events

    async def ended(self, workflow_id: str, inputs: Mapping[str, Any] | None = None, **members: Any) -> str:
        """Create a run and wait for its end; gives its id."""
        run_id = await self.create(workflow_id, inputs, **members)
        await self.log(run_id)
        return run_id

    async def until(self, run_id: str, event_type: str) -> dict[str, Any]:
        """Wait for an event of a run."""
        async for frame in self.frames(run_id):
            if frame.event == event_type:
                found: dict[str, Any] = frame.json
                return found
        raise AssertionError(f"{run_id} ended without {event_type}")

    async def frames(
        self, run_id: str, query: str = "streamMode=debug", after: int | None = None
    ) -> AsyncIterator[Frame]:
        """The frames of a run, as they come."""
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with (
            asyncio.timeout(SECONDS),
            self.http.stream("GET", f"{path_of(run_id)}/events?{query}", headers=headers) as answer,
        ):
            assert answer.status_code == 200
            async for frame in frames_of(answer):
                yield frame


async def frames_of(answer: httpx.Response) -> AsyncIterator[Frame]:
    """The frames of a stream, as they come; comments are passed over."""
    lines: list[tuple[str, str]] = []
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            lines.append((name, value))
        elif told := dict(lines):
            data = "\n".join(value for name, value in lines if name == "data")
            lines.clear()
            if "data" in told:
                yield Frame(told.get("id"), told["event"], data.encode())


@contextlib.asynccontextmanager
async def host_process(command: str, settings: str, folder: Path) -> AsyncIterator[HostProcess]:
    """A host of its own, which has to end without a fault in its log unless it was ended before.

    Args:
        command: ``dev`` or ``serve``.
        settings: Text of its settings, without keys.
        folder: Where they are written.
    """
    file = folder / f"{command}.toml"
    file.write_text(f"{settings}\n{keys()}", encoding="utf-8")
    async with (
        serving(command, "--config", str(file)) as running,
        httpx.AsyncClient(
            base_url=running.facts["host"],
            headers={"Authorization": f"Bearer {ACME}"},
            timeout=SECONDS,
            limits=MANY,
        ) as http,
    ):
        yield HostProcess(running, http)
        if running.process.returncode is None:
            done = await running.end(signal.SIGTERM)
            assert (done.status, done.out) == (0, b"")
            faults = [line for line in done.err.splitlines() if " ERROR " in line or '"level": "error"' in line]
            assert not faults, faults[0][:5000]
