"""The commands that speak with one server: a durable call, its health, and a person's login."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from commands.arguments import object_argument, unicode_argument
from commands.asking import with_server
from commands.ending import Ending
from commands.errors import CommandError, StartedRunError
from commands.options import AsJson, Config
from commands.pasting import can_paste, pasted
from commands.printing import complain, print_json, print_text
from commands.process import run_async
from commands.prose import described
from commands.settings import configured, no_file, settings_of
from commands.waiting import failed, start_and_wait
from openwop_mcp import jsontext, terminal
from openwop_mcp.calls import MAX_KEY
from openwop_mcp.errors import McpError, UnknownServerError
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse
from openwop_mcp.runs.single import single_call

if TYPE_CHECKING:
    from openwop_mcp.client import Exchange, McpClient

__all__ = ("app",)

app = typer.Typer()


@app.command("call")
def call_command(
    server: Annotated[str, typer.Argument(help="A server id of the settings.")],
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    args: Annotated[
        str | None, typer.Option("--args", metavar="JSON", help="Arguments, sent byte for byte; @FILE reads a file.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="An idempotency key of your own for this effect.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Call a tool durably: as a run of one node, by a worker that is already there."""
    settings = settings_of(config, secrets=False)
    for value, hint in ((server, "SERVER"), (tool, "TOOL"), (key or "", "--key")):
        unicode_argument(value, hint)
    if key is not None and not 0 < len(key) <= MAX_KEY:
        raise typer.BadParameter(f"write 1 to {MAX_KEY} characters", param_hint="'--key'")
    given = None if args is None else object_argument(args, "--args", settings)
    text, inputs = single_call(server, tool, given, key)
    definition = parse(text, source="call", node_types=REGISTRY)

    def started(run_id: str) -> None:
        complain(f"run {run_id}")

    run = start_and_wait(settings, definition, inputs, started, progress=True)
    if run.status != "completed":
        error = failed(run)
        if error.code == UnknownServerError.code:
            # The worker's settings lack it. They are mostly those of this folder as well.
            error = CommandError(
                f"{error}{no_file(config)}", code=error.code, details=error.details, delivery=error.delivery
            )
        raise StartedRunError(run.run_id) from error
    made = run.made[-1]
    record = made.record
    assert record is not None, "a call of a run that completed has a result"
    if as_json:
        print_json(record.result.raw)
    else:
        print_text(record.result.text or record.result.raw.decode())
        # A verdict on a schema can quote a server, which must not be able to add a line of its own.
        complain(terminal.escape(described(made, record)))
    if record.result.is_error:
        raise typer.Exit(1)


@app.command("health")
def health_command(
    server: Annotated[str, typer.Argument(help="A server id of the settings.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Ask whether a server can be reached; the status is 0 only if it can."""
    from openwop_mcp.client import probe

    settings = settings_of(config)
    reason: McpError | None = None
    older: str | None = None

    async def ask(client: McpClient) -> Exchange:
        nonlocal reason, older
        answer, reason = await probe(client)
        older = client.older_revision
        return answer

    answer = run_async(with_server(settings, server, ask, config))
    # The answer knows only the revision that has discovery; people ask whether the server can be called.
    state = answer.get("state") if older is None else "reachable"
    why = None if reason is None or older is not None else Ending.of(reason)
    if as_json:
        told = [(name, text) for name, text in jsontext.members(answer.raw) if name != "state"]
        members = [("state", jsontext.encode(state)), *told]
        if older is not None:
            members.append(("revision", jsontext.encode(older)))
        if why is not None:
            members.append(("error", why.encode()))
        print_json(jsontext.build(members))
    else:
        print_text(f"{server} is {state}" + ("" if older is None else f" at MCP {older}"))
        if why is not None:
            complain(why.prose)
    if state != "reachable":
        raise typer.Exit(1)


@app.command("login")
def login_command(
    server: Annotated[str, typer.Argument(help="A server id of the settings.")],
    port: Annotated[int, typer.Option(help="Port of this machine to come back to; default a free one.")] = 0,
    config: Config = None,
) -> None:
    """Log in at a server's authorization server; workers of this machine and user then call it in your name."""
    from openwop_mcp.client import log_in

    settings = settings_of(config)
    found = configured(settings, server, config)
    pasting = pasted if can_paste() else None

    def show(url: str) -> None:
        complain("open this in a browser of this machine:")
        print_text(url)
        if pasting is not None:
            complain(
                "or in one of another machine, which will have nothing to show at the end: paste the address that it"
                " ended at here, and press Enter (it stays hidden)"
            )

    login = run_async(log_in(server, found, environ=os.environ, show=show, pasting=pasting, port=port))
    scopes = f", scopes {' '.join(login.scopes)}" if login.scopes else ""
    ends = "" if login.renewable else "; it cannot be renewed, so that you have to log in again when it ends"
    complain(f"logged in to {server}: issuer {login.issuer}, client {login.client_id}{scopes}{ends}")
