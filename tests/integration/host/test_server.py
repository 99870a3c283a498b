"""The host on a socket: where it listens, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from host import server
from host.server import BindError, Listening, listening
from host.surface import Surface
from tests.support.patience import PATIENCE

LIMIT = PATIENCE


class Held:
    """An application whose requests wait until a test lets them go on."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.cancelled = asyncio.Event()
        app = FastAPI(openapi_url=None)
        app.add_api_route("/held", self._held)
        app.add_api_route("/stream", self._stream)
        self.app = Surface(app, beside=(), stopping=self.stopping)

    async def _held(self) -> str:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "done"

    async def _stream(self) -> StreamingResponse:
        async def frames() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            self.begun.set()
            await self.go_on.wait()
            yield b"data: 2\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")


@contextlib.asynccontextmanager
async def serving(held: Held, bind: str = "127.0.0.1:0") -> AsyncIterator[tuple[Listening, httpx.AsyncClient]]:
    async with (
        asyncio.timeout(LIMIT),
        httpx.AsyncClient(timeout=LIMIT) as client,
        listening(held.app, bind=bind, stopping=held.stopping) as running,
    ):
        client.base_url = httpx.URL(running.address)
        yield running, client


async def test_port_0_takes_a_free_one_that_is_told():
    async with serving(Held()) as (running, client):
        assert running.address.startswith("http://127.0.0.1:")
        assert not running.address.endswith(":0")
        answer = await client.get("/none")
    assert answer.status_code == 404
    assert "server" not in answer.headers
    assert answer.headers["openwop-version"] == "2.0"


async def test_an_address_of_ipv6_is_told_as_one():
    async with serving(Held(), "[::1]:0") as (running, client):
        assert running.address.startswith("http://[::1]:")
        assert (await client.get("/none")).status_code == 404


@pytest.mark.parametrize("listens", [True, False])
async def test_a_port_that_is_taken_is_named_with_the_setting(listens):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if listens:
            taken.listen()
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BindError) as caught:
            async with serving(Held(), bind):
                pass
    assert str(caught.value).startswith(f"host.bind: cannot listen at {bind} (")


@pytest.mark.parametrize("bind", ["host.invalid:8080", "203.0.113.1:0", f"{'a' * 64}.invalid:0"])
async def test_an_address_that_is_not_of_this_machine_is_named_with_the_setting(bind):
    with pytest.raises(BindError) as caught:
        async with serving(Held(), bind):
            pass
    assert str(caught.value).startswith(f"host.bind: cannot listen at {bind} (")


async def test_a_request_that_is_under_way_ends_and_nothing_more_is_accepted(monkeypatch):
    monkeypatch.setattr(server, "GRACE", int(LIMIT))
    held = Held()
    async with serving(held) as (running, client):
        asked = asyncio.create_task(client.get("/held"))
        await held.begun.wait()
        running.stop()
        assert held.stopping.is_set()
        with pytest.raises(httpx.ConnectError):
            await _ask_until_refused(running.address)
        held.go_on.set()
        answer = await asked
    assert (answer.status_code, answer.json()) == (200, "done")


async def test_what_does_not_end_in_time_is_given_up_and_told_so(monkeypatch):
    monkeypatch.setattr(server, "GRACE", 0)
    held = Held()
    async with serving(held) as (running, client):
        asked = asyncio.create_task(client.get("/held"))
        await held.begun.wait()
        running.stop()
        answer = await asked
    assert answer.status_code == 503
    assert answer.json()["error"] == "service_unavailable"
    assert int(answer.headers["retry-after"]) > 0
    assert held.cancelled.is_set()


async def test_a_stream_that_does_not_end_in_time_is_cut_without_a_complaint(monkeypatch, caplog):
    monkeypatch.setattr(server, "GRACE", 0)
    held = Held()
    got = bytearray()
    async with serving(held) as (running, client):

        async def read() -> None:
            async with client.stream("GET", "/stream") as answer:
                async for piece in answer.aiter_bytes():
                    got.extend(piece)

        reading = asyncio.create_task(read())
        await held.begun.wait()
        running.stop()
        with pytest.raises(httpx.RemoteProtocolError):
            await reading
    assert got == b"data: 1\n\n"
    assert "Exception" not in caplog.text
    assert "callable" not in caplog.text


async def test_signals_stay_with_whoever_owns_the_process():
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with serving(Held()):
        assert {number: signal.getsignal(number) for number in before} == before


async def test_the_context_ends_with_its_body_whatever_that_raised():
    held = Held()
    with pytest.raises(ZeroDivisionError):
        async with serving(held) as (running, _):
            raise ZeroDivisionError
    assert held.stopping.is_set()
    with pytest.raises(httpx.ConnectError):
        await _ask_until_refused(running.address)


async def _ask_until_refused(address: str) -> None:
    while True:
        # A connection for each: those that are open are still served.
        async with httpx.AsyncClient() as client:
            # One that comes in the very moment of the end is let in, and then cut off.
            with contextlib.suppress(httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                await client.get(address)
