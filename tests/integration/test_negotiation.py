"""On what terms servers answered, as the log of a run tells it: of the answers alone, however warm the worker was."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from temporalio.client import Client

from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.records import records
from tests.support.fake_server import FakeServer, Handler, Reply, error_reply, modern
from tests.support.graphs import node, workflow
from tests.support.legacy_server import REFUSALS, LegacyServer
from tests.support.live_log import LiveLog, told
from tests.support.mcp_client import replies
from tests.support.pack import Pack, log_of, pack_worker, settings_for, types

CALL = workflow([node("a", config={"serverId": "fake", "name": "echo"})])
HEALTH = workflow([node("a", "community.mcp.server-health", config={"serverId": "fake"})])


@contextlib.asynccontextmanager
async def setting(client: Client, handler: Handler, **server: Any) -> AsyncIterator[tuple[Pack, FakeServer]]:
    async with FakeServer(handler) as fake, pack_worker(client, settings_for(fake.url, server=server)) as pack:
        yield pack, fake


def decided(log: Sequence[RunEvent], fake: FakeServer) -> list[dict[str, Any]]:
    """What the log tells of this server's terms, beside when and of whom."""
    found = [event for event in log if event.type == "negotiation.decided"]
    said: list[dict[str, Any]] = [json.loads(event.payload) for event in found]
    digest = hashlib.sha256(fake.url.removesuffix("/mcp").encode()).hexdigest()
    for event, payload in zip(found, said, strict=True):
        assert event.node_id == "a"
        assert payload.pop("at") == event.timestamp
        assert payload.pop("peerDigest") == digest
        assert payload.pop("protocol") == "mcp"
    return said


def accepted(version: str, floor: str = "2026-07-28") -> dict[str, str]:
    return {"outcome": "accepted", "version": version, "floor": floor, "reason": "ok"}


REFUSED = {"outcome": "refused", "floor": "2026-07-28", "requested": "2026-07-28", "reason": "below-floor"}
MODERN = accepted("2026-07-28")
UNAUTHENTICATED = {"outcome": "refused", "floor": "2026-07-28", "reason": "unauthenticated"}
OLD = {"minimum_revision": "2025-06-18"}
ERROR = modern({"tools/call": lambda request: error_reply(request, -32000, "no")})


def refusing(code: int, status: int = 200, data: Any = None) -> Handler:
    """Answers everything with an error."""
    return replies(lambda request: error_reply(request, code, "no", data=data, status=status))


@pytest.mark.parametrize(
    ("handler", "server", "says"),
    [
        (modern(), {}, MODERN),
        (modern(), OLD, accepted("2026-07-28", "2025-06-18")),
        (ERROR, {}, MODERN),
        (ERROR, OLD, accepted("2026-07-28", "2025-06-18")),
        (refusing(-32601, 404), {}, MODERN),
        (LegacyServer(), OLD, accepted("2025-11-25", "2025-06-18")),
        (
            LegacyServer(results={"tools/call": lambda request: error_reply(request, -32602, "no")}),
            OLD,
            accepted("2025-11-25", "2025-06-18"),
        ),
        (LegacyServer(), {}, REFUSED),
        (replies(Reply(status=401)), {}, UNAUTHENTICATED),
        (refusing(-32000, 401), {}, UNAUTHENTICATED),
        (replies(Reply(status=401)), OLD, {**UNAUTHENTICATED, "floor": "2025-06-18"}),
    ],
)
async def test_two_runs_on_one_worker_tell_the_same(client, handler, server, says):
    async with setting(client, handler, **server) as (pack, fake):
        for _ in "cold", "warm":
            log, _ = await pack.run(CALL)
            assert decided(log, fake) == [says]


@pytest.mark.parametrize(
    "handler",
    [
        replies(Reply(status=503)),
        replies(REFUSALS["text"]()),
        refusing(-32601),
        refusing(-32603, 500),
        refusing(-32000, 403),
        # It refuses the revision that it names.
        refusing(-32022, 400, {"supported": ["2026-07-28"], "requested": "2026-07-28"}),
    ],
)
async def test_what_need_not_come_from_a_server_that_took_the_revision_is_no_outcome(client, handler):
    async with setting(client, handler, retry={"attempts": 1}) as (pack, fake):
        log, _ = await pack.run(CALL)
        assert types(log)[-1] == "run.failed"
        assert decided(log, fake) == []


async def test_the_record_of_an_older_server_is_of_the_revision_on_the_wire(client):
    async with setting(client, LegacyServer(), **OLD) as (pack, _):
        _, found = await pack.run(CALL)
        [call] = records(found[0].events)
        assert call.revision == "2025-11-25"


async def test_a_health_tells_what_came_of_it_and_claims_no_revision_that_was_not_spoken(client):
    discovered = b'{"supportedVersions":["2025-11-25"]}'
    async with setting(client, modern({"server/discover": discovered})) as (pack, fake):
        log, found = await pack.run(HEALTH)
        assert decided(log, fake) == [REFUSED]
        assert records(found[0].events)[0].revision == "2026-07-28"
    async with setting(client, replies(Reply(status=503))) as (pack, fake):
        log, found = await pack.run(HEALTH)
        assert decided(log, fake) == []
        [call] = records(found[0].events)
        assert call.result.raw == b'{"state":"unreachable"}'
        assert call.revision == ""
        assert {"revision", "http-status"}.isdisjoint(call.result.provenance)


async def test_an_answer_that_is_too_large_to_keep_was_an_answer_all_the_same(client):
    large = b'{"content":[{"type":"text","text":"' + b"x" * 2000 + b'"}]}'
    async with FakeServer(modern({"tools/call": large})) as fake:
        settings = settings_for(fake.url, limits={"result_bytes": 1024})
        async with pack_worker(client, settings) as pack:
            log, _ = await pack.run(CALL)
        assert types(log)[2:4] == ["negotiation.decided a", "node.failed a"]
        assert decided(log, fake) == [MODERN]


async def test_the_live_run_would_tell_the_same(client, monkeypatch):
    live = LiveLog(monkeypatch)
    async with setting(client, LegacyServer(), **OLD) as (pack, _):
        log, found = await pack.run(CALL)
        assert live.of(found) == told(log) == told(log_of(found))
