"""The client under test: the pack's own, doing what each scenario of the conformance suite wants done.

    python -m tests.conformance.client URL

The suite says by the environment which scenario it plays, at which revision, and with which credentials. Its last line
of output is a report; the exit status is 0 for a scenario that was completed, and 1 for an error of the pack. Anything
else is a fault of ours, and ends in a traceback without a report.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from openwop_mcp import jsontext
from openwop_mcp.client import Clients, Exchange, McpClient
from openwop_mcp.config import Settings
from openwop_mcp.errors import InvalidRequestError, McpError, RpcError
from openwop_mcp.protocol.revisions import LEGACY, MODERN
from tests.conformance.report import Report

CLIENT_INFO = b'{"name":"openwop-mcp-pack","version":"0.1.0"}'

CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
"""The address that the suite takes for that of our client metadata document."""

REDIRECT_URI = "http://127.0.0.1:1/callback"
"""Where nobody listens: the redirect is read and not followed."""

SERVER = "server"


@dataclass(frozen=True, slots=True)
class Play:
    """What a script has to work with: the client, and what the suite gave for the scenario."""

    client: McpClient
    context: Mapping[str, Any]


Script = Callable[[Play], Awaitable[None]]


async def use_tools(play: Play) -> None:
    """Lists the tools and calls each, without arguments."""
    async for tool in listed(play.client.list_tools, "tools"):
        await play.client.call_tool(tool["name"], b"{}")


async def list_tools(play: Play) -> None:
    await play.client.list_tools()


async def meet(play: Play) -> None:
    """Agrees with the server, which declares no tools: nothing more may be asked of it."""
    try:
        await play.client.list_tools()
    except InvalidRequestError:
        return


async def add(play: Play) -> None:
    await play.client.list_tools()
    await play.client.call_tool("add_numbers", b'{"a":5,"b":3}')


async def use_everything(play: Play) -> None:
    """Every request that mirrors a name in its headers."""
    await use_tools(play)
    async for resource in listed(play.client.list_resources, "resources"):
        await play.client.read_resource(resource["uri"])
    async for prompt in listed(play.client.list_prompts, "prompts"):
        await play.client.get_prompt(prompt["name"], None)


async def replay(play: Play) -> None:
    await play.client.list_tools()
    for call in play.context["toolCalls"]:
        await play.client.call_tool(call["name"], jsontext.encode(call["arguments"]))


async def try_every_tool(play: Play) -> None:
    """Calls each tool that is listed, as a workflow may: the client itself has to refuse those that are invalid."""
    refused = 0
    async for tool in listed(play.client.list_tools, "tools"):
        arguments = dict.fromkeys(tool["inputSchema"]["properties"], "us-west1")
        try:
            await play.client.call_tool(tool["name"], jsontext.encode(arguments))
        except McpError:
            refused += 1
    assert refused, "every tool was called"


async def answer_and_isolate(play: Play) -> None:
    for tool in ("test_mrtr_echo_state", "test_mrtr_no_state", "test_mrtr_unrelated", "test_mrtr_no_result_type"):
        await play.client.call_tool(tool, b"{}")


async def meet_a_remote_reference(play: Play) -> None:
    """Lists and calls, so that whatever looks at the schema meets the reference; the server has no tools/call."""
    await play.client.list_tools()
    try:
        await play.client.call_tool("lookup_user", b'{"id":"a-1","profile":{}}')
    except RpcError:
        return


async def echo_a_schema(play: Play) -> None:
    """Sends a schema back as it came: its bytes, cut out of the list."""
    page = (await play.client.list_tools()).result
    tools = [dict(jsontext.members(tool)) for tool in jsontext.elements(dict(jsontext.members(page))["tools"])]
    schema = next(tool["inputSchema"] for tool in tools if tool["name"] == b'"json_schema_2020_12_tool"')
    await play.client.call_tool("json_schema_echo", jsontext.build([("schema", schema)]))


SCRIPTS: Mapping[str, Script] = {
    "initialize": meet,
    "tools_call": add,
    "request-metadata": list_tools,
    "http-standard-headers": use_everything,
    "http-custom-headers": replay,
    "http-invalid-tool-headers": try_every_tool,
    "sep-2322-client-request-state": answer_and_isolate,
    "json-schema-ref-no-deref": meet_a_remote_reference,
    "json-schema-2020-12-preservation": echo_a_schema,
}
"""What is not here lists the tools and calls them: all of authorization, reconnection and older servers' questions."""

ASKED = frozenset({"sep-2322-client-request-state", "elicitation-sep1034-client-defaults"})
"""Scenarios whose server asks. In all others nobody is there to ask, as in a worker, and the client declares so."""


async def fill_in(method: str, params: bytes) -> bytes:
    """Accepts a form as it stands: every default, and yes to what has none."""
    assert method == "elicitation/create", method
    schema = jsontext.decode(params)["requestedSchema"]
    content = {name: field.get("default", True) for name, field in schema["properties"].items()}
    return jsontext.encode({"action": "accept", "content": content})


async def listed(page: Callable[..., Awaitable[Exchange]], key: str) -> AsyncIterator[dict[str, Any]]:
    """What a method lists, page after page."""
    cursor: str | None = None
    while True:
        found = jsontext.decode((await page(cursor)).result)
        for entry in found[key]:
            yield entry
        cursor = found.get("nextCursor")
        if cursor is None:
            return


def credential(scenario: str, context: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings of a scenario's credential, and the environment that holds its secrets."""
    if scenario == "auth/wif-jwt-bearer":
        known = {"grant": "jwt_bearer", "assertion": {"env": "ASSERTION"}, "client_id": context["client_id"]}
        return {"oauth": known}, {"ASSERTION": context["valid_jwt"]}
    if scenario == "auth/client-credentials-jwt":
        known = {"grant": "client_credentials", "client_id": context["client_id"], "private_key": {"env": "KEY"}}
        return {"oauth": known}, {"KEY": context["private_key_pem"]}
    if scenario == "auth/client-credentials-basic":
        known = {"grant": "client_credentials", "client_id": context["client_id"], "client_secret": {"env": "SECRET"}}
        return {"oauth": known}, {"SECRET": context["client_secret"]}
    login: dict[str, Any] = {"grant": "authorization_code", "client_metadata_url": CLIENT_METADATA_URL}
    if scenario == "auth/pre-registration":
        known = {"client_id": context["client_id"], "client_secret": {"env": "SECRET"}, "issuer": context["issuer"]}
        return {"oauth": login | known}, {"SECRET": context["client_secret"]}
    return {"oauth": login}, {}


async def visit(authorization_url: str) -> str:
    """Goes where a person would go, and says where they would be sent back to; nobody is asked anything there."""
    async with httpx.AsyncClient() as browser:
        answer = await browser.get(authorization_url)
    return answer.headers["location"]


async def play(url: str, environ: Mapping[str, str]) -> None:
    """Plays the scenario that the environment names.

    Raises:
        McpError: What ended it.
    """
    scenario = environ["MCP_CONFORMANCE_SCENARIO"]
    context = json.loads(environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    modern = environ["MCP_CONFORMANCE_PROTOCOL_VERSION"] == MODERN
    server = {"url": url, "network": "private", "minimum_revision": MODERN if modern else LEGACY[-1]}
    secrets: dict[str, str] = {}
    if scenario.startswith("auth/"):
        server["credential"], secrets = credential(scenario, context)
    settings = Settings.model_validate({"servers": {SERVER: server}})
    with tempfile.TemporaryDirectory() as state:
        clients = Clients(
            settings,
            client_info=CLIENT_INFO,
            environ={"XDG_STATE_HOME": state, **secrets},
            on_input=fill_in if scenario in ASKED else None,
            visit=visit,
            redirect_uri=REDIRECT_URI,
        )
        async with clients:
            await SCRIPTS.get(scenario, use_tools)(Play(clients[SERVER], context))


def main(url: str) -> int:
    """The exit status."""
    try:
        asyncio.run(play(url, os.environ))
    except McpError as error:
        report = Report(completed=False, cause=getattr(error, "cause", type(error).__name__), message=str(error))
    else:
        report = Report(completed=True)
    sys.stdout.write(f"{report.line()}\n")
    return 0 if report.completed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
