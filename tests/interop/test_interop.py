"""The pack's client against servers that others wrote."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from openwop_mcp.client import CallOptions, Clients, Exchange, McpClient, OnInput, Progress
from openwop_mcp.config import Settings
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectError, ConnectionLostError, NoCommonRevisionError, RpcError
from tests.support import real_servers
from tests.support.real_servers import HttpServer, processes

pytestmark = pytest.mark.timeout(180)

LIMIT = 60
"""Seconds within which a server of this machine answers, also where the machine does other work."""


@dataclass
class Running:
    """A server that can be called and killed."""

    client: McpClient
    die: Callable[[], Awaitable[None]]


def settings(**server: Any) -> Settings:
    timeouts = dict.fromkeys(("connect", "first_byte", "idle", "total"), LIMIT)
    return Settings.model_validate({"servers": {"real": {"network": "any", "timeouts": timeouts, **server}}})


@asynccontextmanager
async def client_of(on_input: OnInput | None = None, **server: Any) -> AsyncIterator[McpClient]:
    info = b'{"name":"tests","version":"1"}'
    if "url" in server:
        server["network"] = "private"
    async with Clients(settings(**server), client_info=info, environ={}, on_input=on_input) as clients:
        yield clients["real"]


@asynccontextmanager
async def over_stdio(
    command: real_servers.Command, revision: str, on_input: OnInput | None = None
) -> AsyncIterator[Running]:
    async with client_of(on_input, command=command, minimum_revision=revision) as client:
        yield Running(client, lambda: real_servers.kill(command))
    assert processes(command) == []


@asynccontextmanager
async def over_http(
    server: Callable[[], AbstractAsyncContextManager[HttpServer]], revision: str, on_input: OnInput | None = None
) -> AsyncIterator[Running]:
    async with server() as http, client_of(on_input, url=http.url, minimum_revision=revision) as client:
        yield Running(client, http.restart)


@dataclass(frozen=True)
class Case:
    """A server, the revision that it is to be spoken to in, and one call that shows it at work."""

    start: Callable[[Path], AbstractAsyncContextManager[Running]]
    revision: str
    tool: str
    arguments: Callable[[Path], dict[str, Any]]
    says: str


def _stdio(command: Callable[[Path], real_servers.Command], revision: str) -> Callable[[Path], Any]:
    return lambda folder: over_stdio(command(folder), revision)


MODERN, LEGACY = "2026-07-28", "2025-11-25"

CASES = {
    "time over stdio": Case(
        _stdio(lambda _: real_servers.time(), MODERN),
        MODERN,
        "convert_time",
        lambda _: {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
        "21:00",
    ),
    "git over stdio": Case(
        _stdio(lambda folder: real_servers.git(real_servers.git_repository(folder)), MODERN),
        MODERN,
        "git_log",
        lambda folder: {"repo_path": str(folder)},
        "First",
    ),
    "fast over stdio": Case(
        _stdio(lambda _: real_servers.fast(), MODERN), MODERN, "add", lambda _: {"a": 20, "b": 22}, "42"
    ),
    "fast over HTTP": Case(
        lambda _: over_http(real_servers.fast_http, MODERN), MODERN, "add", lambda _: {"a": 20, "b": 22}, "42"
    ),
    "legacy over stdio": Case(
        _stdio(lambda _: real_servers.legacy(), LEGACY), LEGACY, "add", lambda _: {"a": 20, "b": 22}, "42"
    ),
    "legacy over HTTP": Case(
        lambda _: over_http(real_servers.legacy_http, LEGACY), LEGACY, "add", lambda _: {"a": 20, "b": 22}, "42"
    ),
    "everything over stdio": Case(
        _stdio(lambda _: real_servers.everything(), LEGACY), LEGACY, "get-sum", lambda _: {"a": 20, "b": 22}, "42"
    ),
    "everything over HTTP": Case(
        lambda _: over_http(real_servers.everything_http, LEGACY), LEGACY, "get-sum", lambda _: {"a": 20, "b": 22}, "42"
    ),
    "filesystem over stdio": Case(
        _stdio(real_servers.filesystem, LEGACY),
        LEGACY,
        "list_directory",
        lambda folder: {"path": str(folder)},
        "[FILE] here",
    ),
}

WITH_NOTES = {name: CASES[name] for name in CASES if name.startswith(("fast", "legacy"))}
"""Servers of ours on others' libraries, which have resources, prompts, progress and a call that does not end."""

every_server = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
each_with_notes = pytest.mark.parametrize("case", WITH_NOTES.values(), ids=WITH_NOTES)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "here").write_text("a file")
    return tmp_path


def text(exchange: Exchange) -> str:
    result = json.loads(exchange.result)
    assert not result.get("isError"), result
    return "".join(block["text"] for block in result["content"])


async def call(client: McpClient, tool: str, options: CallOptions | None = None, **arguments: Any) -> Exchange:
    return await client.call_tool(tool, json.dumps(arguments).encode(), options or CallOptions())


@every_server
async def test_a_server_lists_its_tools_and_answers_calls(case: Case, folder: Path) -> None:
    async with case.start(folder) as running:
        page = await running.client.list_tools()
        assert case.tool in {tool["name"] for tool in json.loads(page.result)["tools"]}
        answer = await call(running.client, case.tool, **case.arguments(folder))
        assert case.says in text(answer)
        assert (page.revision, answer.revision) == (case.revision, case.revision)


@every_server
async def test_a_server_that_died_between_two_calls_is_called_again_as_if_nothing_had_been(
    case: Case, folder: Path
) -> None:
    async with case.start(folder) as running:
        for _ in range(3):
            assert case.says in text(await call(running.client, case.tool, **case.arguments(folder)))
            await running.die()
        assert case.says in text(await call(running.client, case.tool, **case.arguments(folder)))


@every_server
async def test_calls_at_once_each_get_their_own_answer(case: Case, folder: Path) -> None:
    async with case.start(folder) as running:
        calls = [call(running.client, case.tool, **case.arguments(folder)) for _ in range(20)]
        assert all(case.says in text(answer) for answer in await asyncio.gather(*calls))


@each_with_notes
async def test_a_call_that_was_under_way_when_the_server_died_is_in_doubt_and_the_next_one_goes_through(
    case: Case, folder: Path
) -> None:
    async with case.start(folder) as running:
        begun = asyncio.Event()
        options = CallOptions(on_progress=lambda _: begun.set())
        waiting = asyncio.create_task(call(running.client, "wait", options))
        async with asyncio.timeout(LIMIT):
            await begun.wait()
        await running.die()
        with pytest.raises(ConnectionLostError) as lost:
            await waiting
        assert lost.value.delivery is Delivery.UNKNOWN
        assert case.says in text(await call(running.client, case.tool, **case.arguments(folder)))


@each_with_notes
async def test_progress_is_told_in_order(case: Case, folder: Path) -> None:
    told: list[Progress] = []
    async with case.start(folder) as running:
        answer = await call(running.client, "steps", CallOptions(on_progress=told.append), count=5)
    assert text(answer) == "5 steps"
    assert [(step.progress, step.total, step.message) for step in told] == [
        (step, 5, f"step {step}") for step in range(1, 6)
    ]


@each_with_notes
async def test_what_a_tool_says_of_its_failure_is_its_result(case: Case, folder: Path) -> None:
    async with case.start(folder) as running:
        result = json.loads((await call(running.client, "refuse", reason="not today")).result)
    assert result["isError"] is True
    assert "not today" in result["content"][0]["text"]


@each_with_notes
async def test_resources_templates_and_prompts_are_listed_and_read(case: Case, folder: Path) -> None:
    async with case.start(folder) as running:
        client = running.client
        assert json.loads((await client.list_resources()).result)["resources"][0]["uri"] == "note://today"
        templates = json.loads((await client.list_resource_templates()).result)["resourceTemplates"]
        assert templates[0]["uriTemplate"] == "note://{day}"
        for uri, note in (("note://today", "a note"), ("note://monday", "a note of monday")):
            assert json.loads((await client.read_resource(uri)).result)["contents"][0]["text"] == note
        assert json.loads((await client.list_prompts()).result)["prompts"][0]["name"] == "review"
        prompt = json.loads((await client.get_prompt("review", b'{"text":"this"}')).result)
        assert prompt["messages"][0]["content"]["text"] == "Review this: this"


@each_with_notes
async def test_a_resource_that_is_not_there_is_an_error_of_the_server(case: Case, folder: Path) -> None:
    async with case.start(folder) as running:
        with pytest.raises(RpcError):
            await running.client.read_resource("nothing://here")


@pytest.mark.parametrize("name", ["everything over stdio", "everything over HTTP"])
async def test_the_everything_server_reads_prompts_completes_and_tells_progress(name: str, folder: Path) -> None:
    told: list[Progress] = []
    async with CASES[name].start(folder) as running:
        client = running.client
        listed = json.loads((await client.list_resources()).result)["resources"]
        read = json.loads((await client.read_resource(listed[0]["uri"])).result)
        assert read["contents"][0]["uri"] == listed[0]["uri"]
        prompt = json.loads((await client.get_prompt("simple-prompt", None)).result)
        assert prompt["messages"][0]["role"] == "user"
        reference = {"type": "ref/prompt", "name": "completable-prompt"}
        wanted = {"ref": reference, "argument": {"name": "department", "value": "E"}}
        completion = json.loads((await client.complete(json.dumps(wanted).encode())).result)["completion"]
        assert completion["values"] == ["Engineering"]
        options = CallOptions(on_progress=told.append)
        answer = await call(client, "trigger-long-running-operation", options, duration=0.2, steps=4)
        assert "completed" in text(answer)
    assert [step.progress for step in told] == [1, 2, 3, 4]


async def test_a_page_is_fetched_and_one_that_is_not_there_is_a_result_that_says_so() -> None:
    async with client_of(command=real_servers.fetch()) as client, real_servers.page("what the page says") as url:
        assert "what the page says" in text(await call(client, "fetch", url=url))
        failed = await call(client, "fetch", url="http://127.0.0.1:1/")
        assert json.loads(failed.result)["isError"] is True
        assert failed.revision == MODERN


async def test_a_file_is_written_and_read_and_one_outside_is_not(folder: Path) -> None:
    command = real_servers.filesystem(folder)
    async with client_of(command=command, minimum_revision=LEGACY) as client:
        await call(client, "write_file", path=str(folder / "new"), content="Grüße")
        assert text(await call(client, "read_text_file", path=str(folder / "new"))) == "Grüße"
        outside = json.loads((await call(client, "read_text_file", path="/etc/hostname")).result)
    assert (folder / "new").read_text() == "Grüße"
    assert outside["isError"] is True


@pytest.mark.parametrize("name", ["legacy over stdio", "legacy over HTTP"])
async def test_a_question_of_an_older_server_is_answered_by_whoever_is_there(name: str) -> None:
    asked: list[tuple[str, Any]] = []

    async def answer(method: str, params: bytes) -> bytes:
        asked.append((method, json.loads(params)["message"]))
        return b'{"action":"accept","content":{"name":"Ada"}}'

    running = (
        over_stdio(real_servers.legacy(), LEGACY, answer)
        if name.endswith("stdio")
        else over_http(real_servers.legacy_http, LEGACY, answer)
    )
    async with running as server:
        assert text(await call(server.client, "greet")) == "Hello, Ada"
    assert asked == [("elicitation/create", "Who are you?")]


@pytest.mark.parametrize("name", ["legacy over stdio", "legacy over HTTP"])
async def test_an_older_server_whose_client_has_nobody_to_ask_is_told_so(name: str, folder: Path) -> None:
    async with CASES[name].start(folder) as running:
        result = json.loads((await call(running.client, "greet")).result)
    assert result["isError"] is True


@pytest.mark.parametrize(
    "start",
    [
        lambda: over_stdio(real_servers.legacy(), MODERN),
        lambda: over_stdio(real_servers.everything(), MODERN),
        lambda: over_http(real_servers.legacy_http, MODERN),
        lambda: over_http(real_servers.everything_http, MODERN),
    ],
    ids=["legacy over stdio", "everything over stdio", "legacy over HTTP", "everything over HTTP"],
)
async def test_an_older_server_is_not_spoken_to_unless_the_settings_say_so(
    start: Callable[[], AbstractAsyncContextManager[Running]],
) -> None:
    async with start() as running:
        with pytest.raises(NoCommonRevisionError, match="minimum_revision") as refused:
            await running.client.list_tools()
        assert refused.value.below_floor


@pytest.mark.parametrize(
    ("server", "revision"),
    [
        (real_servers.fast_http, MODERN),
        (real_servers.legacy_http, LEGACY),
        (real_servers.everything_http, LEGACY),
    ],
    ids=["fast", "legacy", "everything"],
)
async def test_a_server_that_is_down_is_not_sent_to_and_no_verdict_on_what_it_speaks(
    server: Callable[[], AbstractAsyncContextManager[HttpServer]], revision: str
) -> None:
    async with server() as http, client_of(url=http.url, minimum_revision="2025-03-26") as client:
        await http.kill()
        for _ in range(2):
            with pytest.raises(ConnectError) as down:
                await client.list_tools()
            assert down.value.delivery is Delivery.NOT_SENT
        await http.start()
        assert (await client.list_tools()).revision == revision
        await http.kill()
        with pytest.raises(ConnectError):
            await client.list_tools()
        await http.start()
        assert (await client.list_tools()).revision == revision
