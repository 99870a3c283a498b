"""One server and one `worker.py dev` for the tests of the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.cli import Done, Serving, cli, serving
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern, notice_event, result_reply
from tests.support.quiet import logging_undone

HOSTILE = "a\x1b]0;owned\x07b\x9b31mc\u202edc\u2066e\x00f\r\x08g"
"""A title of the window, a colour by its C1 byte, a reversed and an isolated text, and what overwrites a line."""

FAILED = b'{"resultType":"complete","content":[{"type":"text","text":"no such city"}],"isError":true}'
LARGE = b'{"content":[{"type":"text","text":"%b"}],"structuredContent":{"n":1.10}}' % (b"x" * 3_000_000)
ODD = b'{ "structuredContent":{"n":1.10,"big":123456789012345678901234,"s":"\\u00e9"}, "content":[], "x":1E400 }'
PAGES = {
    None: b'{"tools":[{"name":"one","inputSchema":{},"description":"First tool.\\nMore of it."}],"nextCursor":""}',
    "": b'{"tools":[{"name":"two","inputSchema":{}}],"nextCursor":"it\'s"}',
    "it's": b'{"tools":[]}',
    "odd": b'{"tools":{"name":"three"},"nextCursor":7}',
    "checked": b'{"tools":[{"name":"checked","inputSchema":{},"outputSchema":{"properties":{"n":{"type":"number"}}}}],'
    b'"ttlMs":600000,"cacheScope":"public"}',
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Some tests run a command in this process."""
    with logging_undone():
        yield


def _hostile_result() -> bytes:
    return json.dumps({"content": [{"type": "text", "text": HOSTILE}]}, ensure_ascii=False).encode()


STEPS = (asyncio.Event(), asyncio.Event())
"""What `steps` waits for: to tell that it has gone on, and to answer."""


def _steps(request: Request) -> Reply:
    token = request.json["params"]["_meta"]["progressToken"]
    answer = result_reply(request, b'{"content":[{"type":"text","text":"read"}]}', "sse")
    assert answer.chunks is not None
    pages = [
        notice_event("progress", progressToken=token, progress=number, total=10, message=f"page {number}\n{HOSTILE}")
        for number in (3, 7)
    ]
    return Reply(headers=answer.headers, chunks=[pages[0], STEPS[0], pages[1], STEPS[1], *answer.chunks])


def _refused(request: Request) -> Reply:
    return error_reply(request, -32602, f"no: {HOSTILE}", {"why": 1})


def _asking(**requests: dict[str, object]) -> Callable[[Request], bytes]:
    """Asks, and then tells what it was answered."""
    asked = {key: {"method": "elicitation/create", "params": params} for key, params in requests.items()}

    def answer(request: Request) -> bytes:
        given = request.json["params"].get("inputResponses")
        if given is None:
            told = {"resultType": "input_required", "inputRequests": asked, "requestState": HOSTILE}
        else:
            told = {"content": [{"type": "text", "text": json.dumps(given)}]}
        return json.dumps(told, ensure_ascii=False).encode()

    return answer


BOOKING = {
    "type": "object",
    "properties": {
        "day": {"type": "string", "format": "date", "title": HOSTILE},
        "people": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2},
        "extras": {"type": "array", "items": {"anyOf": [{"const": "c", "title": "Cake"}, {"const": HOSTILE}]}},
    },
    "required": ["day"],
}
PAYING = "https://xn--pple-43d.example/pay?for=1"

CALLED: dict[str, bytes | Reply | Callable[[Request], bytes | Reply]] = {
    "fails": FAILED,
    "refuses": _refused,
    "hostile": _hostile_result(),
    "odd": ODD,
    "empty": b'{"resultType":"complete","content":[]}',
    "large": LARGE,
    "checked": b'{"structuredContent":{"n":"one"},"content":[]}',
    "steps": _steps,
    "stalls": Reply(stall="head"),
    "doubtful": Reply(503),
    "asks": _asking(
        who={"mode": "form", "message": f"When?\n{HOSTILE}", "requestedSchema": BOOKING},
        pay={"mode": "url", "message": "Pay first", "url": PAYING},
    ),
}
"""What tools answer; any other is done."""


def _called(request: Request) -> bytes | Reply:
    answer = CALLED.get(request.json["params"]["name"], b'{"content":[{"type":"text","text":"done"}]}')
    return answer(request) if callable(answer) else answer


def _listed(request: Request) -> bytes:
    cursor = request.json["params"].get("cursor")
    if cursor == "hostile":
        tool = {"name": HOSTILE, "description": HOSTILE}
        return json.dumps({"tools": [tool], "nextCursor": HOSTILE}, ensure_ascii=False).encode()
    return PAGES[cursor]


@pytest.fixture(scope="session")
async def server() -> AsyncIterator[FakeServer]:
    async with FakeServer(modern({"tools/call": _called, "tools/list": _listed})) as fake:
        yield fake


@pytest.fixture
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands that run in this process: a test fails if they go on to ask anybody for anything."""

    def refuse(_main: object) -> None:
        raise AssertionError("something was started")

    monkeypatch.setattr("asyncio.run", refuse)
    monkeypatch.setattr("uvloop.run", refuse)


@dataclass(frozen=True)
class Dev:
    """A running `worker.py dev`, and settings for other commands against it."""

    serving: Serving
    settings: Path
    server: FakeServer

    async def cli(self, *arguments: str, cwd: Path | None = None, **env: str) -> Done:
        """A command with these settings; `--config` comes last, after the arguments."""
        return await cli(*arguments, "--config", str(self.settings), cwd=cwd, **env)


def settings_text(server: FakeServer, address: str = "127.0.0.1:1") -> str:
    return f"""\
[temporal]
address = "{address}"

[host]
workflows = ["{Path(__file__).parent / "flows"}"]
fixtures = true

[worker]
tenant = "acme"
shutdown_grace = 1

[servers.fake]
url = "{server.url}"
network = "private"
retry = {{ attempts = 1 }}

[servers.fake.tools.doubtful]
on_doubt = "ask"

[servers.gone]
url = "http://127.0.0.1:9/mcp"
network = "private"

[servers.narrow]
url = "{server.url}"
network = "private"
limits = {{ in_flight = 1 }}

[servers.old]
url = "{server.url.replace("/mcp", "/old")}"
network = "private"

[servers.others]
url = "{server.url}"
tenants = ["someone-else"]
"""


@pytest.fixture(scope="session")
async def dev(server: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Dev]:
    settings = tmp_path_factory.mktemp("cli") / "settings.toml"
    settings.write_text(settings_text(server), encoding="utf-8")
    async with serving("dev", "--config", str(settings)) as running:
        settings.write_text(settings_text(server, running.facts["temporal"]), encoding="utf-8")
        yield Dev(running, settings, server)
