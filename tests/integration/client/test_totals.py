"""The total limit bounds a call and all that it takes, and what fails beside a call says nothing of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
import uvloop

from openwop_mcp.client import CallOptions, McpClient
from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._wire import Incoming, OnMessage, Outgoing, StaleTermsError, Terms
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectError, ConnectionLostError, HttpStatusError, McpError, TimeLimitError
from tests.support.fake_server import Handler, Reply, Request
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import ARGUMENTS, CLIENT_INFO, connected, json_reply, replies

OLDEST = {"floor": "2025-03-26"}
SILENT = Reply(stall="head")
BROKEN = json_reply(b"{}", abort_after=1)
LONG = {"connect": 60.0, "first_byte": 60.0, "idle": 60.0}
"""Limits beside the total one: what waited for these would take twice as long as a test does for a prompt end."""
PROMPT = 30.0
"""Seconds in which that end has come, also on a machine that is busy with much else."""


def _but(replaced: Mapping[str, Reply]) -> Handler:
    """A server of an older revision, with other replies to some methods."""
    old = LegacyServer()

    async def handle(request: Request) -> Reply | None:
        method = request.json.get("method") if request.body else request.method
        return replaced[method] if method in replaced else await old(request)

    return handle


async def _failure(client: McpClient, seconds: float, options: CallOptions | None = None) -> McpError:
    with pytest.raises(McpError) as caught:
        async with asyncio.timeout(seconds):
            await client.call_tool("t", ARGUMENTS, options or CallOptions())
    return caught.value


async def test_the_body_of_a_refusal_is_not_waited_for_past_the_total_limit() -> None:
    refusal = Reply(status=404, headers=[("Content-Type", "text/plain")], body=b"no", stall="body")
    async with connected(replies(refusal), **LONG, total=3.0) as (client, _):
        error = await _failure(client, PROMPT)
    assert isinstance(error, HttpStatusError)
    assert (error.status, error.facts["excerpt"]) == (404, "no")


async def test_calls_that_wait_for_the_agreement_of_others_end_within_their_own_limits() -> None:
    async with connected(_but({"server/discover": SILENT}), options=OLDEST, **LONG, total=3.0) as (client, server):
        async with asyncio.timeout(PROMPT):
            ends = await asyncio.gather(*(client.call_tool("t", ARGUMENTS) for _ in range(20)), return_exceptions=True)
        assert {(type(end), end.delivery) for end in ends} == {(TimeLimitError, Delivery.NOT_SENT)}
        assert {request.json["method"] for request in server.requests} == {"server/discover"}


async def test_the_time_that_an_agreement_took_is_not_had_again() -> None:
    now = [0.0]
    others = _but({"tools/call": SILENT})

    async def handler(request: Request) -> Reply | None:
        if request.body and request.json.get("method") == "server/discover":
            now[0] += 58.0
        return await others(request)

    options = {**OLDEST, "clock": lambda: now[0]}
    async with connected(handler, options=options, **LONG, total=60.0) as (client, _):
        # Had again, it would be a minute.
        error = await _failure(client, PROMPT)
    assert isinstance(error, TimeLimitError)
    assert error.delivery is Delivery.UNKNOWN


async def test_a_server_that_does_not_take_the_end_of_a_handshake_holds_no_call_past_its_limit() -> None:
    handler = _but({"notifications/initialized": SILENT})
    async with connected(handler, options=OLDEST, **LONG, total=1.0) as (client, _):
        error = await _failure(client, PROMPT)
        assert isinstance(error, TimeLimitError)
        assert error.delivery is Delivery.NOT_SENT


async def test_a_call_whose_handshake_broke_was_not_sent() -> None:
    async with connected(_but({"initialize": BROKEN}), options=OLDEST) as (client, _):
        error = await _failure(client, PROMPT)
    assert isinstance(error, ConnectionLostError)
    assert error.delivery is Delivery.NOT_SENT


async def test_a_call_that_was_refused_stays_so_where_no_other_terms_can_be_had() -> None:
    old = LegacyServer()
    broken = False

    async def handle(request: Request) -> Reply | None:
        if broken and request.body and request.json.get("method") == "initialize":
            return BROKEN
        return await old(request)

    async with connected(handle, options=OLDEST) as (client, _):
        await client.call_tool("t", ARGUMENTS)
        old.live.clear()
        broken = True
        error = await _failure(client, PROMPT)
    assert isinstance(error, ConnectionLostError)
    assert error.delivery is Delivery.NOT_PROCESSED


class _Dying:
    """A wire to processes, the first of which end before they answer."""

    http = False
    origin = "stdio:dying"
    context = 0

    def __init__(self, deaths: int, *, after: int = 0) -> None:
        self.on_unmatched: OnMessage | None = None
        self.deaths = deaths
        self.after = after
        self.generation = 1
        self.asked: list[tuple[str, int]] = []

    async def open(self, limits: Timeouts) -> int:
        return self.generation

    async def exchange(self, out: Outgoing, *, limits: Timeouts, on_message: OnMessage | None = None) -> Incoming:
        # Whoever waited meanwhile has terms of a process that is gone.
        await asyncio.sleep(0)
        if self.deaths and len(self.asked) >= self.after and out.terms.generation == self.generation:
            self.deaths -= 1
            self.generation += 1
        self.asked.append((out.method, out.terms.generation))
        if out.terms.generation != self.generation:
            raise StaleTermsError
        result = b'{"resultType":"complete","supportedVersions":["2026-07-28"],"content":[]}'
        return Incoming(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (out.request_id, result))

    def attend(self, terms: Terms) -> None: ...

    async def tell(self, message: bytes, terms: Terms, limits: Timeouts) -> None: ...

    async def notify(self, message: bytes, terms: Terms) -> None: ...

    async def end(self, terms: Terms) -> None: ...

    async def close(self) -> None: ...


def _client_of(wire: _Dying) -> McpClient:
    limits = Timeouts(connect=5, first_byte=5, idle=5, total=5)
    return McpClient(wire, timeouts=limits, client_info=CLIENT_INFO)


@pytest.mark.parametrize("after", [0, 1, 2])
async def test_calls_go_to_the_next_process_where_one_ends_before_they_are_sent(after: int) -> None:
    wire = _Dying(1, after=after)
    client = _client_of(wire)
    ends = await asyncio.gather(*(client.call_tool("t", ARGUMENTS) for _ in range(5)))
    assert {end.revision for end in ends} == {"2026-07-28"}
    assert wire.generation == 2


async def test_processes_that_all_end_before_they_agree_end_a_call_that_was_not_sent() -> None:
    wire = _Dying(100)
    error = await _failure(_client_of(wire), PROMPT)
    assert isinstance(error, ConnectError)
    assert error.delivery is Delivery.NOT_SENT
    assert {method for method, _ in wire.asked} == {"server/discover"}
    assert len(wire.asked) < 10


def test_a_limit_that_is_over_at_once_is_one_on_every_event_loop() -> None:
    limits = Timeouts(connect=1e-9, first_byte=1e-9, idle=1e-9, total=1e-9)

    async def late() -> None:
        async with Deadline(limits) as deadline:
            deadline.sending()
            deadline.alive()
            await asyncio.Event().wait()

    for run in (asyncio.run, uvloop.run):
        with pytest.raises(TimeLimitError):
            run(late())
