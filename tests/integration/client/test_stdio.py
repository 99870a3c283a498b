"""A server as a process: its answers, its noise, its deaths, and that nothing of it is left.

On both event loops where they can differ: what watches processes and pipes, and cancels.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import gc
import inspect
import itertools
import json
import logging
import os
import random
import signal
import sys
import tracemalloc
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import uvloop

from openwop_mcp.client._wire import Incoming, OnMessage, Outgoing, SizeLimits, StaleTermsError, Terms
from openwop_mcp.client.stdio import StdioWire, _process, _stderr, _wire
from openwop_mcp.client.stdio._process import Process
from openwop_mcp.client.stdio._requests import Flight, Requests
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    ConnectError,
    ConnectionLostError,
    InterruptedCallError,
    MalformedAnswerError,
    McpError,
    ResultTooLargeError,
    RpcError,
    TimeLimitError,
)
from openwop_mcp.protocol import messages
from openwop_mcp.redaction import Redactor
from tests.support import stdio_server
from tests.support.patience import PATIENCE

PROGRAM = [sys.executable, "-I", "-S", str(Path(stdio_server.__file__))]
SECRET = "sk-stdio-1234567890"

OWN = (str(Path(_process.__file__).parent), __file__)
"""Where the coroutines are written that the tasks of these clients and of their callers run."""


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def on_both_loops(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on a new loop of each kind: what watches a process differs between them."""

    @functools.wraps(test)
    def run(loop: str, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.run(test(**fixtures))

    signature = inspect.signature(test)
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = signature.replace(parameters=[loop, *signature.parameters.values()])  # type: ignore[attr-defined]
    return pytest.mark.parametrize("loop", LOOPS)(run)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a process leaves when it ends, and that it is gone once it is killed, comes as late as the machine lets it.

    Both end a wait when they come: longer limits take no longer. How long a server is left to go by itself stays.
    """
    drop = Process.drop

    async def patiently(process: Process) -> bool:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_process, "PATIENCE", PATIENCE)
            return await drop(process)

    monkeypatch.setattr(Process, "drop", patiently)
    monkeypatch.setattr(_process, "LAST_WORDS", PATIENCE)


class Peer:
    """A wire and what a client would keep for it."""

    def __init__(self, wire: StdioWire, limits: Timeouts) -> None:
        self.wire = wire
        self.limits = limits
        self.ids = itertools.count(1)
        self.unmatched: list[Any] = []
        wire.on_unmatched = lambda message: self.unmatched.append(json.loads(message))

    @property
    def requests(self) -> Requests:
        assert self.wire._current is not None
        return self.wire._current

    @property
    def process(self) -> Process:
        return self.requests.process

    @property
    def held_up(self) -> bool:
        """Whether the server leaves so much unread that nothing more is written."""
        return self.wire._current is not None and not self.process._stdin.writable.is_set()

    async def ask(
        self,
        *do: list[Any],
        method: str = "tools/call",
        request_id: int | None = None,
        on_message: OnMessage | None = None,
        revision: str = "2026-07-28",
        body: bytes | None = None,
        generation: int | None = None,
        **limits: float,
    ) -> Incoming:
        if generation is None:
            generation = await self.wire.open(self.limits)
        number = next(self.ids) if request_id is None else request_id
        if body is None:
            params = {"do": list(do)} if do else {}
            body = json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()
        out = Outgoing(number, method, body, Terms(revision, generation=generation))
        allowed = self.limits.model_copy(update=limits)
        return await self.wire.exchange(out, limits=allowed, on_message=on_message)

    async def result(self, *do: list[Any], **options: Any) -> Any:
        return json.loads((await self.ask(*do, **options)).message)["result"]

    async def seen(self) -> list[Any]:
        """All that the server has read so far."""
        return [json.loads(line) for line in await self.result(["seen"])]

    async def dead(self) -> None:
        await until(lambda: self.wire._current is None)


@contextlib.asynccontextmanager
async def peer(
    *,
    command: list[str] | None = None,
    environment: Mapping[str, str] | None = None,
    event_bytes: int = 1024**2,
    limits: Mapping[str, float] | None = None,
    **options: Any,
) -> AsyncIterator[Peer]:
    given = environment or {}
    wire = StdioWire(
        "box",
        command if command is not None else [*PROGRAM, json.dumps(options)],
        given,
        sizes=SizeLimits(response_bytes=event_bytes, event_bytes=event_bytes),
        redactor=Redactor(given.values()),
    )
    allowed = Timeouts(**{**dict.fromkeys(("connect", "first_byte", "idle", "total"), PATIENCE), **(limits or {})})
    found = Peer(wire, allowed)
    tasks = tasks_of_clients()
    try:
        yield found
    finally:
        pid = wire._current.process.pid if wire._current is not None else None
        await wire.close()
        assert tasks_of_clients() <= tasks, "a task is left"
        if pid is not None:
            assert not psutil.pid_exists(pid), "the process, or its zombie, is left"
        # What was not closed warns when it is collected; what this test made is young.
        gc.collect(1)


def tasks_of_clients() -> set[asyncio.Task[Any]]:
    """Those that run code of the client, or of these tests: what other tests left running has tasks at any time."""
    return {task for task in asyncio.all_tasks() if _written_in(task).startswith(OWN)}


def _written_in(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    return "" if code is None else str(code.co_filename)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - what happens in another process sets no event
            await asyncio.sleep(0.005)


def said(number: int, text: str = "ok", **members: Any) -> str:
    result = {"resultType": "complete", "text": text}
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": result, **members}, ensure_ascii=False)


def _children() -> set[int]:
    """The processes that this one has started: what those of other tests start is not looked at."""
    return {process.pid for process in psutil.Process().children()}


def _gone(pid: int) -> bool:
    """Whether a process has ended, though whoever inherited it may not have looked."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


async def _refused(box: Peer) -> None:
    """Ask on until no process is started any more."""
    while True:
        with contextlib.suppress(ConnectionLostError, StaleTermsError, TimeLimitError):
            await box.ask()


# --- starting ---------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_concurrent_opens_start_one_process() -> None:
    before = _children()
    async with peer() as box:
        assert await asyncio.gather(*[box.wire.open(box.limits) for _ in range(50)]) == [1] * 50
        assert _children() - before == {box.process.pid}
        assert await box.result(request_id=7) == {"resultType": "complete", "echo": {}}


@on_both_loops
async def test_the_process_has_a_session_of_its_own_and_only_the_variables_that_it_needs(monkeypatch) -> None:
    monkeypatch.setenv("OTHER_SERVERS_TOKEN", SECRET)
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:password@proxy.example")
    async with peer(environment={"BOX_TOKEN": SECRET, "LC_TIME": "C.UTF-8"}) as box:
        about = await box.result(["about"])
    assert about["session"] == about["pid"] != os.getsid(0)
    assert about["environment"]["BOX_TOKEN"] == SECRET
    assert about["environment"]["PATH"] == os.environ["PATH"]
    assert about["environment"]["LC_TIME"] == "C.UTF-8"
    assert not {"OTHER_SERVERS_TOKEN", "HTTPS_PROXY"} & about["environment"].keys()
    assert {name for name in about["environment"] if not _process.INHERITED.fullmatch(name)} == {"BOX_TOKEN"}


@on_both_loops
async def test_arguments_are_no_shells_business() -> None:
    hostile = "$(touch x); `id` > /dev/null \"'"
    async with peer(command=[*PROGRAM, "{}", hostile]) as box:
        assert (await box.result(["about"]))["arguments"][-1] == hostile


@pytest.mark.parametrize(
    "program", ["no-such-program-here", "/etc/passwd", "/", "bad\0name"], ids=["absent", "no program", "folder", "nul"]
)
@on_both_loops
async def test_a_command_that_cannot_be_started_is_named_with_what_to_do(program: str) -> None:
    async with peer(command=[program, f"--token={SECRET}"]) as box:
        for _ in range(2):
            with pytest.raises(ConnectError, match=r"cannot be started .*setting servers\.box\.command") as caught:
                await box.wire.open(box.limits)
            assert program.replace("\0", "\\x00") in str(caught.value)
            assert SECRET not in str(caught.value)
            assert caught.value.delivery is Delivery.NOT_SENT


@on_both_loops
async def test_a_program_that_is_no_executable_format_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    async with peer(command=[str(program)]) as box:
        with pytest.raises(ConnectError, match=r"cannot be started .*Exec format error"):
            await box.wire.open(box.limits)


@on_both_loops
async def test_an_opener_that_stops_waiting_stops_no_other() -> None:
    async with peer() as box:
        first = asyncio.ensure_future(box.wire.open(box.limits))
        second = asyncio.ensure_future(box.wire.open(box.limits))
        await asyncio.sleep(0)
        first.cancel()
        assert await second == 1


@on_both_loops
async def test_what_it_is_known_by_holds_no_command_line() -> None:
    async with peer(command=["x", SECRET]) as box:
        assert (box.wire.origin, box.wire.http, box.wire.context) == ("stdio:box", False, 0)


# --- answers ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_five_hundred_calls_at_once_each_get_their_own_answer() -> None:
    async with peer() as box:
        numbers = list(range(1, 501))
        random.shuffle(numbers)

        async def one(number: int) -> None:
            assert (await box.result(["hold", 25], request_id=number))["held"] == number

        await asyncio.gather(*[one(number) for number in numbers])
        assert not box.requests._flights


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64])
async def test_a_message_may_come_in_pieces_of_any_size(size: int) -> None:
    text = "é😀\u2028" * 5
    async with peer() as box:
        assert (await box.result(["pieces", said(1, text) + "\r\n", size], request_id=1))["text"] == text


async def test_the_bytes_of_the_answer_are_the_servers() -> None:
    raw = '{"id" : 1, "result":{ "n": 1.10, "b": 1E400, "d": 1, "d": 2, "s": "\\u00e9" } , "jsonrpc":"2.0"}'
    async with peer() as box:
        incoming = await box.ask(["text", f"\xef\xbb\xbf{raw} \r\n"])
        assert incoming == Incoming(raw.encode() + b" ")


@on_both_loops
async def test_an_answer_whose_line_was_not_ended_counts_if_it_is_whole() -> None:
    async with peer() as box:
        assert (await box.result(["text", said(1)], ["exit", 0], request_id=1))["text"] == "ok"
        await box.dead()
        with pytest.raises(ConnectionLostError):
            await box.ask(["text", said(2)[:-1]], ["exit", 0], request_id=2)


async def test_a_request_goes_out_as_one_line_however_its_arguments_are_laid_out() -> None:
    async with peer() as box:
        body = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{\r\n "a": [1.10,\n 2],\r"s":"\\n"}}'
        assert json.loads((await box.ask(body=body)).message)["result"]["echo"] == {"a": [1.10, 2], "s": "\n"}


async def test_late_unknown_and_repeated_answers_are_ignored() -> None:
    async with peer() as box:
        with pytest.raises(TimeLimitError):
            await box.ask(["hold", 99], first_byte=0.05)
        text = "\n".join([said(1, "late"), said(77, "unknown"), said(2), said(2, "again"), said(1, "late"), ""])
        first, second = await asyncio.gather(box.result(["hold", 3]), box.result(["text", text], ["hold", 3]))
        assert first["text"] == "ok"
        assert second["held"] == 3
        assert await box.result()


@pytest.mark.parametrize("number", [0, 99, '"7f"', "1.5"])
async def test_an_id_that_was_never_sent_is_the_only_requests_fault_at_once(number: object) -> None:
    async with peer() as box:
        text = f'{{"jsonrpc":"2.0","id":{number},"result":{{}}}}\n'
        incoming = await box.ask(["text", text], request_id=7)
        with pytest.raises(MalformedAnswerError, match=f"expected id 7, received {number}"):
            messages.answer(incoming.message, 7, method="tools/call", http_status=0)


async def test_an_error_without_id_belongs_to_the_only_request() -> None:
    async with peer() as box:
        for number in ['"id":null,', ""]:
            error = f'{{"jsonrpc":"2.0",{number}"error":{{"code":-32700,"message":"no"}}}}\n'
            incoming = await box.ask(["text", error], request_id=5)
            with pytest.raises(RpcError, match="-32700"):
                messages.answer(incoming.message, 5, method="tools/call", http_status=0)


async def test_an_error_without_id_belongs_to_none_of_several() -> None:
    error = '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}\n'
    async with peer() as box:
        found = await asyncio.gather(box.result(["hold", 2]), box.result(["text", error], ["hold", 2]))
        assert [item["held"] for item in found] == [1, 2]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"jsonrpc":"2.0","id":1,"result":{"n":NaN}}', "invalid_json"),
        ('{"result":{"n":NaN},"jsonrpc":"2.0","id":1}', "invalid_json"),
        ('{"jsonrpc":"2.0","id":1,"result":{"s":"cut', "invalid_json"),
        ('{"jsonrpc":"2.0","id":1,"result":{"s":"\xff"}}', "invalid_utf8"),
        ('[{"jsonrpc":"2.0","id":1,"result":{}}]', "not_an_object"),
        ('{"jsonrpc":"2.0","id":"1","result":{}}', "wrong_id"),
        ('{"id":1,"result":{}}', "not_jsonrpc"),
        ('{"jsonrpc":"2.0","id":1}', "neither_result_nor_error"),
    ],
)
async def test_a_broken_answer_is_told_at_once_to_the_request_that_it_names(text: str, fault: str) -> None:
    async with peer() as box:
        first = asyncio.ensure_future(box.ask(["hold", 2], request_id=50))
        incoming = await box.ask(["text", text + "\n"], request_id=1)
        with pytest.raises(MalformedAnswerError) as caught:
            messages.answer(incoming.message, 1, method="tools/call", http_status=0)
        assert caught.value.fault == fault
        await box.ask(["hold", 2], request_id=51)
        assert json.loads((await first).message)["result"]["held"] == 50


async def test_messages_in_an_array_are_taken_apart_for_the_revision_that_has_them() -> None:
    note = '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    async with peer() as box:
        incoming = await box.ask(["text", f"[{note}, {said(1)} ]\n"], request_id=1, revision="2025-03-26")
        assert incoming.message == said(1).encode()
        assert box.unmatched == [json.loads(note)]


# --- other messages ---------------------------------------------------------------------------------------------------


def note(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "method": f"notifications/{method}", "params": params}) + "\n"


async def test_progress_goes_to_the_request_whose_token_it_has_and_to_no_other() -> None:
    heard: dict[int, list[Any]] = {1: [], 2: []}

    def listen(number: int) -> OnMessage:
        return lambda message: heard[number].append(json.loads(message)["params"]["progress"])

    text = "".join(
        note("progress", progressToken=token, progress=value)
        for token, value in [(1, 10), (2, 20), ("1", 0), (9, 0), (1, 11), (True, 0), (None, 0)]
    )
    async with peer() as box:
        await asyncio.gather(
            box.ask(["hold", 2], on_message=listen(1)), box.ask(["text", text], ["hold", 2], on_message=listen(2))
        )
        assert heard == {1: [10, 11], 2: [20]}
        assert box.unmatched == []


async def test_progress_moves_the_idle_limit_and_never_the_total() -> None:
    async with peer() as box:
        call = asyncio.ensure_future(
            box.ask(["text", note("progress", progressToken=1, progress=1)], first_byte=5, idle=0.2, total=10)
        )
        with pytest.raises(TimeLimitError) as caught:
            await call
        assert caught.value.limit == "idle"

        stop = asyncio.Event()

        async def keep_alive() -> None:
            while not stop.is_set():
                await box.ask(["text", note("progress", progressToken=2, progress=1) + said(3) + "\n"], request_id=3)
                await asyncio.sleep(0.02)

        beat = asyncio.ensure_future(keep_alive())
        with pytest.raises(TimeLimitError) as caught:
            await box.ask(["hold", 9], request_id=2, idle=3.0, total=3.5)
        assert caught.value.limit == "total"
        stop.set()
        await beat


async def test_notifications_of_a_subscription_go_to_the_request_that_listens() -> None:
    heard: list[Any] = []
    meta = {"io.modelcontextprotocol/subscriptionId": 1}
    text = note("subscriptions/acknowledged", notifications={}, _meta=meta) + note("tools/list_changed", _meta=meta)
    text += note("tools/list_changed", _meta={"io.modelcontextprotocol/subscriptionId": "1"})
    async with peer() as box:
        await box.ask(
            ["text", text + said(1) + "\n"],
            method="subscriptions/listen",
            on_message=lambda message: heard.append(json.loads(message)["method"]),
        )
        assert heard == ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
        assert [message["method"] for message in box.unmatched] == ["notifications/tools/list_changed"]


async def test_a_server_may_end_a_subscription_but_no_call() -> None:
    async with peer() as box:
        with pytest.raises(ConnectionLostError, match="listen again"):
            await box.ask(["text", note("cancelled", requestId=1)], method="subscriptions/listen", request_id=1)
        assert await box.result(["text", note("cancelled", requestId=2)], ["answer", {}], request_id=2) == {}


async def test_what_an_older_server_asks_is_handed_over_and_can_be_answered() -> None:
    request = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
    async with peer() as box:
        # Its ids are its own: this one is no answer to our request of the same number.
        await box.ask(["text", request + "\n"], ["answer", {}], request_id=1)
        assert box.unmatched == [json.loads(request)]
        await box.wire.notify(b'{"jsonrpc":"2.0","id":1,"result":{}}', Terms("2025-11-25", generation=1))
        assert {"jsonrpc": "2.0", "id": 1, "result": {}} in await box.seen()


async def test_log_messages_go_to_no_request() -> None:
    heard: list[bytes] = []
    async with peer() as box:
        await box.ask(["text", note("message", level="info", data=1)], ["answer", {}], on_message=heard.append)
        assert heard == []
        assert [message["params"] for message in box.unmatched] == [{"level": "info", "data": 1}]


async def test_a_listener_that_fails_fails_its_call_and_no_other() -> None:
    def broken(message: bytes) -> None:
        raise LookupError("not taken")

    async with peer() as box:
        with pytest.raises(LookupError, match="not taken"):
            await box.ask(["text", note("progress", progressToken=1, progress=1)], on_message=broken)
        assert (await box.seen())[-2]["params"]["requestId"] == 1
        box.wire.on_unmatched = broken
        assert await box.result(["text", note("message", level="info", data=1)], ["answer", {}]) == {}


@on_both_loops
async def test_a_listener_runs_in_the_context_of_its_call() -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody")
    heard: list[str] = []

    async def call(name: str, number: int) -> None:
        whose.set(name)
        text = note("progress", progressToken=number, progress=1)
        await box.ask(["text", text], ["answer", {}], on_message=lambda _: heard.append(whose.get()), request_id=number)

    async with peer() as box:
        await asyncio.gather(call("a", 1), call("b", 2))
        assert heard == ["a", "b"]


# --- noise, size, standard error --------------------------------------------------------------------------------------


async def test_noise_is_passed_over_and_reported_once_for_each_process(caplog: pytest.LogCaptureFixture) -> None:
    noise = [
        "Starting\x1b[31m up " + "x" * 5000,
        "",
        "   ",
        "\xff\xfe",
        "17",
        "null",
        "[]",
        "[1]",
        '"text"',
        '{"type":"heartbeat"}',
        '{"level":"info","method":"GET","id":1}',
        '{"error":"x","msg":"y"}',
        '{"jsonrpc":"2.0","method":7}',
        '{"jsonrpc":"2.0","method":"\xff"}',
        '{"jsonrpc":"2.0","method":"notifications/x","params":[1]}',
        '{"jsonrpc":"2.0","id":',
        "{",
        "[" * 20000,
    ]
    caplog.set_level(logging.WARNING)
    async with peer(say="\xef\xbb\xbf" + "\r\n".join(noise) + "\n") as box:
        assert await box.result(["text", "\n".join(noise) + "\n"], ["answer", {"n": 1}]) == {"n": 1}
        (record,) = [one for one in caplog.records if one.name.startswith("openwop_mcp.client")]
        told = record.getMessage()
        assert "'box'" in told
        assert "Starting\\x1b[31m" in told
        assert len(told) < 500
        with pytest.raises(ConnectionLostError):
            await box.ask(["exit", 0])
        await box.ask()
        assert len([record for record in caplog.records if "Starting" in record.getMessage()]) == 2


@pytest.mark.parametrize("order", ["jsonrpc id result", "id jsonrpc result", "result jsonrpc id", "jsonrpc result id"])
async def test_an_answer_over_the_limit_fails_its_request_alone(order: str) -> None:
    async with peer(event_bytes=10_000) as box:
        other = asyncio.ensure_future(box.result(["hold", 2]))
        with pytest.raises(ResultTooLargeError, match=r"setting limits\.event_bytes") as caught:
            await box.ask(["big", 200_000, order], request_id=20)
        assert caught.value.delivery is Delivery.ANSWERED
        assert caught.value.facts["limit"] == 10_000
        assert caught.value.facts["size"] > 200_000
        await box.ask(["hold", 2], request_id=21)
        assert (await other)["held"] == 1
        assert await box.wire.open(box.limits) == 1


@pytest.mark.parametrize("text", ["x" * 20_000, '{"jsonrpc":"2.0","method":"m","params":"' + "x" * 20_000 + '"}'])
async def test_a_line_over_the_limit_that_names_no_request_fails_all_in_flight(text: str) -> None:
    async with peer(event_bytes=10_000) as box:
        found = await asyncio.gather(
            box.ask(["hold", 9]), box.ask(["hold", 9], ["text", text + "\n"]), return_exceptions=True
        )
        assert [type(error) for error in found] == [ResultTooLargeError] * 2
        assert all(isinstance(error, McpError) and error.delivery is Delivery.UNKNOWN for error in found)
        assert await box.result(["answer", {}]) == {}


async def test_a_line_at_the_limit_is_read_and_one_byte_more_is_not() -> None:
    async with peer(event_bytes=len(said(1, "x" * 500))) as box:
        assert (await box.result(["text", said(1, "x" * 500) + "\n"], request_id=1))["text"] == "x" * 500
        with pytest.raises(ResultTooLargeError):
            await box.ask(["text", said(2, "x" * 501) + "\n"], request_id=2)


@on_both_loops
async def test_a_large_answer_is_read_whole_and_one_over_the_limit_is_not_held() -> None:
    async with peer(event_bytes=8 * 1024**2) as box:
        assert len((await box.ask(["big", 7 * 1024**2, "jsonrpc id result"])).message) > 7 * 1024**2
        tracemalloc.start()
        with pytest.raises(ResultTooLargeError):
            await box.ask(["big", 64 * 1024**2, "result jsonrpc id"])
        assert tracemalloc.get_traced_memory()[1] < 24 * 1024**2
        tracemalloc.stop()


async def test_standard_error_goes_to_the_log_escaped_bounded_and_without_secrets(caplog) -> None:
    caplog.set_level(logging.INFO, logger="openwop_mcp.server.box")
    async with peer(environment={"TOKEN": SECRET}, stderr=f"using {SECRET}\r\n") as box:
        await box.ask(["stderr", "a\x1b]0;x\x07b\n\n" + "y" * 100_000 + "\nend\n"], ["answer", {}])
        records = [record for record in caplog.records if record.name == "openwop_mcp.server.box"]
        await until(
            lambda: any(record.name.endswith("box") and record.getMessage() == "end" for record in caplog.records)
        )
        records = [record for record in caplog.records if record.name == "openwop_mcp.server.box"]
        told = [record.getMessage() for record in records]
        assert told[0] == "using [credential]"
        assert told[1] == "a\\x1b]0;x\\x07b"
        assert told[2].startswith("yyy")
        assert told[2].endswith("…")
        assert len(told[2]) <= 256
        assert {record.levelno for record in records} == {logging.INFO}


@on_both_loops
async def test_a_flood_on_standard_error_blocks_nobody_and_is_logged_in_part(caplog) -> None:
    caplog.set_level(logging.INFO, logger="openwop_mcp.server.box")
    began = asyncio.get_running_loop().time()
    async with peer() as box:
        assert await box.result(["stderr", "flood\n" * 100_000], ["answer", {}]) == {}
        await until(lambda: any("were dropped" in record.getMessage() for record in caplog.records))
        told = [record.getMessage() for record in caplog.records if record.name == "openwop_mcp.server.box"]
        seconds = asyncio.get_running_loop().time() - began
        assert told.count("flood") <= (seconds + 2) * _stderr.LOGGED_LINES


async def test_a_process_that_is_ending_is_read_to_its_end_whoever_would_hold_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_process, "PATIENCE", PATIENCE)
    async with peer(stay=True) as box:
        assert await box.result(["answer", {}]) == {}
        box.process.pause()
        assert not box.process._stdout.transport.is_reading()
        process = box.process
        process.stop()
        await until(process._stdout.transport.is_reading)
        process.pause()
        assert process._stdout.transport.is_reading()
        os.kill(process.pid, 9)


# --- giving up --------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_cancelled_call_is_cancelled_at_the_server() -> None:
    async with peer() as box:
        await box.ask()
        call = asyncio.ensure_future(box.ask(["hold", 2], request_id=50))
        await box.ask()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        cancelled = (await box.seen())[-2]
        assert cancelled["method"] == "notifications/cancelled"
        assert cancelled["params"]["requestId"] == 50
        assert "id" not in cancelled
        # The late answer to it does no harm.
        assert (await box.result(["hold", 2], request_id=51))["held"] == 51


async def test_a_call_out_of_time_is_cancelled_at_the_server_with_the_limit_as_the_reason() -> None:
    async with peer() as box:
        with pytest.raises(TimeLimitError) as caught:
            await box.ask(["hold", 2], first_byte=0.05)
        assert (caught.value.limit, caught.value.delivery) == ("first_byte", Delivery.UNKNOWN)
        assert (await box.seen())[-2]["params"] == {"requestId": 1, "reason": "the first_byte limit ran out"}


async def test_a_handshake_is_never_cancelled() -> None:
    async with peer() as box:
        with pytest.raises(TimeLimitError):
            await box.ask(["hold", 2], method="initialize", first_byte=0.05)
        assert [message["method"] for message in await box.seen()] == ["initialize", "tools/call"]


@on_both_loops
async def test_an_answer_is_not_lost_to_a_limit_that_runs_out_at_the_same_time(monkeypatch) -> None:
    settle = Flight.settle

    def settle_too_late(flight: Flight, message: bytes) -> None:
        settle(flight, message)
        flight.deadline._due = 0
        flight.deadline._look()

    monkeypatch.setattr(Flight, "settle", settle_too_late)
    async with peer() as box:
        assert await box.result(["answer", {"n": 1}]) == {"n": 1}


# --- a server that does not read --------------------------------------------------------------------------------------


@on_both_loops
async def test_a_server_that_does_not_read_ends_in_a_limit_and_what_never_left_is_known(monkeypatch) -> None:
    monkeypatch.setattr(_wire, "NOTIFY", 0.2)
    monkeypatch.setattr(_process, "PATIENCE", 0.2)
    async with peer(deaf=True) as box:
        large = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"x": "y" * 2_000_000}}).encode()
        found = await asyncio.gather(
            box.ask(body=large, request_id=1, first_byte=0.2),
            *[box.ask(connect=0.1, first_byte=0.2) for _ in range(5)],
            return_exceptions=True,
        )
        assert [(error.limit, error.delivery) for error in found if isinstance(error, TimeLimitError)] == [
            ("first_byte", Delivery.UNKNOWN),
            *[("connect", Delivery.NOT_SENT)] * 5,
        ]
        async with asyncio.timeout(PATIENCE):
            await box.wire.notify(b"{}", Terms("2026-07-28", generation=1))
            limits = Timeouts(connect=0.1, **dict.fromkeys(("first_byte", "idle", "total"), 2 * PATIENCE))
            with pytest.raises(TimeLimitError):
                await box.wire.tell(b"{}", Terms("2026-07-28", generation=1), limits)


@on_both_loops
async def test_large_requests_at_once_do_not_mix() -> None:
    async with peer() as box:

        async def one(number: int) -> None:
            text = chr(97 + number) * 300_000
            body = {"jsonrpc": "2.0", "id": number, "method": "m", "params": {"text": text}}
            incoming = await box.ask(body=json.dumps(body).encode(), request_id=number)
            assert json.loads(incoming.message)["result"]["echo"]["text"] == text

        await asyncio.gather(*[one(number) for number in range(1, 21)])


@on_both_loops
async def test_who_waits_for_a_server_that_does_not_read_is_told_of_its_end_with_nothing_sent() -> None:
    async with peer(deaf=True) as box:
        large = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"x": "y" * 2_000_000}}).encode()
        first = asyncio.ensure_future(box.ask(body=large, request_id=1))
        await until(lambda: box.held_up)
        second = asyncio.ensure_future(box.ask(request_id=2))
        await asyncio.sleep(0)
        os.kill(box.process.pid, 9)
        with pytest.raises(ConnectionLostError, match="SIGKILL"):
            await first
        with pytest.raises(StaleTermsError):
            await second


# --- deaths -----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_a_killed_server_fails_what_is_in_flight_and_the_next_open_starts_another() -> None:
    async with peer() as box:
        await box.ask()
        calls = [asyncio.ensure_future(box.ask(["hold", 99])) for _ in range(20)]
        await until(lambda: len(box.requests._flights) == 20)
        os.kill(box.process.pid, 9)
        for call in calls:
            with pytest.raises(ConnectionLostError, match="SIGKILL") as caught:
                await call
            assert caught.value.delivery is Delivery.UNKNOWN
        with pytest.raises(StaleTermsError):
            await box.ask(generation=1)
        assert await box.wire.open(box.limits) == 2
        with pytest.raises(StaleTermsError):
            await box.ask(generation=1)
        assert await box.result(["answer", {}]) == {}


@on_both_loops
async def test_calls_go_on_through_many_kills() -> None:
    done = lost = 0

    async def caller(box: Peer) -> None:
        nonlocal done, lost
        for _ in range(40):
            try:
                await box.ask(["answer", {}])
                done += 1
            except (ConnectionLostError, StaleTermsError):
                lost += 1

    async with peer() as box:
        callers = [asyncio.ensure_future(caller(box)) for _ in range(20)]
        pids = []
        for _ in range(5):
            await until(lambda: box.wire._accepting and box.requests.answered)
            pids.append(box.process.pid)
            os.kill(pids[-1], 9)
            await until(lambda: box.wire._current is None or box.process.pid != pids[-1])
        await asyncio.gather(*callers)
        assert done + lost == 800
        assert not [pid for pid in pids if psutil.pid_exists(pid)]


@on_both_loops
async def test_an_exit_is_named_with_its_status_and_the_last_words() -> None:
    async with peer(environment={"TOKEN": SECRET}) as box:
        words = f"Traceback\n  line\nKeyError: {SECRET}\x1b\n"
        with pytest.raises(ConnectionLostError) as caught:
            await box.ask(["stderr", words], ["exit", 3])
        assert "ended before it answered: it exited with status 3" in str(caught.value)
        # Of what was sent the delivery speaks: a call whose handshake ended so was not.
        assert "effect" not in str(caught.value)
        assert "KeyError: [credential]\\x1b" in str(caught.value)
        assert SECRET not in str(caught.value)


async def test_a_key_of_several_lines_is_in_no_last_words_and_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    body = ["MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"]
    key = "\n".join(["-----BEGIN PRIVATE KEY-----", *body, "-----END PRIVATE KEY-----", ""])
    async with peer(environment={"TOKEN": key}) as box:
        with pytest.raises(ConnectionLostError) as caught:
            await box.ask(["stderr", f"cannot parse key: {key}"], ["exit", 3])
        assert "[credential] | [credential] | -----END PRIVATE KEY-----" in str(caught.value)
        assert not [line for line in body if line in caplog.text]


@on_both_loops
async def test_the_last_answers_of_a_server_that_exits_are_not_lost() -> None:
    async with peer() as box:
        for _ in range(10):
            assert await box.result(["answer", {}], ["exit", 0]) == {}
            await box.dead()


@pytest.mark.parametrize(("fd", "name"), [(1, "output"), (0, "input")])
@on_both_loops
async def test_a_server_that_closes_a_pipe_is_ended_and_replaced(monkeypatch, fd: int, name: str) -> None:
    monkeypatch.setattr(_process, "LAST_WORDS", 0.05)
    monkeypatch.setattr(_process, "PATIENCE", 0.2)
    async with peer(stubborn=True, stay=True) as box:
        await box.ask()
        pid = box.process.pid
        call = asyncio.ensure_future(box.ask(["text", said(2) + "\n"], ["close", fd], request_id=2))
        with contextlib.suppress(ConnectionLostError):
            await call
        await asyncio.sleep(0)
        # Only asyncio notices before it writes that nobody reads any more.
        with pytest.raises((ConnectionLostError, StaleTermsError)):
            await box.ask(["hold", 9], generation=1)
        await until(lambda: name in box.wire._last_end)
        assert await box.wire.open(box.limits) == 2
        assert not psutil.pid_exists(pid)


@on_both_loops
async def test_a_child_that_keeps_the_pipes_keeps_nobody_waiting_and_goes_too(monkeypatch) -> None:
    monkeypatch.setattr(_process, "LAST_WORDS", 0.05)
    async with peer() as box:
        child = await box.result(["child"])
        with pytest.raises(ConnectionLostError, match="status 4"):
            await box.ask(["exit", 4])
        await box.ask()
        await until(lambda: _gone(child))


@on_both_loops
async def test_a_server_that_exits_at_once_does_not_spin_and_says_why(monkeypatch) -> None:
    monkeypatch.setattr(_wire, "FIRST_REST", 0.05)
    async with peer(exit=2, stderr="usage: box --port\n", limits={"connect": 0.5}) as box:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(
                ConnectError, match=r"ends each time at once: it exited with status 2.*usage:"
            ) as caught:
                await _refused(box)
        assert box.wire._generation < 8
        assert caught.value.delivery is Delivery.NOT_SENT
        assert r"servers.box.command" in str(caught.value)


@on_both_loops
async def test_a_server_that_is_mended_is_back_after_its_rest(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_wire, "FIRST_REST", 1)
    monkeypatch.setattr(_wire, "LONGEST_REST", 1)
    fault = tmp_path / "fault"
    fault.touch()
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\n[ -e {fault} ] && exit 1\nexec {' '.join(PROGRAM)}\n", encoding="utf-8")
    program.chmod(0o755)
    async with peer(command=[str(program)], limits={"connect": 0.1}) as box:
        with pytest.raises(ConnectError, match="exited with status 1"):
            await _refused(box)
        fault.unlink()
        box.limits = box.limits.model_copy(update={"connect": PATIENCE})
        assert await box.result(["answer", {}]) == {}


@on_both_loops
async def test_a_server_that_answered_is_started_again_at_once(monkeypatch) -> None:
    monkeypatch.setattr(_wire, "FIRST_REST", 1000)
    async with peer() as box:
        for generation in range(1, 6):
            assert await box.wire.open(box.limits) == generation
            await box.ask()
            with pytest.raises(ConnectionLostError):
                await box.ask(["exit", 1])


@pytest.mark.parametrize("turns", range(6))
async def test_a_start_that_is_broken_off_leaves_nothing_and_stops_no_further_one(turns: int) -> None:
    before = _children()
    descriptors = psutil.Process().num_fds()
    async with peer() as box:
        opening = asyncio.ensure_future(box.wire.open(box.limits))
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        starting = box.wire._starting
        if starting is not None:
            starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await opening
        assert await box.result(["answer", {}]) == {}
        assert _children() - before == {box.process.pid}
    await until(lambda: psutil.Process().num_fds() <= descriptors)
    assert _children() <= before


# --- closing ----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_closing_ends_a_sound_server_by_the_end_of_its_input(monkeypatch) -> None:
    signals: list[int] = []
    monkeypatch.setattr(_process, "PATIENCE", PATIENCE)
    monkeypatch.setattr(Process, "_signal", lambda _, number: signals.append(number))
    async with peer() as box:
        await box.ask()
        call = asyncio.ensure_future(box.ask(["hold", 2]))
        await until(lambda: box.requests._flights)
        await asyncio.gather(box.wire.close(), box.wire.close())
        with pytest.raises(InterruptedCallError) as caught:
            await call
        assert (caught.value.cancelled, caught.value.delivery) == (False, Delivery.UNKNOWN)
        await box.wire.close()
        assert set(signals) == {9}, "only who might be left in the group gets one"
        with pytest.raises(InterruptedCallError) as caught:
            await box.wire.open(box.limits)
        assert caught.value.delivery is Delivery.NOT_SENT
        with pytest.raises(StaleTermsError):
            await box.ask(generation=1)


@pytest.mark.parametrize(
    ("options", "end"), [({"stay": True}, "SIGTERM"), ({"stay": True, "stubborn": True}, "SIGKILL")]
)
@on_both_loops
async def test_a_server_that_stays_gets_sigterm_and_then_sigkill(monkeypatch, options, end) -> None:
    monkeypatch.setattr(_process, "PATIENCE", 0.3)
    signals: list[int] = []
    send = Process._signal

    def spy(process: Process, number: Any) -> None:
        signals.append(int(number))
        send(process, number)

    monkeypatch.setattr(Process, "_signal", spy)
    async with peer(**options) as box:
        await box.ask()
        process = box.process
        await box.wire.close()
        assert not psutil.pid_exists(process.pid)
        assert signals == [15, 9], "the second also for who might be left in the group"
        assert process._status.result() == -signal.Signals[end]


@on_both_loops
async def test_closing_leaves_no_grandchild(monkeypatch) -> None:
    monkeypatch.setattr(_process, "PATIENCE", 0.3)
    async with peer() as box:
        child = await box.result(["child"])
        await box.wire.close()
        await until(lambda: _gone(child))


@on_both_loops
async def test_closing_ends_a_server_that_does_not_read(monkeypatch) -> None:
    monkeypatch.setattr(_process, "PATIENCE", 0.3)
    async with peer(deaf=True, stubborn=True) as box:
        large = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"x": "y" * 2_000_000}}).encode()
        call = asyncio.ensure_future(box.ask(body=large, request_id=1))
        await until(lambda: box.held_up)
        await box.wire.close()
        with pytest.raises(InterruptedCallError):
            await call


@on_both_loops
async def test_closing_while_it_starts_leaves_nothing() -> None:
    before = _children()
    async with peer() as box:
        opening = asyncio.ensure_future(box.wire.open(box.limits))
        await asyncio.sleep(0)
        await box.wire.close()
        with contextlib.suppress(InterruptedCallError):
            await opening
    assert _children() <= before


@on_both_loops
async def test_a_close_that_nobody_waits_for_goes_on() -> None:
    async with peer() as box:
        await box.ask()
        life = box.wire._life
        assert life is not None
        closing = asyncio.ensure_future(box.wire.close())
        await asyncio.sleep(0)
        closing.cancel()
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(life)


@on_both_loops
async def test_no_descriptor_is_left_after_many_lives() -> None:
    async def live() -> None:
        async with peer() as box:
            await box.ask()
            with pytest.raises(ConnectionLostError):
                await box.ask(["kill", 9])
            await box.ask()

    await live()
    before = psutil.Process().num_fds()
    for _ in range(5):
        await live()
    await until(lambda: psutil.Process().num_fds() <= before)
