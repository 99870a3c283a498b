"""Every kind of secret is configured, everything fails that can, servers echo what they can: no secret comes out."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from temporalio.client import Client

from openwop_mcp.embedded import EmbeddedTemporal
from tests.support.auth_server import AuthServer
from tests.support.cli import Done, Serving, cli, serving
from tests.support.collector import Collector, collector
from tests.support.fake_server import (
    CALLED,
    DISCOVER,
    FakeServer,
    Reply,
    Request,
    error_reply,
    notice_event,
    result_reply,
)
from tests.support.patience import PATIENCE

SECRETS: dict[str, str] = {
    "WEATHER_TOKEN": "sk-live/bearer+9d8f7a6b5c",
    "CRM_KEY": 'header "key"\\with/odd+characters%41',
    "OAUTH_SECRET": "client-secret-of-the-test-4711",
    "BOX_TOKEN": "environment-token-of-the-box-0815",
    "HOST_KEY": "host-key-of-the-test-1234567890",
    "TOKEN_KEY": "token-key-of-the-test-abcdefghijklmnop",
    "CALLBACK_SECRET": "callback-secret-of-the-test-qrstuvwxyz",
}
ENCRYPTION_KEY = base64.b64encode(bytes(range(7, 39))).decode()

BOX = """
import json, os, sys
secret = os.environ["BOX_TOKEN"]
for line in sys.stdin:
    asked = json.loads(line)
    sys.stderr.write(f"called with {secret}\\n")
    sys.stderr.flush()
    name = asked.get("params", {}).get("name")
    if name == "ends":
        sys.exit(3)
    if name == "noise":
        print(f"no message: {secret}", flush=True)
    result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}},
              "content": [{"type": "text", "text": secret}]}
    answer = {"error": {"code": 1, "message": secret}} if name == "rpc" else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


def spellings(secret: str) -> dict[str, str]:
    """How a secret may come out, each in the letters that are searched for."""
    raw = secret.encode()
    found = {
        "plain": secret,
        "json": json.dumps(secret)[1:-1],
        "json in json": json.dumps(json.dumps(secret))[3:-3],
        "slashes": json.dumps(secret)[1:-1].replace("/", "\\/"),
        "percent": quote(secret, safe=""),
        "all percent": "".join(f"%{byte:02X}" for byte in raw),
        "all escaped": "".join(f"\\u{byte:04x}" for byte in raw),
        "repr": repr(secret)[1:-1],
    }
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + raw).decode()
        found[f"base64 at {before}"] = encoded[(before * 8 + 5) // 6 : (before + len(raw)) * 8 // 6]
    found["base64 for urls"] = found["base64 at 0"].replace("+", "-").replace("/", "_")
    return {name: text.lower() for name, text in found.items()}


def echo(request: Request) -> str:
    """What the request shows of whoever sent it, in every spelling."""
    shown = [value for name, value in request.headers if name.lower() in {"authorization", "x-api-key"}]
    forms = [one for value in shown for one in spellings(value.removeprefix("Bearer ")).values()]
    # As they are: what is in lower case here is only for the search.
    return " ; ".join([*shown, *(value.removeprefix("Bearer ") for value in shown), *forms])


def _message(request: Request, **members: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request.json["id"], **members}).encode()


JSON = [("Content-Type", "application/json")]


def fails(request: Request) -> Reply:  # noqa: PLR0911, PLR0912, C901 - a table of ways to fail
    """Fail in the way that the name of the tool says, with the credential wherever there is room for it."""
    said, params = echo(request), request.json.get("params", {})
    name = params.get("name", "")
    match name:
        case "rpc":
            return error_reply(request, -32000, f"no: {said}", {"headers": [said]})
        case "rpc-large":
            return error_reply(request, -32000, f"no: {said}", {"more": said + "x" * 100_000})
        case "is-error":
            text = {"content": [{"type": "text", "text": said}], "isError": True}
            return result_reply(request, json.dumps({"resultType": "complete", **text}).encode())
        case "ends" | "cut":
            return Reply(headers=JSON, body=_message(request, result={"text": said}), abort_after=60)
        case "malformed":
            return Reply(headers=JSON, body=json.dumps({"echo": said}).encode()[:-1])
        case "wrong-id":
            return Reply(headers=JSON, body=json.dumps({"jsonrpc": "2.0", "id": said, "result": {}}).encode())
        case "type":
            return Reply(headers=JSON, body=_message(request, result={"resultType": said}))
        case "page":
            return Reply(headers=[("Content-Type", "text/html")], body=f"<p>{said}".encode())
        case "redirect":
            return Reply(status=307, headers=[("Location", f"http://127.0.0.2/{quote(said)}?{quote(said)}")])
        case "stall":
            return Reply(stall="head")
        case "large":
            return Reply(headers=JSON, body=_message(request, result={"text": said + "x" * 3_000_000}))
        case "progress":
            token = params["_meta"]["progressToken"]
            answer = result_reply(request, CALLED, "sse")
            assert answer.chunks is not None
            told = [
                notice_event("progress", progressToken=token, progress=1, message=said),
                notice_event("message", level="error", data={"said": said}),
                b"data: %b\n\n" % json.dumps({"echo": said}).encode(),
            ]
            return Reply(headers=answer.headers, chunks=[*told, *answer.chunks])
        case "asks" if "inputResponses" not in params:
            question = {"message": said, "requestedSchema": {"type": "object", "properties": {}}}
            asked = {"q": {"method": "elicitation/create", "params": question}}
            result = {"resultType": "input_required", "inputRequests": asked, "requestState": "s"}
            return result_reply(request, json.dumps(result).encode())
        case "state":
            asked = {"q": {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}}}
            result = {"resultType": "input_required", "inputRequests": asked, "requestState": said}
            return result_reply(request, json.dumps(result).encode())
        case "blob":
            blob = base64.b64encode(f"PNG {request.header('Authorization')} ...".encode()).decode()
            result = {"resultType": "complete", "content": [{"type": "image", "data": blob, "mimeType": "image/png"}]}
            return result_reply(request, json.dumps(result).encode())
        case _ if name.isdecimal():
            retry = [("Retry-After", "100"), ("WWW-Authenticate", f'Bearer realm="{said[:60]}"')]
            return Reply(status=int(name), headers=[*retry, ("Content-Type", "text/plain")], body=said.encode())
        case _:
            text = json.dumps({"content": [{"type": "text", "text": said}], "structuredContent": {said: [said]}})
            return result_reply(request, text.encode())


TOOLS = [
    "result", "blob", "rpc", "rpc-large", "is-error", "cut", "malformed", "wrong-id", "type", "page", "redirect",
    "stall", "large", "progress", "state", "400", "401", "403", "404", "429", "500", "503",
]  # fmt: skip


async def handle(request: Request) -> Reply:
    """A server whose every answer holds the credential that it was shown."""
    match request.json["method"]:
        case "server/discover":
            said = json.loads(DISCOVER) | {"instructions": echo(request)}
            return result_reply(request, json.dumps(said).encode())
        case "tools/list":
            tools = [{"name": name, "description": echo(request), "inputSchema": {"type": "object"}} for name in TOOLS]
            return result_reply(request, json.dumps({"resultType": "complete", "tools": tools, "ttlMs": 0}).encode())
        case _:
            return fails(request)


def protected(auth: AuthServer, resource: list[str]) -> Any:
    """The same server behind OAuth."""

    async def serve(request: Request) -> Reply:
        if "oauth-protected-resource" in request.path:
            told = {"resource": resource[0], "authorization_servers": [auth.issuer]}
            return Reply(headers=JSON, body=json.dumps(told).encode())
        if request.method != "POST":
            return Reply(status=404)
        if (request.header("Authorization") or "").removeprefix("Bearer ") not in auth.tokens:
            where = resource[0].replace("/mcp", "/.well-known/oauth-protected-resource/mcp")
            return Reply(status=401, headers=[("WWW-Authenticate", f'Bearer resource_metadata="{where}"')])
        return await handle(request)

    return serve


def _closed() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def settings(temporal: str, folder: Path, urls: Mapping[str, str], *, form: str, encrypted: bool) -> str:
    """Everything that can be secret, is."""
    # One server never answers. The others are given what they need while all are asked at once.
    limits = "timeouts = { connect = 10, first_byte = 10, idle = 10, total = 30 }\nretry = { attempts = 1 }\n"
    http = f'network = "private"\nlog_level = "debug"\n{limits}'
    keys = '[[encryption.keys]]\nid = "one"\nsecret = { env = "ENCRYPTION_KEY" }\n' if encrypted else ""
    return f"""
[temporal]
address = "{temporal}"
[worker]
tenant = "secrets-{form}"
task_queue = "secrets-{form}"
[storage]
folder = "{folder / "blobs"}"
[limits]
response_bytes = 1000000
[logs]
format = "{form}"
level = "debug"
levels = {{ "asyncio" = "debug", "httpx" = "debug", "uvicorn" = "debug", "opentelemetry" = "debug" }}
{keys}
[host]
bind = "127.0.0.1:0"
url = "https://openwop.example"
fixtures = true
callback_secret = {{ env = "CALLBACK_SECRET" }}
callback_network = "private"
[[host.token_keys]]
id = "one"
secret = {{ env = "TOKEN_KEY" }}
[[keys]]
id = "dev"
secret = {{ env = "HOST_KEY" }}
tenant = "secrets-{form}"
subject = "dev"
scopes = ["*"]
[servers.weather]
url = "{urls["weather"]}"
credential = {{ bearer = {{ env = "WEATHER_TOKEN" }} }}
{http}
[servers.strict]
url = "{urls["weather"]}"
credential = {{ bearer = {{ env = "WEATHER_TOKEN" }} }}
echoed_credentials = "fail"
{http}
[servers.crm]
url = "{urls["weather"]}"
credential = {{ header = {{ name = "X-Api-Key", value = {{ env = "CRM_KEY" }} }} }}
{http}
[servers.cloud]
url = "{urls["cloud"]}"
{http}
[servers.cloud.credential.oauth]
grant = "client_credentials"
client_id = "pack"
client_secret = {{ env = "OAUTH_SECRET" }}
[servers.refused]
url = "http://127.0.0.1:{_closed()}/mcp"
credential = {{ bearer = {{ env = "WEATHER_TOKEN" }} }}
{http}
[servers.nowhere]
url = "http://nowhere.invalid/mcp"
credential = {{ bearer = {{ env = "WEATHER_TOKEN" }} }}
network = "any"
{limits}
[servers.denied]
url = "http://127.0.0.1:{_closed()}/mcp"
credential = {{ bearer = {{ env = "WEATHER_TOKEN" }} }}
{limits}
[servers.box]
command = ["{sys.executable}", "{folder / "box.py"}"]
environment = {{ BOX_TOKEN = {{ env = "BOX_TOKEN" }} }}
{limits}
"""


@dataclass
class Scene:
    """What came out so far, by where."""

    config: Path
    env: Mapping[str, str]
    host: Serving
    worker: Serving
    http: httpx.AsyncClient
    out: dict[str, str] = field(default_factory=dict)

    async def cli(self, *arguments: str) -> Done:
        done = await cli(*arguments, "--config", str(self.config), **self.env)
        self.out[" ".join(arguments)] = done.out.decode() + done.err
        return done

    async def create(self, server: str, tool: str, **members: Any) -> str:
        inputs = {"method": "callTool", "serverId": server, "name": tool, "arguments": {}}
        body = {"workflowId": "conformance-mcp-client", "inputs": inputs, **members}
        answer = await self.http.post("/runs", json=body)
        assert answer.status_code == 201, answer.text
        run_id: str = answer.json()["runId"]
        return run_id

    async def standing(self, run_id: str, *awaited: str) -> str:
        path = f"/runs/{run_id.replace('/', '~2F')}"
        async with asyncio.timeout(PATIENCE * 3):
            while True:
                answer = await self.http.get(path)
                status: str = answer.json()["status"]
                if status in awaited:
                    break
                await asyncio.sleep(0.1)
        events = await self.http.get(f"{path}/events/poll", params={"timeout": 1})
        assert events.status_code == 200
        for name, got in (("snapshot", answer), ("events", events)):
            self.out[f"{name} of {run_id}"] = got.text
        return status


@contextlib.asynccontextmanager
async def scene(
    temporal: EmbeddedTemporal,
    folder: Path,
    measured: Collector,
    urls: Mapping[str, str],
    form: str,
    *,
    encrypted: bool,
) -> AsyncIterator[Scene]:
    (folder / "box.py").write_text(BOX, encoding="utf-8")
    config = folder / "openwop-mcp.toml"
    config.write_text(settings(temporal.address, folder, urls, form=form, encrypted=encrypted), encoding="utf-8")
    env = {**SECRETS, "ENCRYPTION_KEY": ENCRYPTION_KEY, "XDG_STATE_HOME": str(folder / "state")}
    own = {**env, **measured.environment}
    async with (
        serving("run", "--config", str(config), **own) as worker,
        serving("serve", "--config", str(config), **own) as host,
        httpx.AsyncClient(
            base_url=host.facts["host"],
            headers={"Authorization": f"Bearer {SECRETS['HOST_KEY']}"},
            timeout=PATIENCE,
        ) as http,
    ):
        at = Scene(config, env, host, worker, http)
        yield at
        for name, process in (("host", host), ("worker", worker)):
            done = await process.end(signal.SIGTERM, within=PATIENCE)
            assert done.status == 0, done.err[-2000:]
            at.out[f"log of the {name}"] = done.err
            at.out[f"output of the {name}"] = done.out.decode()


async def rejected(at: Scene) -> None:
    """Requests that the host refuses."""
    key = SECRETS["HOST_KEY"]
    for path, headers, content in (
        ("/runs", {"Authorization": f"Bearer {key}x"}, b"{}"),
        ("/runs", {"Authorization": f"Basic {base64.b64encode(f'a:{key}'.encode()).decode()}"}, b"{}"),
        ("/runs", {}, f'{{"workflowId": "{key}", "{key}": '.encode()),
        ("/runs", {}, json.dumps({"workflowId": key, "inputs": {}, key: key}).encode()),
        (f"/runs/{key}/events", {}, b"{}"),
        (f"/{key}?key={key}", {}, b"{}"),
        ("/runs", {"OpenWOP-Version": key}, b"{}"),
        ("/runs", {"Idempotency-Key": key}, b"[]"),
    ):
        answer = await at.http.post(path, headers={"Content-Type": "application/json", **headers}, content=content)
        assert answer.status_code >= 400, (path, answer.status_code)


async def misconfigured(at: Scene, folder: Path) -> None:
    """Settings with secrets in the wrong places."""
    file = folder / "bad.toml"
    for text in (
        f'[servers.a]\nurl = "http://127.0.0.1/mcp"\ncredential = {{ bearer = "{SECRETS["WEATHER_TOKEN"]}" }}',
        f'[servers.a]\nurl = "http://user:{SECRETS["HOST_KEY"]}@127.0.0.1/mcp"',
        f'[[keys]]\nid = "a"\nsecret = "{SECRETS["HOST_KEY"]}"\ntenant = "a"\nsubject = "a"\nscopes = ["*"]',
        f'[servers.a]\nurl = "http://127.0.0.1/mcp"\ncredential.bearer.env = "{SECRETS["OAUTH_SECRET"]}"',
        f'{SECRETS["TOKEN_KEY"]} = "a',
    ):
        file.write_text(text, encoding="utf-8")
        done = await cli("run", "--config", str(file), **at.env)
        assert done.status == 2
        at.out[f"settings {text[:30]}"] = done.out.decode() + done.err


def _values(exported: Any) -> str:
    """The payloads of an export, which are Base64 in it."""
    match exported:
        case {"data": str(data), **more}:
            with contextlib.suppress(ValueError):
                data = base64.b64decode(data, validate=True).decode("utf-8", "replace")
            return data + _values(more)
        case dict():
            return " ".join(_values(value) for value in exported.values())
        case list():
            return " ".join(_values(value) for value in exported)
        case _:
            return ""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("form", "encrypted"), [("json", False), ("text", True)])
async def test_no_secret_comes_out_anywhere(
    temporal: EmbeddedTemporal, client: Client, tmp_path: Path, form: str, encrypted: bool
) -> None:
    resource: list[str] = []
    async with AuthServer() as auth, FakeServer(handle) as weather, FakeServer(protected(auth, resource)) as cloud:
        auth.clients["pack"] = SECRETS["OAUTH_SECRET"]
        resource.append(cloud.url)
        urls = {"weather": weather.url, "cloud": cloud.url}
        with collector() as measured:
            async with scene(temporal, tmp_path, measured, urls, form, encrypted=encrypted) as at:
                runs = [await at.create("weather", tool) for tool in TOOLS]
                runs += [await at.create("strict", "result"), await at.create("crm", "result")]
                runs += [await at.create(server, "rpc") for server in ("crm", "cloud", "box")]
                runs += [
                    await at.create(server, "result") for server in ("cloud", "box", "refused", "nowhere", "denied")
                ]
                runs += [await at.create("box", tool) for tool in ("noise", "ends")]
                told = {"callbackUrl": f"http://127.0.0.1:{_closed()}/{SECRETS['CALLBACK_SECRET'][:4]}"}
                asking = await at.create("weather", "asks", **told)
                ended = [await at.standing(run_id, "completed", "failed") for run_id in runs]
                assert {"completed", "failed"} == set(ended)
                await at.standing(asking, "waiting-input", "waiting-clarification")
                await rejected(at)
                await misconfigured(at, tmp_path)
                for command in (
                    ("call", "weather", "result", "--json"),
                    ("call", "weather", "500"),
                    ("health", "weather", "--json"),
                    ("health", "strict"),
                    ("health", "box"),
                    ("health", "cloud", "--json"),
                    ("health", "refused"),
                    ("tools", "list", "weather", "--json"),
                    ("tools", "list", "crm", "--refresh"),
                    ("interrupts", "list", asking, "--json"),
                    ("runs", "events", asking, "--json"),
                ):
                    await at.cli(*command)
                decode = ("--decode",) if encrypted else ()
                for run_id in (runs[0], runs[2], asking):
                    for command in (("runs", "show", run_id, "--json"), ("runs", "show", run_id), ("effects", run_id)):
                        assert (await at.cli(*command)).status == 0
                    exported = await at.cli("runs", "export", run_id, *decode)
                    at.out[f"values of {run_id}"] = _values(json.loads(exported.out))
                for run_id in (*runs, asking):
                    events = (await client.get_workflow_handle(run_id).fetch_history()).events
                    raw = b"\n".join(event.SerializeToString() for event in events)
                    at.out[f"history of {run_id}"] = raw.decode("utf-8", "replace")
                await measured.until(lambda kept: kept.spans and kept.metrics)
        issued = list(auth.tokens)
    for file in (tmp_path / "blobs").rglob("*"):
        if file.is_file():
            at.out[f"value {file.name}"] = file.read_text(encoding="utf-8", errors="replace")
    at.out["spans and metrics"] = b"\n".join(measured.bodies).decode("utf-8", "backslashreplace")
    assert issued
    shown = "".join(at.out.values())
    # It was all there to come out: what stands in its place came out.
    assert shown.count("[credential]") > 20
    assert "original-sha256" in shown or encrypted
    told_lines = at.out["log of the worker"].splitlines()
    if form == "json":
        facts = [json.loads(line) for line in told_lines]
        assert any(one.get("server") == "weather" and one.get("node") and one.get("run") in runs for one in facts)
    assert any("called with [credential]" in line for line in told_lines)
    secrets = {**SECRETS, "encryption key": ENCRYPTION_KEY} | {f"token {token}": token for token in issued}
    leaks = [
        (name, spelling, where, text[max(0, at_ - 200) : at_ + 40])
        for where, text in ((where, text.lower()) for where, text in at.out.items())
        for name, secret in secrets.items()
        for spelling, spelled in spellings(secret).items()
        if (at_ := text.find(spelled)) >= 0
    ]
    assert not leaks, leaks[:5]
