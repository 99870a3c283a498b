"""Redirects: followed within the origin with all that a request has, told and not followed anywhere else."""

from __future__ import annotations

import asyncio

import httpx
import pytest
import yarl
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.client import _pool
from openwop_mcp.client._pool import MAX_REDIRECTS, HttpPool, Reach, origin
from openwop_mcp.config import Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import ConnectionLostError, HttpStatusError, McpError, RateLimitedError, TimeLimitError
from tests.support.fake_server import FakeServer, Handler, Reply, Request, modern
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import ARGUMENTS, client_of, connected
from tests.support.patience import PATIENCE

CREDENTIAL = ("Authorization", "Bearer s3cr3t-s3cr3t")
MOVED = [301, 302, 307, 308]


def moving(location: str, *, status: int = 307, then: Handler | None = None, body: bytes = b"") -> Handler:
    """A server that has moved from its endpoint; elsewhere on it is another handler."""
    there = then or modern()

    async def handle(request: Request) -> Reply | None:
        if request.path == "/mcp":
            port = (request.header("Host") or "").rpartition(":")[2]
            return Reply(status=status, headers=[("Location", location.replace("PORT", port))], body=body)
        return await there(request)

    return handle


@pytest.mark.parametrize("status", MOVED)
@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/mcp/", "/mcp/"),
        ("v2/mcp", "/v2/mcp"),
        ("?v=2", "/mcp?v=2"),
        ("http://127.0.0.1:PORT/a%2Fb?c=d&e", "/a%2Fb?c=d&e"),
        ("HTTP://127.0.0.1:0PORT/upper", "/upper"),
        ("/with#fragment", "/with"),
        ("//127.0.0.1:PORT/scheme-relative", "/scheme-relative"),
        ("/a/../../b", "/b"),
    ],
)
async def test_within_the_origin_a_request_goes_on_whole(status: int, location: str, path: str) -> None:
    async with connected(moving(location, status=status), headers=[CREDENTIAL]) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).http_status == 200
        first, second = server.requests
    assert second.path == path
    assert (second.method, second.body) == (first.method, first.body) == ("POST", first.body)
    assert second.headers == first.headers
    assert second.header("Authorization") == CREDENTIAL[1]


async def test_a_request_of_two_megabytes_goes_on_whole_and_with_its_length() -> None:
    arguments = b'{"t":"' + b"x" * 2_000_000 + b'"}'
    async with connected(moving("/b")) as (client, server):
        await client.call_tool("t", arguments)
        first, second = server.requests
    assert first.body == second.body
    assert second.header("Content-Length") == str(len(second.body))


async def test_a_redirect_with_a_body_is_followed_all_the_same() -> None:
    async with connected(moving("/b", status=308, body=b"<h1>Moved</h1>" * 10_000)) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 2


@pytest.mark.parametrize("status", MOVED)
async def test_a_post_never_becomes_a_get(status: int) -> None:
    async with connected(moving("https://127.0.0.1:PORT/mcp", status=status)) as (client, server):
        with pytest.raises(HttpStatusError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert [request.method for request in server.requests] == ["POST"]
        assert caught.value.facts["location"] == f"https://127.0.0.1:{server.port}"
        assert f"from http://127.0.0.1:{server.port} to https://127.0.0.1:{server.port}" in caught.value.message


ELSEWHERE = {
    "another scheme": "https://127.0.0.1:PORT/b",
    "another port": "http://127.0.0.1:OTHER/b",
    "another host": "http://localhost:OTHER/b",
    "the same address by name": "http://localhost:PORT/b",
    "a port left out": "http://127.0.0.1/b",
    "only slashes": "//127.0.0.1:OTHER/b",
    "a trailing dot": "http://127.0.0.1.:PORT/b",
    "a short spelling of the address": "http://127.1:PORT/b",
    "a decimal spelling of the address": "http://2130706433:PORT/b",
    "a mapped spelling of the address": "http://[::ffff:127.0.0.1]:PORT/b",
    "us as the user of another": "http://127.0.0.1:PORT@127.0.0.1:OTHER/b",
    "us as the user of another behind a backslash": "http://127.0.0.1:PORT\\@127.0.0.1:OTHER/b",
    "a user of ours": "http://somebody@127.0.0.1:PORT/b",
    "a user and a password of ours": "http://somebody:else@127.0.0.1:PORT/b",
    "another protocol": "ftp://127.0.0.1:PORT/b",
    "no protocol of a network": "javascript:alert(1)",
    "a file": "file:///etc/passwd",
}


@pytest.mark.parametrize("status", MOVED)
@pytest.mark.parametrize("where", ELSEWHERE)
async def test_a_redirect_to_another_origin_is_told_and_not_followed(where: str, status: int) -> None:
    async with FakeServer(modern()) as other:
        location = ELSEWHERE[where].replace("OTHER", str(other.port))
        async with connected(moving(location, status=status), headers=[CREDENTIAL]) as (client, server):
            with pytest.raises(HttpStatusError) as caught:
                async with asyncio.timeout(PATIENCE):
                    await client.call_tool("t", ARGUMENTS)
            assert len(server.requests) == 1
        assert other.connections == 0
    error = caught.value
    assert (error.status, error.delivery, error.retryable) == (status, Delivery.NOT_PROCESSED, False)
    assert "which is not followed" in error.message
    assert "somebody" not in error.message + repr(error.facts)


@pytest.mark.parametrize(
    "location", ["\\\\127.0.0.1:OTHER\\b", "/\\127.0.0.1:OTHER/b", "http:\\\\127.0.0.1:OTHER/b", "http:/b", "///b"]
)
async def test_what_another_reader_may_take_for_another_origin_leads_to_none(location: str) -> None:
    async with FakeServer(modern()) as other:
        async with connected(moving(location.replace("OTHER", str(other.port)))) as (client, server):
            await client.call_tool("t", ARGUMENTS)
            assert [request.method for request in server.requests] == ["POST", "POST"]
        assert other.connections == 0


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("http://a.example/mcp", "http://a.example:80/b"),
        ("http://a.example:80/mcp", "http://a.example/b"),
        ("https://a.example/mcp", "https://a.example:443/b"),
        ("http://a.example/mcp", "HTTP://A.EXAMPLE/b"),
        ("http://A.example/mcp", "//a.Example:80/b"),
        ("http://b\u00fccher.example/mcp", "http://xn--bcher-kva.example/b"),
        ("http://[::1]:8080/mcp", "http://[::1]:8080/b"),
    ],
)
def test_an_origin_is_the_same_in_each_of_its_spellings(here: str, there: str) -> None:
    assert _within(here, there) is not None


@pytest.mark.parametrize(
    ("here", "there"),
    [
        ("https://a.example/mcp", "http://a.example:443/b"),
        ("http://a.example/mcp", "http://a.example:443/b"),
        ("http://a.example/mcp", "http://a.example./b"),
        ("http://a.example./mcp", "http://a.example/b"),
        ("http://a.example/mcp", "http://b.a.example/b"),
        ("http://a.example/mcp", "http://a.example.b/b"),
        ("http://[::1]/mcp", "http://[0:0:0:0:0:0:0:1%25lo]/b"),
        ("http://a.example/mcp", "http://a.example"),
        ("http://a.example/mcp", "http://a.example:99999/b"),
        ("http://a.example/mcp", "http://a.example:-1/b"),
        ("http://a.example/mcp", "http://a.ex\u0430mple/b"),
    ],
)
def test_what_only_looks_like_the_origin_is_another(here: str, there: str) -> None:
    found = _within(here, there)
    assert found is None or origin(found) == origin(httpx.URL(here)) == there


def _within(here: str, there: str) -> httpx.URL | None:
    headers = [(b"location", there.encode())]
    return _pool._within(httpx.Response(307, headers=headers, request=httpx.Request("POST", here)))


WORDS = ("http:", "https:", "a.example", "b.example", ":80", ":8080", "127.0.0.1", "::1", "%2f", "%40", "..", "0")
PIECES = st.sampled_from([*WORDS, *"/\\@#?[].;: \t\n\x00\u00e9\u3002\uff0f", "//"])


@given(st.lists(PIECES, max_size=8).map("".join) | st.text(max_size=20))
def test_no_redirect_leaves_the_origin_however_it_is_spelled_or_read(location: str) -> None:
    here = httpx.URL("http://a.example/mcp")
    there = _pool._within(
        httpx.Response(307, headers=[("location", location.encode())], request=httpx.Request("POST", here))
    )
    if there is not None:
        # What dials reads the text again, with a parser of its own.
        dialled = yarl.URL(str(there), encoded=True)
        assert (dialled.scheme, dialled.raw_host, dialled.port, dialled.user) == ("http", "a.example", 80, None)


@pytest.mark.parametrize("status", [300, 303, 304, 305, 306])
async def test_a_status_that_asks_for_no_repetition_is_not_followed_within_the_origin_either(status: int) -> None:
    async with connected(moving("/b", status=status)) as (client, server):
        with pytest.raises(HttpStatusError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1
    assert (caught.value.status, caught.value.delivery) == (status, Delivery.UNKNOWN)


async def _hops(request: Request) -> Reply:
    return Reply(status=308, headers=[("Location", f"{request.path}x")])


async def test_redirects_are_followed_five_times_and_then_told() -> None:
    assert MAX_REDIRECTS == 5
    async with connected(_hops) as (client, server):
        with pytest.raises(HttpStatusError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1 + MAX_REDIRECTS
    assert (caught.value.status, caught.value.delivery) == (308, Delivery.NOT_PROCESSED)


@pytest.mark.parametrize("location", ["/mcp", "", "http://127.0.0.1:PORT/mcp"])
async def test_a_redirect_to_itself_is_not_followed(location: str) -> None:
    async with connected(moving(location)) as (client, server):
        with pytest.raises(HttpStatusError):
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1


async def test_a_circle_ends() -> None:
    async with connected(moving("/b", then=moving("/mcp", then=_back))) as (client, server):
        with pytest.raises(HttpStatusError):
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1 + MAX_REDIRECTS


async def _back(request: Request) -> Reply:
    return Reply(status=307, headers=[("Location", "/mcp")])


async def test_a_redirect_that_leaves_the_origin_later_is_told_with_where_it_was() -> None:
    async with FakeServer(modern()) as other:
        target = f"http://127.0.0.1:{other.port}/mcp"

        async def onwards(request: Request) -> Reply:
            return Reply(status=307, headers=[("Location", target)])

        async with connected(moving("/b", then=onwards), headers=[CREDENTIAL]) as (client, server):
            with pytest.raises(HttpStatusError) as caught:
                await client.call_tool("t", ARGUMENTS)
            assert [request.path for request in server.requests] == ["/mcp", "/b"]
            assert f"from http://127.0.0.1:{server.port} to {target}, which is not followed" in caught.value.message
        assert other.connections == 0


async def test_what_comes_after_a_redirect_is_what_counts() -> None:
    async def closes(request: Request) -> None:
        return None

    async def busy(request: Request) -> Reply:
        return Reply(status=429, headers=[("Retry-After", "7")])

    async with connected(moving("/b", then=closes)) as (client, server):
        with pytest.raises(ConnectionLostError) as lost:
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 2
    assert lost.value.delivery is Delivery.UNKNOWN
    async with connected(moving("/b", then=busy)) as (client, _):
        with pytest.raises(RateLimitedError) as limited:
            await client.call_tool("t", ARGUMENTS)
    assert limited.value.facts["retryAfter"] == 7


async def test_redirects_share_the_total_limit() -> None:
    async def slowly(request: Request) -> Reply:
        return Reply(status=308, headers=[("Location", f"{request.path}x")], wait=0.1)

    async with connected(slowly, total=0.25) as (client, _):
        with pytest.raises(TimeLimitError) as caught:
            async with asyncio.timeout(PATIENCE):
                await client.call_tool("t", ARGUMENTS)
    assert caught.value.limit == "total"


async def test_a_session_moves_with_its_server() -> None:
    old = LegacyServer()
    options = {"floor": "2025-03-26"}
    async with connected(moving("/b", then=old), options=options) as (client, server):
        await client.call_tool("t", ARGUMENTS)
        await client.call_tool("t", ARGUMENTS)
    assert (old.opened, old.ended, old.faults) == (1, ["session-1"], [])
    assert {request.method for request in server.requests} == {"POST", "DELETE"}


async def test_documents_are_redirected_within_the_origin_only_too() -> None:
    async with FakeServer(modern()) as other:
        for location, found in (("/b", 405), (other.url, 307)):
            async with FakeServer(moving(location)) as server, HttpPool() as pool:
                limits = Timeouts(connect=5, first_byte=5, idle=5, total=5)
                reach = Reach("private")
                got = await pool.fetch("GET", server.url, {}, reach=reach, limits=limits, max_bytes=1000)
                assert got.status == found
        assert other.connections == 0


async def test_no_connection_is_left_over_by_redirects() -> None:
    async with FakeServer(_hops) as server, HttpPool() as pool:
        client = client_of(server.url, pool)
        for _ in range(5):
            with pytest.raises(McpError):
                await client.call_tool("t", ARGUMENTS)
        assert sum(len(transport.client.connector._acquired) for transport in pool._transports.values()) == 0
        assert server.open_connections <= 1
