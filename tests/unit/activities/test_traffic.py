"""Who waits for room in a worker, for how long, and what is said of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from activities import traffic
from activities.traffic import LINE, Admission
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    CircuitOpenError,
    ConnectError,
    HttpStatusError,
    InterruptedCallError,
    McpError,
    PostponedError,
    RateLimitedError,
    TimeLimitError,
)
from openwop_mcp.traffic import Full, Pass
from tests.support.pack import SERVER, settings_for

TENANT = "acme"

LATE = 30.0
"""Seconds by which a busy machine may be late."""


def admission(*, worker: dict[str, Any] | None = None, **server: Any) -> Admission:
    return Admission(settings_for("http://127.0.0.1:1/mcp", server=server, worker=worker or {}))


def passed(given: Pass | Full) -> Pass:
    assert isinstance(given, Pass)
    return given


def waits(at: Admission, tenant: str = TENANT) -> asyncio.Task[Pass]:
    full = at.enter(SERVER, tenant)
    assert isinstance(full, Full)
    return asyncio.get_running_loop().create_task(at.wait(SERVER, tenant, full))


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_room_is_given_to_who_has_waited_for_it_longest():
    at = admission(limits={"in_flight": 1})
    under_way = passed(at.enter(SERVER, TENANT))
    first, second = waits(at), waits(at)
    await settle()
    at.leave(under_way)
    assert isinstance(at.enter(SERVER, TENANT), Full)
    at.leave(await first)
    at.leave(await second)
    at.leave(passed(at.enter(SERVER, TENANT)))


async def test_a_probe_that_has_a_connection_closes_the_circuit_and_probes_no_more():
    at = admission(circuit={"failures": 1, "rest": 0.1})
    lost = ConnectError("no connection")
    at.leave(passed(at.enter(SERVER, TENANT)), lost)
    while isinstance(given := at.enter(SERVER, TENANT), Full):
        assert given.wait is not None
        await asyncio.sleep(given.wait)
    assert given.probe
    given = at.connected(given)
    other = passed(at.enter(SERVER, TENANT))
    at.leave(other, lost)
    [stands] = at.snapshot()
    assert stands.circuit == "open"
    # Its end tells nothing of a circuit that has opened since.
    at.leave(given)
    [stands] = at.snapshot()
    assert (stands.circuit, stands.in_flight) == ("open", 0)


async def test_who_waits_for_its_tenant_keeps_no_other_tenant_from_the_server():
    at = admission(limits={"in_flight": 2}, worker={"tenant_activities": 1})
    under_way, other = passed(at.enter(SERVER, TENANT)), passed(at.enter(SERVER, "globex"))
    mine, third = waits(at), waits(at, "initech")
    await settle()
    at.leave(other)
    at.leave(await third)
    assert not mine.done()
    at.leave(under_way)
    at.leave(await mine)


async def test_who_is_cancelled_in_the_moment_in_which_it_is_let_in_gives_its_place_back():
    at = admission(limits={"in_flight": 1})
    under_way = passed(at.enter(SERVER, TENANT))
    waiting = waits(at)
    await settle()
    at.leave(under_way)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    at.leave(passed(at.enter(SERVER, TENANT)))


async def test_who_has_waited_in_vain_is_sent_away_and_leaves_the_line(monkeypatch):
    monkeypatch.setattr(traffic, "MOMENT", 0.05)
    at = admission(limits={"in_flight": 1, "patience": 60})
    under_way = passed(at.enter(SERVER, TENANT))
    with pytest.raises(PostponedError) as caught:
        await waits(at)
    error = caught.value
    assert error.delivery is Delivery.NOT_SENT
    assert error.facts["setting"] == "servers.fake.limits.in_flight"
    assert error.facts["patience"] == 60
    assert 0 <= error.facts["spread"] <= 1
    assert "retryAfter" not in error.facts
    at.leave(under_way)
    # Nobody is left who would be given the place.
    at.leave(passed(at.enter(SERVER, TENANT)))
    (seen,) = at.snapshot()
    assert (seen.in_flight, seen.postponed, seen.circuit) == (0, 1, "closed")


async def test_no_more_wait_at_once_than_a_part_of_the_worker(monkeypatch):
    monkeypatch.setattr(traffic, "MOMENT", 60.0)
    at = admission(limits={"in_flight": 1})
    passed(at.enter(SERVER, TENANT))
    line = [waits(at) for _ in range(LINE)]
    await settle()
    with pytest.raises(PostponedError):
        await waits(at)
    for one in line:
        one.cancel()
    await asyncio.gather(*line, return_exceptions=True)


async def test_nobody_waits_at_its_place_for_what_takes_longer_than_a_moment(monkeypatch):
    monkeypatch.setattr(traffic, "MOMENT", 2 * LATE)
    at = admission(limits={"rate": 0.01})
    at.leave(passed(at.enter(SERVER, TENANT)))
    with pytest.raises(PostponedError) as caught:
        await asyncio.wait_for(waits(at), LATE)
    assert caught.value.facts["retryAfter"] == pytest.approx(200, abs=LATE)


async def test_an_open_circuit_is_waited_for_elsewhere_and_told_once(caplog):
    caplog.set_level(logging.WARNING, traffic.__name__)
    at = admission(circuit={"failures": 2, "rest": 300})
    for given in [passed(at.enter(SERVER, TENANT)) for _ in range(5)]:
        at.leave(given, ConnectError("no connection"))
    for _ in range(3):
        with pytest.raises(CircuitOpenError) as caught:
            await waits(at)
        assert caught.value.code == "upstream_unavailable"
        assert caught.value.facts["retryAfter"] == pytest.approx(300, abs=LATE)
    at.heard(SERVER)
    at.leave(passed(at.enter(SERVER, TENANT)))
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "(setting servers.fake.circuit)" in said[0]
    assert "can be reached again" in said[1]


UNSPELLED = ConnectError("no name that a host can have")
UNSPELLED.retryable = False


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ConnectError("refused"), "open"),
        (TimeLimitError("no answer", limit="connect", seconds=5, delivery=Delivery.NOT_SENT), "open"),
        (TimeLimitError("no answer", limit="first_byte", seconds=5, delivery=Delivery.UNKNOWN), "closed"),
        (HttpStatusError("busy", status=500, delivery=Delivery.UNKNOWN), "closed"),
        (InterruptedCallError("cancelled", cancelled=True, delivery=Delivery.UNKNOWN), "closed"),
        (UNSPELLED, "closed"),
        (asyncio.CancelledError(), "closed"),
        (ValueError(), "closed"),
    ],
)
async def test_only_a_connection_that_is_not_had_opens_a_circuit(error, state):
    at = admission(circuit={"failures": 1, "rest": 30})
    at.leave(passed(at.enter(SERVER, TENANT)), error)
    (seen,) = at.snapshot()
    assert seen.circuit == state


def asked_for(seconds: float | None, status: int) -> McpError:
    if status == 429:
        return RateLimitedError("too many requests", retry_after=seconds)
    return HttpStatusError("not now", status=status, delivery=Delivery.UNKNOWN, retry_after=seconds)


@pytest.mark.parametrize(
    ("status", "seconds", "held"),
    [(429, 400, 400), (503, 400, 400), (429, 86_400, 1000), (429, None, 0), (500, 400, 0), (301, 400, 0)],
)
async def test_a_server_is_left_alone_for_as_long_as_it_says_and_no_longer_than_one_wait_may_take(
    status, seconds, held
):
    at = admission(retry={"max_wait": 1000})
    at.leave(passed(at.enter(SERVER, TENANT)), asked_for(seconds, status))
    given = at.enter(SERVER, TENANT)
    if not held:
        passed(given)
        return
    assert isinstance(given, Full)
    assert given.wait == pytest.approx(held, abs=LATE)
    with pytest.raises(PostponedError, match="Retry-After"):
        await at.wait(SERVER, TENANT, given)
