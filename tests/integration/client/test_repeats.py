"""A call that may have acted is put on the wire once, whatever goes wrong after that and whatever an answer says."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import HttpStatusError, McpError, RateLimitedError, ResultTooLargeError, RpcError
from tests.support.fake_server import Handler, Reply, Request, modern
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import ARGUMENTS, connected, json_reply, stream_reply

STATUSES = [402, 408, 409, 410, 412, 421, 422, 423, 425, 451, 500, 501, 502, 503, 504, 507, 511, 599]
IN_DOUBT: dict[str, Reply | None] = {
    **{f"status {status}": Reply(status=status) for status in STATUSES},
    "an error of a gateway": json_reply(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m"}}', 503),
    "a page": Reply(headers=[("Content-Type", "text/html")], body=b"<h1>Sign in</h1>"),
    "nothing": Reply(),
    "nothing acceptable": Reply(status=202),
    "half an answer": json_reply(b'{"jsonrpc":"2.0"', abort_after=4),
    "half a stream": stream_reply(b": ping\n\n", abort_after=4),
    "another's answer": json_reply(b'{"jsonrpc":"2.0","id":0,"result":{}}'),
    "an array": json_reply(b'[{"jsonrpc":"2.0","id":1,"result":{}}]'),
    "no answer in time": Reply(stall="head"),
    "no end in time": json_reply(b'{"jsonrpc":', stall="body"),
    "a closed connection": None,
}


def _server(era: str, reply: Reply | None) -> Handler:
    def call(_: Request) -> Reply | None:
        return reply

    if era == "modern":
        return modern({"tools/call": call})
    return LegacyServer(results={"tools/call": call}, sessions=era == "sessions")


@pytest.mark.parametrize("era", ["modern", "sessions", "no sessions"])
@pytest.mark.parametrize("fault", IN_DOUBT)
async def test_what_may_have_acted_is_not_sent_again(era: str, fault: str) -> None:
    handler = _server(era, IN_DOUBT[fault])
    async with connected(handler, options={"floor": "2025-03-26"}, first_byte=2.0, idle=2.0) as (client, server):
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
        sent = [one for one in server.requests if one.body and one.json.get("method") == "tools/call"]
    assert len(sent) == 1
    assert caught.value.delivery is Delivery.UNKNOWN
    assert not isinstance(caught.value, RpcError)


@pytest.mark.parametrize("era", ["modern", "sessions"])
async def test_a_429_is_told_as_one_and_not_sent_again_here(era: str) -> None:
    reply = Reply(status=429, headers=[("Retry-After", "7")])
    async with connected(_server(era, reply), options={"floor": "2025-03-26"}) as (client, server):
        with pytest.raises(RateLimitedError) as caught:
            await client.call_tool("t", ARGUMENTS)
        sent = [one for one in server.requests if one.body and one.json.get("method") == "tools/call"]
    assert len(sent) == 1
    assert caught.value.facts == {"httpStatus": 429, "retryAfter": 7.0}


@pytest.mark.parametrize("size", [1_200_000, 5_000_000])
@pytest.mark.parametrize("ends", [b"\n\n", b""])
async def test_an_event_over_the_limit_is_no_lost_connection_and_not_to_be_tried_again(size: int, ends: bytes) -> None:
    event = b'data: {"jsonrpc":"2.0","id":1,"result":{"t":"' + b"x" * size + b'"}}' + ends
    handler = modern({"tools/call": lambda _: stream_reply(event)})
    async with connected(handler, response_bytes=10_000_000, event_bytes=1_000_000) as (client, server):
        with pytest.raises(ResultTooLargeError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 1
    error = caught.value
    assert (error.code, error.retryable, error.delivery) == ("storage_limit_exceeded", False, Delivery.ANSWERED)
    assert (error.facts["limit"], error.facts["setting"]) == (1_000_000, "limits.event_bytes")
    assert "1000000 bytes" in error.message


class Tokens:
    """An authorizer that counts what it is told was refused."""

    context = 0

    def __init__(self) -> None:
        self.refusals: list[int] = []

    async def header(self) -> tuple[str, str]:
        return "Authorization", "Bearer t0ken-t0ken"

    async def refused(self, status: int, challenges: Sequence[str], sent: str | None) -> bool:
        self.refusals.append(status)
        return len(self.refusals) == 1

    async def close(self) -> None:
        return None


@pytest.mark.parametrize(
    "result",
    [
        b'{"isError":true,"content":[{"type":"text","text":"invalid access token"}]}',
        b'{"isError":true,"content":[{"type":"text","text":"401 Unauthorized: token expired"}],"status":401}',
        b'{"structuredContent":{"error":"invalid_token","error_description":"expired"},"content":[]}',
        b'{"content":[{"type":"text","text":"WWW-Authenticate: Bearer error=\\"invalid_token\\""}]}',
    ],
)
async def test_no_prose_in_a_result_asks_for_another_token(result: bytes) -> None:
    tokens = Tokens()
    async with connected(modern({"tools/call": result}), authorizer=tokens) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == result
        assert len(server.requests) == 1
    assert tokens.refusals == []


@pytest.mark.parametrize("status", [200, 400, 422, 500])
async def test_no_error_of_json_rpc_asks_for_another_token(status: int) -> None:
    tokens = Tokens()
    body = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"invalid_token","data":{"status":401}}}'
    handler = modern({"tools/call": lambda _: json_reply(body, status)})
    async with connected(handler, authorizer=tokens) as (client, _):
        with pytest.raises(RpcError):
            await client.call_tool("t", ARGUMENTS)
    assert tokens.refusals == []


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refusal_by_http_asks_for_another_token_and_the_call_that_did_not_act_goes_on(status: int) -> None:
    tokens = Tokens()
    replies = iter([Reply(status=status, headers=[("WWW-Authenticate", "Bearer")]), None])

    def call(_: Request) -> Reply | bytes:
        return next(replies) or b'{"content":[]}'

    async with connected(modern({"tools/call": call}), authorizer=tokens) as (client, server):
        assert (await client.call_tool("t", ARGUMENTS)).result == b'{"content":[]}'
        assert len(server.requests) == 2
    assert tokens.refusals == [status]


async def test_a_refusal_that_no_token_changes_is_told() -> None:
    tokens = Tokens()
    handler = modern({"tools/call": lambda _: Reply(status=401, headers=[("WWW-Authenticate", "Bearer")])})
    async with connected(handler, authorizer=tokens) as (client, server):
        with pytest.raises(HttpStatusError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert len(server.requests) == 2
    assert (caught.value.status, caught.value.delivery) == (401, Delivery.NOT_PROCESSED)
