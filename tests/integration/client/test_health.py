"""Three states of a server, from a discover probe no older than the server allows."""

from __future__ import annotations

import json

import pytest

from openwop_mcp import jsontext
from openwop_mcp.client import McpClient, health, probe
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.errors import NoCommonRevisionError
from tests.support.fake_server import FakeServer, Handler, Reply, error_reply, modern
from tests.support.mcp_client import client_of, connected, json_reply, replies, stream_reply

DISCOVERED = (
    b'{ "supportedVersions":["2025-11-25","2026-07-28"],"ttlMs":%b ,"capabilities":{},"n":1.10,"x":"\\u00e9",'
    b'"resultType":"complete"}'
)


class Clock:
    """Seconds that pass when told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


async def _health(client: McpClient) -> tuple[str, bytes | None]:
    result = (await health(client)).result
    members = jsontext.members(result)
    assert [name for name, _ in members] in (["state"], ["state", "discover"])
    state = jsontext.decode(members[0][1])
    return state, dict(members).get("discover")


async def test_a_server_with_our_revision_is_reachable_and_its_words_are_unaltered() -> None:
    said = DISCOVERED % b"0"
    async with connected(modern({"server/discover": said})) as (client, server):
        assert await _health(client) == ("reachable", said)
        exchange = await health(client)
        assert (exchange.http_status, exchange.revision) == (200, "2026-07-28")
        assert {request.json["method"] for request in server.requests} == {"server/discover"}


@pytest.mark.parametrize("versions", [b'["2025-11-25"]', b"[]", b'"2026-07-28"', b"null", b"[[]]"])
async def test_a_server_without_our_revision_is_incompatible_and_still_shown(versions: bytes) -> None:
    said = b'{"supportedVersions":' + versions + b"}"
    async with connected(modern({"server/discover": said})) as (client, _):
        assert await _health(client) == ("incompatible", said)


async def test_why_a_server_is_not_reachable_is_known_beside_its_state() -> None:
    async with connected(modern({"server/discover": b'{"supportedVersions":["2025-11-25"]}'})) as (client, _):
        _, reason = await probe(client)
        assert "offers 2025-11-25" in str(reason)
    async with connected(modern({"server/discover": DISCOVERED % b"0"})) as (client, _):
        _, reason = await probe(client)
        assert reason is None


async def test_a_result_that_names_no_revision_is_incompatible() -> None:
    async with connected(modern({"server/discover": b"{}"})) as (client, _):
        assert await _health(client) == ("incompatible", b"{}")


LEGACY = {
    "not initialized": json_reply(
        b'{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: Server not initialized"},"id":null}', 400
    ),
    "no session": json_reply(
        b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: Missing session ID"}}',
        400,
    ),
    "version": json_reply(
        b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Unsupported protocol version"}}', 400
    ),
    "unknown method": json_reply(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}', 404),
    "unknown method, 200": json_reply(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"m"}}'),
    "on a stream": stream_reply(b'data: {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"m"}}\n\n'),
}


@pytest.mark.parametrize("name", LEGACY)
async def test_a_json_rpc_error_of_an_older_server_is_incompatible(name: str) -> None:
    async with connected(replies(LEGACY[name])) as (client, server):
        assert await _health(client) == ("incompatible", None)
        assert len(server.requests) == 1


async def test_a_server_that_speaks_of_other_revisions_is_incompatible() -> None:
    async def handler(request) -> Reply:
        return error_reply(request, -32022, "m", {"supported": ["2025-11-25"], "requested": "2026-07-28"}, status=400)

    async with connected(handler) as (client, server):
        assert await _health(client) == ("incompatible", None)
        assert len(server.requests) == 1


UNREACHABLE: dict[str, Reply | None] = {
    "page": Reply(headers=[("Content-Type", "text/html")], body=b"<p>"),
    "no endpoint": Reply(status=404, body=b"nope"),
    "no access": Reply(status=401),
    "too many": Reply(status=429, headers=[("Retry-After", "9")]),
    "down": Reply(status=503),
    "broken": json_reply(b"{"),
    "closed": None,
    "silent": Reply(stall="head"),
    "redirect": Reply(status=308, headers=[("Location", "http://127.0.0.2:9/other")]),
    "too large": json_reply(b" " * 200_000),
}


@pytest.mark.parametrize("name", UNREACHABLE)
async def test_what_is_no_json_rpc_answer_is_unreachable(name: str) -> None:
    async with connected(replies(lambda _: UNREACHABLE[name]), first_byte=1.0, response_bytes=100_000) as (
        client,
        server,
    ):
        assert await _health(client) == ("unreachable", None)
        assert len(server.requests) == 1


async def test_a_server_that_is_not_there_is_unreachable() -> None:
    async with FakeServer(modern()) as server:
        url = server.url
    async with HttpPool() as transport:
        assert await _health(client_of(url, transport)) == ("unreachable", None)


def _saying(ttl: bytes) -> Handler:
    return modern({"server/discover": DISCOVERED % ttl})


async def test_a_probe_is_used_again_for_as_long_as_the_server_allows() -> None:
    clock = Clock()
    async with connected(_saying(b"1500"), options={"clock": clock}) as (client, server):
        first = await _health(client)
        clock.now += 1.4
        assert await _health(client) == first
        assert len(server.requests) == 1
        clock.now += 0.2
        assert await _health(client) == first
        assert len(server.requests) == 2


async def test_the_age_of_a_probe_counts_from_when_it_was_asked() -> None:
    clock = Clock()

    async def slow(request) -> bytes:
        clock.now += 1.0
        return DISCOVERED % b"1500"

    async with connected(modern({"server/discover": slow}), options={"clock": clock}) as (client, server):
        await health(client)
        clock.now += 0.6
        await health(client)
        assert len(server.requests) == 2


@pytest.mark.parametrize("ttl", [b"0", b"-1", b"null", b'"60000"', b"true", b"[]", b"-1e400", b"-" + b"9" * 400])
async def test_a_probe_without_a_time_to_live_is_not_used_again(ttl: bytes) -> None:
    async with connected(_saying(ttl), options={"clock": Clock()}) as (client, server):
        await health(client)
        await health(client)
        assert len(server.requests) == 2


async def test_a_probe_whose_time_to_live_is_absent_is_not_used_again() -> None:
    async with connected(
        modern({"server/discover": b'{"supportedVersions":["2026-07-28"]}'}), options={"clock": Clock()}
    ) as (
        client,
        server,
    ):
        await health(client)
        await health(client)
        assert len(server.requests) == 2


@pytest.mark.parametrize("ttl", [b"9" * 400, b"1e300", b"86400000"])
async def test_no_server_pins_what_is_thought_of_it_for_longer_than_an_hour(ttl: bytes) -> None:
    clock = Clock()
    async with connected(_saying(ttl), options={"clock": clock}) as (client, server):
        await health(client)
        clock.now += 3599
        await health(client)
        assert len(server.requests) == 1
        clock.now += 2
        await health(client)
        assert len(server.requests) == 2


async def test_a_failure_is_never_remembered() -> None:
    answers = iter([None, DISCOVERED % b"60000", Reply(status=503)])

    async def answer(request) -> bytes | Reply | None:
        return next(answers)

    clock = Clock()
    async with connected(modern({"server/discover": answer}), options={"clock": clock}) as (client, server):
        assert (await _health(client))[0] == "unreachable"
        assert (await _health(client))[0] == "reachable"
        assert (await _health(client))[0] == "reachable"
        assert len(server.requests) == 2
        clock.now += 61
        assert (await _health(client))[0] == "unreachable"


async def test_an_incompatible_answer_that_is_an_error_is_never_remembered() -> None:
    answers = iter([error_reply, lambda *_: None])

    async def answer(request) -> bytes | Reply | None:
        make = next(answers)
        return make(request, -32601, "m", None, 404) or DISCOVERED % b"0"

    async with connected(modern({"server/discover": answer})) as (client, _):
        assert (await _health(client))[0] == "incompatible"
        assert (await _health(client))[0] == "reachable"


async def test_health_speaks_of_no_connection_and_no_session() -> None:
    async with connected(modern()) as (client, _):
        state = json.loads((await health(client)).result)
    assert set(state) == {"state", "discover"}


async def test_why_an_older_server_is_incompatible_names_the_setting() -> None:
    async with connected(replies(LEGACY["no session"])) as (client, _):
        _, reason = await probe(client)
    assert isinstance(reason, NoCommonRevisionError)
    assert "minimum_revision" in reason.message
