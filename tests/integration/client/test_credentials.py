"""A server that sends back what it was called with puts no credential into an error."""

from __future__ import annotations

import base64
import json
import re
import traceback
from collections.abc import Callable

import pytest

from openwop_mcp import jsontext
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.errors import McpError, RpcError
from tests.support.fake_server import FakeServer, Reply, modern
from tests.support.mcp_client import ARGUMENTS, client_of, connected, json_reply, replies, stream_reply

SECRET = 'sk-a/B+c"d\\e%f_1234567890'
PLAIN = "sk-plain-1234567890"


async def _error(reply: Reply, secret: str = PLAIN, **limits: int) -> McpError:
    headers = [("Authorization", f"Bearer {secret}")]
    async with connected(replies(reply), headers=headers, **limits) as (client, server):
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
        assert server.requests[0].header("Authorization") == f"Bearer {secret}"
        return caught.value


def _told(error: McpError) -> str:
    """All that an error can show anyone."""
    rpc = error.error.decode() if isinstance(error, RpcError) else ""
    return "\n".join([str(error), repr(error), error.message, json.dumps(error.facts), rpc])


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": lambda secret: secret,
    "header": lambda secret: f"Authorization: Bearer {secret}",
    "json": lambda secret: json.dumps(secret)[1:-1],
    "json in json": lambda secret: json.dumps(json.dumps(secret))[1:-1],
    "escaped slash": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    "all escaped": lambda secret: "".join(f"\\u{ord(character):04X}" for character in secret),
    "percent": lambda secret: "".join(f"%{ord(character):02X}" for character in secret),
    "base64": lambda secret: base64.b64encode(secret.encode()).decode(),
    "base64 of a pair": lambda secret: base64.b64encode(f"user:{secret}".encode()).decode(),
    "base64 for urls": lambda secret: base64.urlsafe_b64encode(f"a{secret}".encode()).decode(),
    "lower case": lambda secret: secret.lower(),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("secret", [PLAIN, SECRET])
async def test_an_echo_in_any_spelling_is_replaced(spelling: str, secret: str) -> None:
    spelled = SPELLINGS[spelling](secret)
    error = await _error(Reply(status=500, body=f"<p>you sent {spelled}, sorry</p>".encode()), secret)
    assert "[credential]" in error.facts["excerpt"]
    told = error.facts["excerpt"]
    assert spelled not in told
    assert secret not in told
    assert told.startswith("<p>you sent ")
    # Base64 mixes a few bits of its neighbours into both ends of a credential.
    assert re.fullmatch(r"<p>you sent .{0,24}\[credential\].{0,4}, sorry</p>", told)


ECHOES = {
    "status": Reply(status=403, body=b"Bearer " + PLAIN.encode()),
    "page": Reply(headers=[("Content-Type", "text/html")], body=PLAIN.encode()),
    "media type": Reply(headers=[("Content-Type", f"text/{PLAIN}")], body=b"x"),
    "location": Reply(status=307, headers=[("Location", f"http://127.0.0.2/{PLAIN}/x")]),
    "malformed": json_reply(b'{"echo":"' + PLAIN.encode() + b'"'),
    "wrong id": json_reply(b'{"jsonrpc":"2.0","id":"' + PLAIN.encode() + b'","result":{}}'),
    "result type": json_reply(b'{"jsonrpc":"2.0","id":1,"result":{"resultType":"' + PLAIN.encode() + b'"}}'),
    "error": json_reply(b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"' + PLAIN.encode() + b'"}}', 422),
    "error data": stream_reply(
        b'data: {"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m","data":{"' + PLAIN.encode() + b'":1.10}}}\n\n'
    ),
    "revisions": json_reply(
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"m","data":{"supported":["'
        + PLAIN.encode()
        + b'"]}}}',
        400,
    ),
}


@pytest.mark.parametrize("name", ECHOES)
async def test_no_part_of_an_error_holds_the_credential(name: str) -> None:
    told = _told(await _error(ECHOES[name]))
    assert PLAIN not in told
    assert "[credential]" in told


async def test_no_traceback_holds_the_credential() -> None:
    for name, reply in ECHOES.items():
        error = await _error(reply)
        assert PLAIN not in "".join(traceback.format_exception(error)), name


@pytest.mark.parametrize("kept", range(5, len(PLAIN)))
async def test_a_credential_that_an_excerpt_cuts_is_not_shown_in_part(kept: int) -> None:
    before = "x" * (255 - kept)
    error = await _error(Reply(status=500, body=f"{before}{PLAIN} and so on and on".encode()))
    assert error.facts["excerpt"] == f"{before}[credential]…"


async def test_an_error_of_a_server_is_otherwise_unaltered() -> None:
    data = b'{"n":1.10,"s":"\\u00e9 \\/","k":"Bearer sk-plain\\u002d1234567890\\n","deep":%b}' % (
        b"[" * 5000 + b"]" * 5000
    )
    sent = b'{"code":-32603, "message":"m","data":' + data + b"}"
    error = await _error(json_reply(b'{"jsonrpc":"2.0","id":1,"error":%b}' % sent))
    assert isinstance(error, RpcError)
    assert error.error == sent.replace(b"sk-plain\\u002d1234567890", b"[credential]")
    jsontext.check(error.error)


async def test_an_error_without_the_credential_keeps_every_byte() -> None:
    sent = b'{"code":-32603 ,"message":"\\u00e9","data":{"n":1.10,"t":"\\ud800\\\\"}}'
    error = await _error(json_reply(b'{"jsonrpc":"2.0","id":1,"error":%b}' % sent))
    assert isinstance(error, RpcError)
    assert error.error == sent


@pytest.mark.parametrize("secret", ["nabcdefgh", "\\\\\\\\\\\\\\\\", '""""""""', "u0041u0042"])
async def test_an_error_stays_json_whatever_the_credential_is(secret: str) -> None:
    message = json.dumps({"code": 1, "message": f"a\n{secret} {secret}", "data": f"\n {secret} \\n"})
    error = await _error(json_reply(b'{"jsonrpc":"2.0","id":1,"error":%b}' % message.encode()), secret)
    assert isinstance(error, RpcError)
    told = jsontext.decode(error.error)
    assert told["message"] == "a\n[credential] [credential]"
    assert secret not in told["data"].replace("\n", "")


async def test_a_run_of_backslashes_costs_no_quadratic_time() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"' + b"\\\\" * 200_000 + b'"}}'
    assert isinstance(await _error(json_reply(body), SECRET), RpcError)


async def test_an_own_header_as_credential_is_kept_out_as_well() -> None:
    async with connected(
        replies(Reply(status=500, body=b"key=my secret value 1")), headers=[("X-Api-Key", "my secret value 1")]
    ) as (client, _):
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.facts["excerpt"] == "key=[credential]"


async def test_without_a_credential_nothing_is_replaced() -> None:
    async with connected(replies(Reply(status=500, body=b"Bearer abc"))) as (client, _):
        with pytest.raises(McpError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert caught.value.facts["excerpt"] == "Bearer abc"


async def test_the_credential_goes_to_its_server_alone() -> None:
    async with FakeServer(modern()) as one, FakeServer(modern()) as two, HttpPool() as transport:
        await client_of(one.url, transport, headers=[("Authorization", f"Bearer {PLAIN}")]).list_tools()
        await client_of(two.url, transport).list_tools()
        assert two.requests[0].header("Authorization") is None
