"""Real workers of the pack for tests: settings, a worker, runs on it, and what Temporal recorded of them."""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import temporalio.api.common.v1
import temporalio.api.failure.v1
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle, WorkflowHistory

from commands.running import running_worker
from openwop_mcp import jsontext
from openwop_mcp.ceilings import INLINE_BYTES
from openwop_mcp.config import Limits, Settings
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.engines import ENGINE_VERSION
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.limits import limited
from openwop_mcp.runs.projection import Projector
from openwop_mcp.runs.start import Options, Owner, RunStart
from tests.support.tool_sessions import types
from workflows.client import histories, mint_run_id, start_run

__all__ = (
    "SERVER",
    "Pack",
    "activity_results",
    "chain",
    "error_of",
    "failed_attempts",
    "log_of",
    "pack_worker",
    "payload_of",
    "scheduled",
    "settings_for",
    "toml_for",
    "types",
)

SERVER = "fake"
"""Server id of the server that `settings_for` is given."""

HEARTBEAT = 10.0
"""Seconds, as by default. Tests that lose a worker give less."""
"""Heartbeat timeout of runs in tests: the least that an attempt's beats keep up with."""


def settings_for(
    url: str,
    *,
    tools: Mapping[str, Any] | None = None,
    server: Mapping[str, Any] | None = None,
    servers: Mapping[str, Any] | None = None,
    **tables: Any,
) -> Settings:
    """Settings with one server.

    Args:
        url: Address of the server with the id `fake`.
        tools: Its `tools` tables.
        server: More of its keys, such as `timeouts` and `retry`.
        servers: Other servers, by id.
        tables: Other tables of the settings, such as `worker={"tenant": "acme"}`.
    """
    return Settings.model_validate(_tables(url, tools, server, servers, tables))


def _tables(
    url: str,
    tools: Mapping[str, Any] | None,
    server: Mapping[str, Any] | None,
    servers: Mapping[str, Any] | None,
    tables: Mapping[str, Any],
) -> dict[str, Any]:
    one = {"url": url, "network": "private", "tools": tools or {}, **(server or {})}
    return {**tables, "servers": {SERVER: one, **(servers or {})}}


def toml_for(address: str, url: str, *, tools: Mapping[str, Any] | None = None, **tables: Mapping[str, Any]) -> str:
    """The same as a settings file, for a worker process. JSON values of one line are TOML values as well."""
    settings = _tables(url, tools, None, None, {**tables, "temporal": {"address": address}})
    lines: list[str] = []

    def write(path: tuple[str, ...], table: Mapping[str, Any]) -> None:
        if path:
            lines.append(f"[{'.'.join(json.dumps(key) for key in path)}]")
        lines.extend(f"{key} = {json.dumps(value)}" for key, value in table.items() if not isinstance(value, dict))
        for key, value in table.items():
            if isinstance(value, dict):
                write((*path, key), value)

    write((), settings)
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Pack:
    """A running worker of the pack, and the way to start runs on it."""

    client: Client
    task_queue: str
    settings: Settings | None = None

    async def start(
        self,
        definition: Mapping[str, Any] | bytes,
        inputs: bytes = b"{}",
        *,
        tenant: str = "acme",
        run_id: str | None = None,
        heartbeat_timeout: float = HEARTBEAT,
        configurable: bytes | None = None,
        engine_version: int = ENGINE_VERSION,
    ) -> WorkflowHandle[Any, Any]:
        """Start a run of a definition; with a `configurable` it has limits."""
        text = definition if isinstance(definition, bytes) else json.dumps(definition).encode()
        parsed = parse(text, source="test", node_types=REGISTRY)
        classes = {} if self.settings is None else self.settings.server_classes
        options = _options(self.client, heartbeat_timeout, classes)
        subject = {"issuer": "urn:test", "subjectId": "dev", "tenant": tenant, "lane": "api-key", "kind": "user"}
        start = RunStart(
            run_id=run_id or mint_run_id(tenant),
            definition=text,
            owner=Owner(tenant, subject),
            options=options if configurable is None else limited(options, parsed, configurable),
            configurable=configurable,
            engine_version=engine_version,
        )
        return await start_run(self.client, start, parsed, inputs, task_queue=self.task_queue)

    async def run(
        self, definition: Mapping[str, Any] | bytes, inputs: bytes = b"{}", **options: Any
    ) -> tuple[list[RunEvent], list[WorkflowHistory]]:
        """Run a definition to its end, however that is; its log, and the histories that it comes from."""
        handle = await self.start(definition, inputs, **options)
        return await self.end(handle)

    async def end(self, handle: WorkflowHandle[Any, Any]) -> tuple[list[RunEvent], list[WorkflowHistory]]:
        """Wait for a run's end; its log and its histories."""
        with contextlib.suppress(WorkflowFailureError):
            await handle.result()
        found = await chain(self.client, handle.id)
        return log_of(found), found


def _options(client: Client, heartbeat_timeout: float, classes: Mapping[str, str]) -> Options:
    if client.data_converter.external_storage is None:
        return Options(heartbeat_timeout, classes=classes)
    return Options(heartbeat_timeout, INLINE_BYTES, Limits().call_bytes, classes=classes)


@contextlib.asynccontextmanager
async def pack_worker(
    client: Client, settings: Settings, *, task_queue: str | None = None, workflows: Sequence[type] = ()
) -> AsyncIterator[Pack]:
    """A worker as `worker.py run` makes it, in this process, on a task queue of its own."""
    queue = task_queue or f"pack-{uuid.uuid4().hex}"
    own = settings.worker.model_copy(update={"task_queue": queue})
    settings = settings.model_copy(update={"worker": own})
    async with running_worker(client, settings, workflows):
        yield Pack(client, queue, settings)


async def chain(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    """The histories of a workflow, through every continue-as-new."""
    return [history async for history in histories(client, workflow_id)]


def log_of(found: Sequence[WorkflowHistory]) -> list[RunEvent]:
    """The event log that a run's histories project to."""
    projector = Projector(found[0].workflow_id)
    return [event for history in found for event in projector.project(history.events)]


def payload_of(log: Sequence[RunEvent], event_type: str) -> Any:
    """What the only event of a type says, decoded."""
    [payload] = [event.payload for event in log if event.type == event_type]
    return jsontext.decode(payload)


def _events(found: Sequence[WorkflowHistory] | WorkflowHistory) -> list[HistoryEvent]:
    whole = [found] if isinstance(found, WorkflowHistory) else found
    return [event for history in whole for event in history.events]


def scheduled(found: Sequence[WorkflowHistory] | WorkflowHistory) -> list[str]:
    """Ids of the activities that were scheduled, in order."""
    return [
        event.activity_task_scheduled_event_attributes.activity_id
        for event in _events(found)
        if event.HasField("activity_task_scheduled_event_attributes")
    ]


def activity_results(
    found: Sequence[WorkflowHistory] | WorkflowHistory,
) -> list[temporalio.api.common.v1.Payload]:
    """The payloads that history holds as results of activities: what was recorded, before anything decodes it."""
    return [
        payload
        for event in _events(found)
        if event.HasField("activity_task_completed_event_attributes")
        for payload in event.activity_task_completed_event_attributes.result.payloads
    ]


def failed_attempts(
    found: Sequence[WorkflowHistory] | WorkflowHistory,
) -> list[temporalio.api.failure.v1.ApplicationFailureInfo]:
    """What failed activities left behind."""
    return [
        event.activity_task_failed_event_attributes.failure.application_failure_info
        for event in _events(found)
        if event.HasField("activity_task_failed_event_attributes")
    ]


def error_of(log: Sequence[RunEvent]) -> dict[str, Any]:
    """The error that a failed run's last event tells."""
    assert log[-1].type == "run.failed", types(log)
    error: dict[str, Any] = jsontext.decode(log[-1].payload)["error"]
    return error
