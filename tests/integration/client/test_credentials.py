"""A server that sends back what it was called with puts no credential into an error."""

from __future__ import annotations

import base64
import json
import logging
import re
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from openwop_mcp import jsontext
from openwop_mcp.client import CallOptions, Progress
from openwop_mcp.client._clients import Clients
from openwop_mcp.client._pool import HttpPool
from openwop_mcp.config import Settings
from openwop_mcp.errors import HttpStatusError, McpError, RpcError
from tests.support.auth_server import AuthServer
from tests.support.fake_server import FakeServer, Reply, Request, modern, notice_event
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
        b"[" * 200 + b"]" * 200
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


PAIR = base64.b64encode(b"user:s3cr3tpassw0rd").decode()


@pytest.mark.parametrize(
    ("value", "echo"),
    [
        (f"Basic {PAIR}", PAIR),
        (f"Basic {PAIR}", "user:s3cr3tpassw0rd"),
        (f"basic {PAIR}", "s3cr3tpassw0rd"),
        ("Token abcdef0123456789", "abcdef0123456789"),
        ("bearer s3cr3t-token-1234", "s3cr3t-token-1234"),
    ],
)
async def test_a_credential_of_any_scheme_is_kept_out(value: str, echo: str) -> None:
    sent = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": -32000, "message": f"denied for {echo}"}})
    async with connected(replies(json_reply(sent.encode())), headers=[("Authorization", value)]) as (client, _):
        with pytest.raises(RpcError) as caught:
            await client.call_tool("t", ARGUMENTS)
    assert echo not in _told(caught.value)
    assert "denied for [credential]" in caught.value.message


async def test_a_long_error_is_told_by_what_is_shown_of_it_until_all_of_it_is_searched() -> None:
    message = f"{PLAIN} " * 10_000
    error = await _error(json_reply(json.dumps({"jsonrpc": "2.0", "id": 1, "error": _long(message)}).encode()))
    assert isinstance(error, RpcError)
    assert PLAIN not in _told(error)
    told = jsontext.decode(error.error)
    assert told == {"code": -1, "message": error.message, "omittedBytes": len(json.dumps(_long(message)))}
    assert error.whole is not None
    assert jsontext.decode(error.whole()) == _long("[credential] " * 10_000)


async def test_a_long_error_without_the_credential_is_the_servers_to_the_byte() -> None:
    sent = json.dumps(_long("n\u00f6, cut off here…" * 10_000), indent=1).encode()
    error = await _error(json_reply(b'{"jsonrpc":"2.0","id":1,"error":%b}' % sent))
    assert isinstance(error, RpcError)
    assert error.whole is not None
    assert error.whole() == sent


def _long(message: str) -> dict[str, object]:
    return {"code": -1, "message": message, "data": [message]}


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


async def test_a_secret_of_the_settings_is_kept_out_before_a_token_is_had_with_it(tmp_path: Path) -> None:
    oauth = {"grant": "client_credentials", "client_id": "pack", "client_secret": {"env": "SECRET"}}
    environ = {"SECRET": "cl1ent-s3cr3t", "XDG_STATE_HOME": str(tmp_path)}
    async with FakeServer(replies(Reply(status=500, body=b"cl1ent-s3cr3t"))) as server:
        one = {"url": server.url, "network": "private", "credential": {"oauth": oauth}}
        settings = Settings.model_validate({"servers": {"one": one}})
        async with Clients(settings, client_info=b'{"name":"t","version":"1"}', environ=environ) as clients:
            with pytest.raises(McpError) as caught:
                await clients["one"].call_tool("t", ARGUMENTS)
    assert caught.value.facts["excerpt"] == "[credential]"


TOKEN_ECHOES: dict[str, Callable[[str], Reply]] = {
    "status": lambda token: Reply(status=500, body=f"<p>{token}</p>".encode()),
    "refusal": lambda token: Reply(status=403, body=f"Bearer {token}".encode()),
    "page": lambda token: Reply(headers=[("Content-Type", "text/html")], body=token.encode()),
    "error": lambda token: json_reply(json.dumps(_rpc_error(token)).encode()),
    "error with a status": lambda token: json_reply(json.dumps(_rpc_error(token)).encode(), 422),
    "wrong id": lambda token: json_reply(json.dumps({"jsonrpc": "2.0", "id": token, "result": {}}).encode()),
    "cut": lambda token: json_reply(b'{"jsonrpc":"2.0","echo":"%b' % token.encode()),
    "redirect": lambda token: Reply(status=308, headers=[("Location", f"http://127.0.0.2/{token}")]),
    "beside the answer": lambda token: stream_reply(
        notice_event("progress", progressToken=1, progress=1, message=f"as {token}"),
        notice_event("message", level="error", logger=token, data={"token": token}),
        b"data: %b\n\n" % json.dumps(_rpc_error(token)).encode(),
    ),
}


def _rpc_error(token: str) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -1, "message": token, "data": [{token: f"Bearer {token}"}]}}


@pytest.mark.parametrize("name", TOKEN_ECHOES)
async def test_a_token_that_comes_back_is_in_nothing_that_is_told(name: str, caplog, tmp_path) -> None:
    caplog.set_level(logging.DEBUG)
    sent: list[str] = []
    progress: list[Progress] = []

    async def echo(request: Request) -> Reply:
        if request.method == "GET":
            found = {"resource": server.url, "authorization_servers": [auth.issuer]}
            return json_reply(json.dumps(found).encode(), 200 if "protected-resource/mcp" in request.path else 404)
        token = (request.header("Authorization") or "").removeprefix("Bearer ")
        if token not in auth.tokens:
            return Reply(status=401, headers=[("WWW-Authenticate", "Bearer")])
        sent.append(token)
        return TOKEN_ECHOES[name](token)

    oauth = {"grant": "client_credentials", "client_id": "pack", "client_secret": {"env": "SECRET"}}
    environ = {"SECRET": "cl1ent-s3cr3t", "XDG_STATE_HOME": str(tmp_path)}
    async with AuthServer() as auth, FakeServer(echo) as server:
        auth.clients["pack"] = environ["SECRET"]
        one = {"url": server.url, "network": "private", "credential": {"oauth": oauth}}
        settings = Settings.model_validate({"servers": {"one": one}})
        async with Clients(settings, client_info=b'{"name":"t","version":"1"}', environ=environ) as clients:
            for _ in range(2):
                options = CallOptions(on_progress=progress.append, log_level="debug")
                with pytest.raises(McpError) as caught:
                    await clients["one"].call_tool("t", ARGUMENTS, options)
                told = [
                    _told(caught.value),
                    "".join(traceback.format_exception(caught.value)),
                    caplog.text,
                    str(progress),
                ]
                assert sent
                assert not [token for token in sent for text in told if token in text]
                # Another token, while the former is still on someone's lips.
                auth.revoke()
    assert len(set(sent)) == 2
    assert environ["SECRET"] not in caplog.text


@pytest.mark.parametrize("credential", [(), (("Authorization", f"Bearer {PLAIN}"),)])
async def test_a_401_says_whether_there_was_a_credential_and_whether_tokens_are_to_be_had(
    credential: tuple[tuple[str, str], ...],
) -> None:
    challenge = ("WWW-Authenticate", 'Bearer resource_metadata="https://a.example/.well-known/x"')
    async with connected(replies(Reply(status=401, headers=[challenge])), headers=credential) as (client, _):
        with pytest.raises(HttpStatusError) as caught:
            await client.list_tools()
    assert ("does not take the credential" if credential else "wants a credential") in caught.value.message
    assert "oauth" in caught.value.message
