"""HTTP statuses: what each says of the request, and what a person is told to do."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from openwop_mcp.client import _answers
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import HttpStatusError, McpError, RateLimitedError, RpcError
from tests.support.fake_server import FakeServer, Reply, Request, modern
from tests.support.mcp_client import ARGUMENTS, connected, json_reply, replies
from tests.support.patience import PATIENCE

CREDENTIAL = ("Authorization", "Bearer s3cr3t-s3cr3t")


async def _refused(reply: Reply) -> McpError:
    async with connected(replies(reply), headers=[CREDENTIAL]) as (client, server):
        with pytest.raises(McpError) as caught:
            async with asyncio.timeout(PATIENCE):
                await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1
        return caught.value


def _rpc(code: int = -32603) -> bytes:
    return b'{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"no"}}' % code


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 307, 308])
@pytest.mark.parametrize("body", [b"", _rpc()])
async def test_no_redirect_is_followed_and_nothing_reaches_another_origin(status: int, body: bytes) -> None:
    async with FakeServer(modern()) as other:
        target = f"http://127.0.0.1:{other.port}/elsewhere"
        reply = Reply(
            status=status,
            headers=[("Location", target), ("Content-Type", "application/json"), ("Connection", "close")],
            body=b"" if status == 304 else body,
        )
        error = await _refused(reply)
        assert other.connections == 0
    assert isinstance(error, HttpStatusError)
    assert (error.status, error.retryable) == (status, False)
    moved = status in (301, 302, 307, 308)
    assert error.delivery is (Delivery.NOT_PROCESSED if moved else Delivery.UNKNOWN)
    assert error.facts.get("location") == (target if moved else None)


async def test_a_redirect_names_both_origins_and_the_setting() -> None:
    async def handler(request: Request) -> Reply:
        return Reply(status=307, headers=[("Location", "https://user:pw@b.example/mcp/v2?token=abc#x")])

    async with connected(handler) as (client, server):
        with pytest.raises(HttpStatusError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert f"http://127.0.0.1:{server.port} to https://b.example/mcp/v2, " in caught.value.message
    assert "url setting" in caught.value.message
    for secret in ("user", "pw", "token", "abc"):
        assert secret not in caught.value.message + repr(caught.value.facts)


async def test_a_redirect_with_our_own_path_names_the_origin_alone() -> None:
    error = await _refused(Reply(status=308, headers=[("Location", "https://b.example:8443/mcp")]))
    assert error.facts["location"] == "https://b.example:8443"


@pytest.mark.parametrize("location", [None, "http://[", "http://a:b/", "//", ""])
async def test_a_redirect_to_nowhere_is_a_plain_error(location: str | None) -> None:
    error = await _refused(Reply(status=301, headers=[] if location is None else [("Location", location)]))
    assert isinstance(error, HttpStatusError)
    assert error.status == 301


@pytest.mark.parametrize(
    ("status", "delivery", "hint"),
    [
        (400, Delivery.UNKNOWN, "400"),
        (401, Delivery.NOT_PROCESSED, "credential"),
        (403, Delivery.NOT_PROCESSED, "credential"),
        (404, Delivery.NOT_PROCESSED, r"the server at 127\.0\.0\.1:\d+ answered 404 .*MCP endpoint"),
        (405, Delivery.NOT_PROCESSED, r"the server at 127\.0\.0\.1:\d+ answered 405 .*MCP endpoint"),
        (413, Delivery.NOT_PROCESSED, "413"),
        (418, Delivery.UNKNOWN, "418"),
        (500, Delivery.UNKNOWN, "500"),
        (502, Delivery.UNKNOWN, "502"),
        (503, Delivery.UNKNOWN, "503"),
        (504, Delivery.UNKNOWN, "504"),
    ],
)
@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("text/html", b"<p>no</p>"),
        ("application/json", b'{"error":"invalid_token"}'),
        ("application/json", b'{"error":{"code":401,"message":"m"}}'),
        ("application/json", b'{"jsonrpc":"2.0","id":1,"result":{}}'),
        ("application/json", b"{cut"),
        ("application/json", b""),
    ],
)
async def test_a_status_without_a_json_rpc_error_speaks_for_itself(
    status: int, delivery: Delivery, hint: str, media_type: str, body: bytes
) -> None:
    error = await _refused(Reply(status=status, headers=[("Content-Type", media_type)], body=body))
    assert isinstance(error, HttpStatusError)
    assert (error.code, error.status, error.delivery) == ("upstream_unavailable", status, delivery)
    assert error.retryable is (status >= 500)
    assert re.search(hint, error.message)
    assert error.facts["mediaType"] == media_type
    assert error.facts["excerpt"] == body.decode()


@pytest.mark.parametrize("status", [400, 403, 404, 405, 422, 500])
async def test_a_json_rpc_error_is_kept_whatever_its_status(status: int) -> None:
    # Where it could be that of an older server, discovery says that it is none.
    async with connected(modern({"tools/call": lambda _: json_reply(_rpc(-32601), status)})) as (client, _):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
    error = caught.value
    assert (error.rpc_code, error.facts["httpStatus"]) == (-32601, status)
    assert error.error == b'{"code":-32601,"message":"no"}'
    assert (error.delivery, error.retryable) == (Delivery.ANSWERED, False)


async def test_401_is_about_access_whatever_its_body_says() -> None:
    error = await _refused(json_reply(_rpc(-32601), 401))
    assert isinstance(error, HttpStatusError)
    assert (error.status, error.delivery) == (401, Delivery.NOT_PROCESSED)


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_gateways_status_is_no_word_of_the_server_whatever_the_body_says(status: int) -> None:
    error = await _refused(json_reply(_rpc(), status))
    assert isinstance(error, HttpStatusError)
    assert (error.status, error.delivery, error.retryable) == (status, Delivery.UNKNOWN, True)


@pytest.mark.parametrize("body", [b"", _rpc(), b"slow down"])
async def test_429_is_a_wait_and_not_a_verdict(body: bytes) -> None:
    error = await _refused(
        Reply(status=429, headers=[("Retry-After", "7"), ("Content-Type", "application/json")], body=body)
    )
    assert isinstance(error, RateLimitedError)
    assert (error.code, error.delivery, error.retryable) == ("rate_limited", Delivery.NOT_PROCESSED, True)
    assert error.facts == {"httpStatus": 429, "retryAfter": 7.0}


async def test_503_carries_its_retry_after() -> None:
    error = await _refused(Reply(status=503, headers=[("Retry-After", "3")]))
    assert error.facts["retryAfter"] == 3.0


def _in(seconds: float) -> str:
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        ("0", 0, 0),
        (" 12 ", 12, 12),
        ("99999999999999999999", 10**11, 10**12),
        # With names, as that of a test must be the same in each process that collects it.
        pytest.param(_in(-3600), 0, 0, id="an hour ago"),
        pytest.param(_in(86_400), 40_000, 86_400, id="in a day"),
        ("Wed, 21 Oct 2099 07:28:00 GMT", 10**9, 10**10),
        ("Wed, 21 Oct 2099 07:28:00 -0000", 10**9, 10**10),
        ("Wednesday, 21-Oct-99 07:28:00 GMT", 0, 10**10),
    ],
)
async def test_retry_after_is_read_as_seconds_or_as_a_date(value: str, least: float, most: float) -> None:
    error = await _refused(Reply(status=429, headers=[("Retry-After", value)]))
    assert least <= error.facts["retryAfter"] <= most


@pytest.mark.parametrize(
    "value",
    [
        "",
        "soon",
        "-5",
        "1.5",
        "0x10",
        "1e3",
        "Wed, 21 Oct 99999999999999999999 07:28:00 GMT",
        ",",
        "+9999",
        "1 2 3 4 5",
    ],
)
async def test_a_retry_after_that_cannot_be_read_is_none(value: str) -> None:
    error = await _refused(Reply(status=429, headers=[("Retry-After", value)]))
    assert isinstance(error, RateLimitedError)
    assert "retryAfter" not in error.facts


@pytest.mark.parametrize("stall", ["json", "text"])
async def test_a_refusal_whose_body_does_not_end_is_still_that_refusal(
    stall: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_answers, "REFUSAL_BODY", 0.5)
    kind = "application/json" if stall == "json" else "text/plain"
    error = await _refused(Reply(status=401, headers=[("Content-Type", kind)], body=b'{"a":', stall="body"))
    assert isinstance(error, HttpStatusError)
    assert (error.status, error.delivery) == (401, Delivery.NOT_PROCESSED)
    assert error.facts["excerpt"] == '{"a":'


@pytest.mark.parametrize("abort", ["reset", "close"])
async def test_a_refusal_whose_body_breaks_off_is_still_that_refusal(abort) -> None:
    error = await _refused(json_reply(b'{"a": 1}', 404, abort_after=4, abort=abort))
    assert isinstance(error, HttpStatusError)
    assert (error.status, error.delivery) == (404, Delivery.NOT_PROCESSED)
