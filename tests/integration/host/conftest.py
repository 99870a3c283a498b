"""One server of MCP and one `worker.py dev` for the tests that drive a host from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import host.catalog
from activities import overlay
from host import history, jwks, records, updates
from openwop_mcp import catalogs
from tests.support.fake_server import FakeServer, Reply, Request, error_reply, modern
from tests.support.host_process import HostProcess, host_process
from tests.support.patience import PATIENCE
from tests.support.questions import input_required

CALLED = b"""\
{ "content":[{"type":"text","text":"sunny \\u2600"}],"structuredContent":{"low":1.10,"seen":123456789012345678901234,
  "e":1E400,"note":null},"_meta":{"example.org/seen":"once"},"resultType":"complete","future":[] }"""
FAILED = b'{"content":[{"type":"text","text":"no such city"}],"isError":true,"resultType":"complete"}'
PAGES = {
    None: b'{"tools":[{"name":"echo","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"x":1.0}],'
    b'"nextCursor":"page:2","ttlMs":0,"cacheScope":"private","resultType":"complete"}',
    "page:2": b'{"tools":[], "ttlMs":0,"cacheScope":"private","resultType":"complete"}',
}
READ = b'{"contents":[{"uri":"fake://one","text":"one","size":3.00}],"ttlMs":0,"cacheScope":"private"}'
DISCOVER = (
    b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private",'
    b'"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"fake","version":"1.10"}}}'
)
ANOTHER_ERA = DISCOVER.replace(b"2026-07-28", b"2099-01-01")
REFUSAL = {"why": "none of these", "of": [1, 2]}


def _refuses(request: Request) -> Reply:
    return error_reply(request, -32602, "no such tool", REFUSAL)


def _asks_again(request: Request) -> bytes:
    number = int(request.json["params"].get("requestState", "0")) + 1
    schema = {"type": "object", "properties": {"who": {"type": "string"}}}
    params = {"message": f"Who is number {number}?", "requestedSchema": schema}
    return input_required({"who": {"method": "elicitation/create", "params": params}}, str(number))


_TOOLS: dict[str, bytes | Callable[[Request], bytes | Reply]] = {
    "fails": FAILED,
    "refuses": _refuses,
    "needs_input_loop": _asks_again,
}


def _called(request: Request) -> bytes | Reply:
    answer = _TOOLS.get(request.json["params"]["name"], CALLED)
    return answer(request) if callable(answer) else answer


def _listed(request: Request) -> bytes:
    return PAGES[request.json["params"].get("cursor")]


def _discovered(request: Request) -> bytes:
    return ANOTHER_ERA if request.path == "/another-era" else DISCOVER


@pytest.fixture(autouse=True)
def patient() -> Iterator[None]:
    """Hosts and workers of this process wait as long as a test does; how long they do else is for a test of that."""
    # A context of its own: a test may undo its `monkeypatch`.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host.catalog, "WAIT", PATIENCE)
        patch.setattr(catalogs, "FRESH_WITHIN", PATIENCE)
        # What Temporal is given for an answer that it has at once.
        patch.setattr(catalogs, "SECONDS", timedelta(seconds=PATIENCE))
        patch.setattr(history, "SECONDS", PATIENCE)
        for module in (jwks, overlay, records, updates):
            patch.setattr(module, "PATIENCE", PATIENCE)
        yield


@pytest.fixture(scope="session")
async def mcp() -> AsyncIterator[FakeServer]:
    """A server that takes what lacks the headers of MCP 2026-07-28 for none of its own."""
    answers: dict[str, Any] = {
        "tools/call": _called,
        "tools/list": _listed,
        "resources/read": READ,
        "server/discover": _discovered,
    }
    async with FakeServer(modern(answers)) as server:
        yield server


@pytest.fixture(scope="session")
async def dev(mcp: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostProcess]:
    """`worker.py dev` as the conformance suite wants it: its workflows, and its servers."""
    servers = {
        "conformance": mcp.url,
        "conformance-another-era": mcp.url.replace("/mcp", "/another-era"),
        "conformance-down": "http://127.0.0.1:9/mcp",
        '"conformance.down"': "http://127.0.0.1:9/mcp",
    }
    tables = [f'[servers.{name}]\nurl = "{url}"\nnetwork = "private"\n' for name, url in servers.items()]
    settings = "\n".join(["[host]\nfixtures = true\n\n[limits]\ncall_bytes = 1048576\n", *tables])
    async with host_process("dev", settings, tmp_path_factory.mktemp("host")) as running:
        yield running
