"""Requests with a key: two hosts, one act, one answer, whatever becomes of who was asked first."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from host import records
from host.errors import HostError
from host.records import Keyed, Records
from host.web import Answer
from openwop_mcp.embedded import EmbeddedTemporal

DONE = Answer(200, b'{"n": 1.10, "a":[1e400] }', {"Location": "/here"})


class Acts:
    """An act, counted."""

    def __init__(self, answer: Answer | Exception = DONE) -> None:
        self.count = 0
        self.answer = answer
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self) -> Answer:
        self.count += 1
        self.begun.set()
        await self.may_end.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
async def both(client: Client, temporal: EmbeddedTemporal) -> tuple[Records, Records]:
    """The records of two hosts."""
    return Records(client), Records(await Client.connect(temporal.address))


def request(body: bytes = b"{}", key: str | None = None) -> Keyed:
    keyed = Keyed.of(key or str(uuid.uuid4()), tenant="acme", operation="cancelRun", body=body, target="acme/x")
    assert keyed is not None
    return keyed


async def refusal(asked: Awaitable[Answer]) -> HostError:
    with pytest.raises(HostError) as caught:
        await asked
    return caught.value


async def test_without_a_key_every_request_is_carried_out(both: tuple[Records, Records]) -> None:
    act = Acts()
    for one in both:
        assert await one.once(None, act) is DONE
    assert act.count == 2


async def test_of_many_at_once_one_acts_and_the_others_give_its_answer(both: tuple[Records, Records]) -> None:
    act, keyed = Acts(), request()
    answers = await asyncio.gather(*(one.once(keyed, act) for one in both * 4))
    assert act.count == 1
    assert {answer.body for answer in answers} == {DONE.body}
    assert {answer.headers["Location"] for answer in answers} == {"/here"}
    assert sorted(answer.headers.get(records.REPLAYED, "") for answer in answers) == ["", *["true"] * 7]


async def test_who_comes_while_the_request_is_under_way_is_told_so_after_a_while(
    both: tuple[Records, Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "PATIENCE", 0.2)
    act, keyed = Acts(), request()
    act.may_end.clear()
    first = asyncio.create_task(both[0].once(keyed, act))
    await act.begun.wait()
    refused = await refusal(both[1].once(keyed, act))
    assert (refused.status, refused.code) == (409, "idempotency_in_flight")
    assert refused.retry_after
    act.may_end.set()
    assert await first is DONE
    assert (await both[1].once(keyed, act)).body == DONE.body
    assert act.count == 1


async def test_where_a_host_died_the_request_is_carried_out_by_one_who_comes_later(
    both: tuple[Records, Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, keyed = Acts(), request()
    lost.may_end.clear()
    # For that host alone: another one that is merely slow is not dead.
    with monkeypatch.context() as patch:
        patch.setattr(records, "LAPSES", timedelta(seconds=1))
        died = asyncio.create_task(both[0].once(keyed, lost))
        await lost.begun.wait()
    died.cancel()
    act = Acts()

    async def insisting(one: Records) -> Answer:
        while True:
            with contextlib.suppress(HostError):
                return await one.once(keyed, act)

    answers = await asyncio.gather(*(insisting(one) for one in both * 2))
    assert act.count == 1
    assert {answer.body for answer in answers} == {DONE.body}


@pytest.mark.parametrize("code", ["run_terminal", "not_found"])
async def test_a_refusal_that_stays_is_kept(both: tuple[Records, Records], code: str) -> None:
    act, keyed = Acts(HostError(code, "no")), request()
    assert (await refusal(both[0].once(keyed, act))).code == code
    again = await both[1].once(keyed, act)
    assert (again.body, again.headers) == (HostError(code, "no").envelope, {records.REPLAYED: "true"})
    assert act.count == 1


@pytest.mark.parametrize(
    "error",
    [
        HostError("service_unavailable", "not now", retry_after=1),
        HostError("rate_limited", "not now", retry_after=1),
        HostError("run_already_active", "not now", retry_after=1),
        HostError("forbidden", "not you"),
        HostError("validation_error", "not so"),
        HostError("internal_error", "oh"),
        RPCError("away", RPCStatusCode.UNAVAILABLE, b""),
        RuntimeError("oh"),
    ],
)
async def test_what_may_go_better_the_next_time_is_tried_again(both: tuple[Records, Records], error: Exception) -> None:
    act, keyed = Acts(error), request()
    for one in both:
        with pytest.raises(type(error)):
            await one.once(keyed, act)
    act.answer = DONE
    assert await both[0].once(keyed, act) is DONE
    assert (await both[1].once(keyed, act)).headers[records.REPLAYED] == "true"
    assert act.count == 3


async def test_an_act_that_takes_too_long_is_given_up_and_may_be_tried_again(
    both: tuple[Records, Records], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "ACT_WITHIN", 0.1)
    act, keyed = Acts(), request()
    act.may_end.clear()
    assert (await refusal(both[0].once(keyed, act))).code == "service_unavailable"
    act.may_end.set()
    assert await both[1].once(keyed, act) is DONE


async def test_what_was_done_is_told_though_it_cannot_be_kept(
    both: tuple[Records, Records], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def away(*_args: object, **_more: object) -> bool:
        raise RPCError("away", RPCStatusCode.UNAVAILABLE, b"")

    monkeypatch.setattr(records.records, "close", away)
    assert await both[0].once(request(), Acts()) is DONE
    assert "not kept" in caplog.text


async def test_a_key_is_good_for_one_request_also_after_a_failure(both: tuple[Records, Records]) -> None:
    key = str(uuid.uuid4())
    for act in (Acts(), Acts(HostError("service_unavailable", "not now", retry_after=1))):
        key = str(uuid.uuid4())
        tried: Callable[[], Awaitable[Answer]] = act
        await asyncio.gather(both[0].once(request(key=key), tried), return_exceptions=True)
        other = await refusal(both[1].once(request(b'{"reason":"x"}', key), tried))
        assert (other.status, other.code) == (409, "idempotency_key_mismatch")
        assert act.count == 1
