"""`worker.py health` and `worker.py tools --cursor`: what servers say of themselves, asked directly."""

from __future__ import annotations

import asyncio
import json
import signal
import sys

from tests.integration.cli.conftest import PAGES
from tests.support.cli import cli, serving
from tests.support.fake_server import DISCOVER, FakeServer, error_reply
from tests.support.legacy_server import LegacyServer

CHATTY = """
import json, sys

RESULT = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "chatty", "version": "1"},
    "tools": [{"name": "one", "inputSchema": {}}],
}
print("I have started", file=sys.stderr, flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if "cursor" in asked["params"]:
        sys.exit("no such page")
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": RESULT}), flush=True)
"""


async def test_a_server_that_answers_is_reachable(dev):
    prose, value = await asyncio.gather(dev.cli("health", "fake"), dev.cli("health", "fake", "--json"))
    assert (prose.status, prose.out) == (0, b"fake is reachable\n")
    assert value.status == 0
    assert value.json["state"] == "reachable"
    assert DISCOVER in value.out


async def test_a_server_that_does_not_answer_is_unreachable(dev):
    done = await dev.cli("health", "gone", "--json")
    assert (done.status, done.json["state"]) == (1, "unreachable")
    error = done.json["error"]
    assert (error["code"], error["details"]["delivery"]) == ("upstream_unavailable", "not_sent")
    assert "no connection to the server" in error["message"]


async def test_why_a_server_is_not_reachable_is_told_to_people(dev):
    done = await dev.cli("health", "gone")
    assert (done.status, done.out) == (1, b"gone is unreachable\n")
    assert done.err.startswith("upstream_unavailable, delivery not_sent: no connection to the server")


async def test_a_server_of_another_era_is_incompatible(dev):
    async def refuse(request):
        return error_reply(request, -32601, "Method not found")

    async with FakeServer(refuse) as old:
        at = {"OPENWOP_MCP__SERVERS__OLD__URL": old.url}
        prose, value = await asyncio.gather(dev.cli("health", "old", **at), dev.cli("health", "old", "--json", **at))
    assert (prose.status, prose.out) == (1, b"old is incompatible\n")
    assert (value.status, value.json["state"], "revision" in value.json) == (1, "incompatible", False)
    error = value.json["error"]
    assert prose.err == f"{error['code']}, delivery {error['details']['delivery']}: {error['message']}\n"


async def test_a_server_of_an_older_revision_that_is_allowed_is_reachable_at_that(dev):
    async with FakeServer(LegacyServer()) as old:
        at = {
            "OPENWOP_MCP__SERVERS__OLD__URL": old.url,
            "OPENWOP_MCP__SERVERS__OLD__MINIMUM_REVISION": "2025-11-25",
        }
        prose, value = await asyncio.gather(dev.cli("health", "old", **at), dev.cli("health", "old", "--json", **at))
    assert (prose.status, prose.out, prose.err) == (0, b"old is reachable at MCP 2025-11-25\n", "")
    assert (value.status, value.json) == (0, {"state": "reachable", "revision": "2025-11-25"})


async def test_why_a_page_cannot_be_listed_is_told_with_code_and_delivery(dev):
    public = {"OPENWOP_MCP__SERVERS__FAKE__NETWORK": "public"}
    page = ("tools", "list", "fake", "--cursor", "")
    prose, value = await asyncio.gather(dev.cli(*page, **public), dev.cli(*page, "--json", **public))
    assert (prose.status, prose.out) == (1, b"")
    assert prose.err.startswith("egress_denied, delivery not_sent: the address 127.0.0.1 ")
    error = value.json["error"]
    assert (error["code"], error["details"]["delivery"]) == ("egress_denied", "not_sent")
    assert error["details"]["address"] == "127.0.0.1"


async def test_what_a_program_writes_to_standard_error_is_in_a_workers_log_and_drowns_no_answer(dev, tmp_path):
    program = tmp_path / "chatty.py"
    program.write_text(CHATTY, encoding="utf-8")
    config = tmp_path / "settings.toml"
    command = json.dumps([sys.executable, str(program)])
    settings = dev.settings.read_text(encoding="utf-8")
    config.write_text(f"{settings}\n[servers.chatty]\ncommand = {command}\n", encoding="utf-8")
    listed, unknown = await asyncio.gather(
        *(cli("tools", "chatty", "--config", str(config), *more) for more in ((), ("--cursor", "x")))
    )
    queue = {"OPENWOP_MCP__WORKER__TASK_QUEUE": "chatty"}
    async with serving("run", "--config", str(config), **queue) as run:
        assert (await cli("call", "chatty", "one", "--config", str(config), **queue)).status == 0
        done = await run.end(signal.SIGTERM)
    assert "I have started" in done.err
    assert listed.status == 0
    assert "I have started" not in listed.err
    assert "one" in listed.text
    # Where it dies, its last words are why.
    assert unknown.status == 1
    assert "no such page" in unknown.err


async def test_an_unknown_server_is_not_found(dev):
    done = await dev.cli("health", "nobody", "--json")
    assert (done.status, done.json["error"]["code"]) == (1, "not_found")
    assert "openwop-mcp.toml" not in done.json["error"]["message"]


async def test_where_there_is_no_settings_file_an_unknown_server_says_so(tmp_path):
    done = await cli("health", "nobody", cwd=tmp_path)
    assert done.status == 1
    assert f"(no openwop-mcp.toml in {tmp_path})" in done.err


async def test_one_page_of_tools_is_listed_where_its_cursor_is_given_and_the_next_one_is_named(dev):
    done = await dev.cli("tools", "fake", "--cursor", "")
    assert done.status == 0
    assert "two" in done.text
    assert "one" not in done.text
    assert done.err == "more tools follow: --cursor 'it'\"'\"'s'\n"


async def test_a_cursor_is_forwarded_as_it_stands_and_the_page_is_unaltered(dev):
    before = len(dev.server.requests)
    pages = await asyncio.gather(
        *(dev.cli("tools", "list", "fake", "--cursor", cursor, "--json") for cursor in ("", "it's"))
    )
    assert [(page.status, page.out) for page in pages] == [(0, PAGES[""] + b"\n"), (0, PAGES["it's"] + b"\n")]
    asked = [request.json["params"].get("cursor") for request in dev.server.requests[before:]]
    # Lists in the background have none, or go on from the first page.
    assert {"", "it's"} <= set(asked)


async def test_a_page_of_an_unusual_shape_is_shown_as_empty_and_kept_in_json(dev):
    odd = ("tools", "fake", "--cursor", "odd")
    prose, value = await asyncio.gather(dev.cli(*odd), dev.cli(*odd, "--json"))
    assert (prose.status, value.status) == (0, 0)
    assert value.out == PAGES["odd"] + b"\n"
