"""`worker.py health` and `worker.py tools`: what servers say of themselves, asked directly."""

from __future__ import annotations

import asyncio

from tests.integration.cli.conftest import PAGES
from tests.support.cli import cli
from tests.support.fake_server import DISCOVER, FakeServer, error_reply


async def test_a_server_that_answers_is_reachable(dev):
    prose, value = await asyncio.gather(dev.cli("health", "fake"), dev.cli("health", "fake", "--json"))
    assert (prose.status, prose.out) == (0, b"fake is reachable\n")
    assert value.status == 0
    assert value.json["state"] == "reachable"
    assert DISCOVER in value.out


async def test_a_server_that_does_not_answer_is_unreachable(dev):
    done = await dev.cli("health", "gone", "--json")
    assert (done.status, done.json) == (1, {"state": "unreachable"})


async def test_why_a_server_is_not_reachable_is_told_to_people(dev):
    done = await dev.cli("health", "gone")
    assert (done.status, done.out) == (1, b"gone is unreachable\n")
    assert "no connection to the server" in done.err


async def test_a_server_of_another_era_is_incompatible(dev):
    async def refuse(request):
        return error_reply(request, -32601, "Method not found")

    async with FakeServer(refuse) as old:
        done = await dev.cli("health", "old", OPENWOP_MCP__SERVERS__OLD__URL=old.url)
    assert (done.status, done.out) == (1, b"old is incompatible\n")
    assert "Method not found" in done.err


async def test_an_unknown_server_is_not_found(dev):
    done = await dev.cli("health", "nobody", "--json")
    assert (done.status, done.json["error"]["code"]) == (1, "not_found")
    assert "openwop-mcp.toml" not in done.json["error"]["message"]


async def test_where_there_is_no_settings_file_an_unknown_server_says_so(tmp_path):
    done = await cli("health", "nobody", cwd=tmp_path)
    assert done.status == 1
    assert f"(no openwop-mcp.toml in {tmp_path})" in done.err


async def test_tools_are_listed_one_page_at_a_time_and_the_next_one_is_named(dev):
    done, whole = await asyncio.gather(dev.cli("tools", "fake"), dev.cli("tools", "list", "fake"))
    assert done.status == 0
    assert done == whole
    assert "one" in done.text
    assert "First tool." in done.text
    assert "More of it" not in done.text
    assert "--cursor ''" in done.err


async def test_a_cursor_is_forwarded_as_it_stands_and_the_page_is_unaltered(dev):
    before = len(dev.server.requests)
    pages = await asyncio.gather(
        *(dev.cli("tools", "list", "fake", "--cursor", cursor, "--json") for cursor in ("", "it's"))
    )
    assert [(page.status, page.out) for page in pages] == [(0, PAGES[""] + b"\n"), (0, PAGES["it's"] + b"\n")]
    assert {request.json["params"]["cursor"] for request in dev.server.requests[before:]} == {"", "it's"}


async def test_a_page_of_an_unusual_shape_is_shown_as_empty_and_kept_in_json(dev):
    odd = ("tools", "fake", "--cursor", "odd")
    prose, value = await asyncio.gather(dev.cli(*odd), dev.cli(*odd, "--json"))
    assert (prose.status, value.status) == (0, 0)
    assert value.out == PAGES["odd"] + b"\n"
