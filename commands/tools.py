"""The commands about tools: what servers offer, what changed, and what an operator says of it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import typer

from commands.arguments import unicode_argument
from commands.asking import milliseconds, with_server
from commands.catalogs import catalogs_of, decided_on, kept_catalog, read_catalog, read_catalogs
from commands.choosing import bound, chosen, no_tool, parts
from commands.ending import Ending
from commands.errors import CommandError
from commands.identity import this_user
from commands.options import AsJson, Config
from commands.printing import TOOLS_COLUMNS, complain, print_json, print_table, print_text
from commands.process import run_async
from commands.prose import brief
from commands.settings import configured, no_file, settings_of
from openwop_mcp import jsontext, terminal
from openwop_mcp.catalog import listing
from openwop_mcp.catalog.decisions import decisions, goes_on
from openwop_mcp.catalog.state import Catalog, Tool
from openwop_mcp.config import DEFAULT_FILE, Settings
from openwop_mcp.runs.events import timestamp

__all__ = ("app",)

app = typer.Typer(no_args_is_help=True, help="The tools that servers offer.")


def fingerprint_given(value: str | None) -> str | None:
    """A fingerprint, or enough of its beginning to mean one definition."""
    if value is not None and not re.fullmatch(r"[0-9a-f]{8,64}", value):
        raise typer.BadParameter("write at least the first 8 of its digits, as they are shown")
    return value


ServerId = Annotated[str, typer.Argument(metavar="SERVER", help="A server id of the settings.")]

ToolPattern = Annotated[str, typer.Argument(metavar="TOOL", help="A tool's name, or a glob such as 'get_*'.")]

Fingerprint = Annotated[
    str | None,
    typer.Option(
        metavar="HEX", help="Only if its fingerprint still begins so, as it was shown.", callback=fingerprint_given
    ),
]

Why = Annotated[str, typer.Option(metavar="TEXT", help="Kept beside it, for who reads it later.")]

By = Annotated[str | None, typer.Option(metavar="NAME", help="Who says so; default the user of this machine.")]


@app.command("list")
def tools_list_command(
    server: Annotated[
        str | None, typer.Argument(metavar="SERVER", help="A server id of the settings; default all.")
    ] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Have the worker ask the server now.")] = False,
    cursor: Annotated[str | None, typer.Option(help="Ask the server itself for this one page of its list.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the tools that servers offer, and what holds for each. 'tools SERVER' is short for this."""
    if cursor is not None:
        show_page(server, cursor, config, as_json=as_json)
        return
    settings = settings_of(config, secrets=False)
    admitted = [one for one in settings.servers if settings.server(one, settings.worker.tenant) is not None]
    if server is None and not admitted:
        raise CommandError(
            f"no MCP server is configured for tenant '{settings.worker.tenant}': add [servers.ID] to"
            f" {config or DEFAULT_FILE}{no_file(config)}",
            code="not_found",
        )
    found = run_async(read_catalogs(settings, admitted if server is None else [server], config, refresh=refresh))
    if server is not None and isinstance(error := found[server], Exception):
        raise error
    show_catalogs(settings, found, alone=server is not None, as_json=as_json)
    if not all(isinstance(one, Catalog) and not (refresh and one.failure) for one in found.values()):
        raise typer.Exit(1)


@app.command("show")
def tools_show_command(
    server: ServerId,
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="The tool's name.")],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show all that there is to say of a tool: what holds for it, why, and its definition."""
    unicode_argument(tool, "TOOL")
    settings = settings_of(config, secrets=False)
    found = configured(settings, server, config)

    async def main() -> Catalog:
        return await read_catalog(settings, await catalogs_of(settings), server, config)

    catalog = run_async(main())
    one = catalog.tool(tool)
    if one is None:
        raise no_tool(server, tool)
    shown = listing.Offered.of(one, catalog, found)
    if as_json:
        print_json(shown.encode())
    else:
        print_text(listing.prose(shown))


@app.command("diff")
def tools_diff_command(
    server: ServerId,
    tool: Annotated[str | None, typer.Argument(metavar="TOOL", help="A tool's name or a glob; default all.")] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show, field by field, how tools have changed since their definitions were accepted."""
    settings = settings_of(config, secrets=False)

    async def main() -> Catalog:
        _, catalog = await kept_catalog(settings, server, config, fresh=True)
        return catalog

    catalog = run_async(main())
    drifted = [one for one in chosen(catalog, tool) if one.standing.drifted]
    if as_json:
        print_json(listing.encode_changed(catalog, drifted))
        return
    for one in drifted:
        print_text(listing.changed(one))
    if not drifted:
        complain("nothing has changed since it was accepted")
        return
    complain("accept what you have seen:")
    for one in drifted:
        words = ["tools", "approve", server, one.name, "--fingerprint", one.fingerprint[: listing.SHORT]]
        complain(terminal.escape(f"  worker.py {shlex.join(words)}"))


@app.command("classify")
def tools_classify_command(
    server: ServerId,
    tool: ToolPattern,
    tier: Annotated[Literal["pure", "read", "write"] | None, typer.Option(help="What a call may do.")] = None,
    replay_policy: Annotated[
        Literal["deterministic", "idempotent", "non-deterministic"] | None,
        typer.Option(help="What the same call does a second time."),
    ] = None,
    egress: Annotated[
        Literal["none", "safe-fetch", "host-mediated", "host-owned"] | None, typer.Option(help="Where it reaches.")
    ] = None,
    approval: Annotated[
        Literal["never", "write", "always"] | None, typer.Option(help="Whether a person is to be asked first.")
    ] = None,
    clear: Annotated[
        bool, typer.Option("--clear", help="Take back what was said, so that the settings hold again.")
    ] = False,
    fingerprint: Fingerprint = None,
    why: Why = "",
    by: By = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say what tools may do. It goes before the settings, for as long as their definitions stay what they are now."""
    says = any(value is not None for value in (tier, replay_policy, egress, approval))
    if says == clear:
        raise typer.BadParameter(
            "write --clear without any of --tier, --replay-policy, --egress and --approval"
            if clear
            else "write at least one of --tier, --replay-policy, --egress and --approval, or --clear"
        )
    settings = settings_of(config, secrets=False)

    async def main() -> list[Tool]:
        catalogs, catalog = await kept_catalog(settings, server, config)
        found = bound(chosen(catalog, tool, fingerprint))
        who = by or this_user()
        if clear:
            for part in parts(found):
                await catalogs.clear(settings.worker.tenant, server, part, by=who, why=why)
            return found
        if drifted := [one.name for one in found if one.standing.drifted]:
            raise CommandError(
                f"nothing was classified, as these have changed: {', '.join(drifted)}; see"
                f" 'worker.py tools diff {server}', and approve what you have seen first",
                code="proposal_stale",
            )
        for part in parts(found):
            await catalogs.classify(
                settings.worker.tenant,
                server,
                part,
                by=who,
                why=why,
                safety_tier=tier,
                replay_policy=replay_policy,
                egress=egress,
                approval=approval,
            )
        return found

    told_of(server, "cleared" if clear else "classified", run_async(main()), as_json=as_json)


@app.command("approve")
def tools_approve_command(
    server: ServerId,
    tool: Annotated[str | None, typer.Argument(metavar="TOOL", help="A tool's name or a glob.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All tools of the server that have changed.")] = False,
    fingerprint: Fingerprint = None,
    why: Why = "",
    by: By = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Accept definitions that have changed, so that what was said of the tools in the settings holds again."""
    if (tool is None) != every:
        raise typer.BadParameter("write a tool's name, a glob, or --all", param_hint="'TOOL'")
    settings = settings_of(config, secrets=False)

    async def main() -> list[Tool]:
        catalogs, catalog = await kept_catalog(settings, server, config)
        found = bound([one for one in chosen(catalog, tool, fingerprint) if one.standing.drifted])
        for part in parts(found):
            await catalogs.approve(settings.worker.tenant, server, part, by=by or this_user(), why=why)
        return found

    told_of(server, "approved", run_async(main()), as_json=as_json)


@app.command("decisions")
def tools_decisions_command(
    server: Annotated[
        str,
        typer.Argument(
            metavar="SERVER|FILE", help="A server id, or a catalog's history that 'runs export' wrote (*.json)."
        ),
    ],
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show who classified, cleared and approved which tools of a server, when and why, from its catalog's history."""
    settings = settings_of(config, secrets=False)
    events = run_async(decided_on(settings, server))
    found = decisions(events)
    if as_json:
        print_json(jsontext.encode([one.facts() for one in found]))
    else:
        rows = [
            [one.at, one.what, one.by, name, fingerprint[: listing.SHORT], ", ".join(one.said.values()), one.why]
            for one in found
            for name, fingerprint in one.tools
        ]
        print_table(["time", "decision", "by", "tool", "fingerprint", "says", "why"], rows, columns=TOOLS_COLUMNS)
    if goes_on(events):
        since = timestamp(events[0].event_time.ToMilliseconds())
        complain(f"this goes back to {since}; what was decided before is in no history that goes on here")


def show_page(server: str | None, cursor: str, config: str | None, *, as_json: bool) -> None:
    """Ask a server for one page of its tools and print that as it came."""
    if server is None:
        raise typer.BadParameter("write the server whose page it is", param_hint="'SERVER'")
    page = run_async(with_server(settings_of(config), server, lambda client: client.list_tools(cursor), config))
    if as_json:
        print_json(page.raw)
        return
    listed = page.get("tools")
    offered = [tool for tool in listed if isinstance(tool, dict)] if isinstance(listed, list) else []
    print_table(["tool", "description"], [[str(tool.get("name", "")), brief(tool)] for tool in offered])
    if isinstance(following := page.get("nextCursor"), str):
        complain(f"more tools follow: --cursor {shlex.quote(following)}")


def show_catalogs(settings: Settings, found: Mapping[str, Catalog | Exception], *, alone: bool, as_json: bool) -> None:
    """Print what servers offer, or why that cannot be told.

    Args:
        settings: What is said of the servers.
        found: By server id.
        alone: Whether one server was asked for by its name.
        as_json: Whether JSON was asked for: of one server its object, else an array of them.
    """
    now = milliseconds()
    if as_json:
        told = [
            listing.encode(one, settings.servers[server_id], now=now)
            if isinstance(one, Catalog)
            else listing.encode_failed(settings.worker.tenant, server_id, Ending.of(one).encode())
            for server_id, one in found.items()
        ]
        print_json(told[0] if alone else b"[" + b",".join(told) + b"]")
        return
    rows = [
        [*([] if alone else [server_id]), *tool.cells()]
        for server_id, one in found.items()
        if isinstance(one, Catalog)
        for tool in listing.offered(one, settings.servers[server_id])
    ]
    print_table([*([] if alone else ["server"]), *listing.COLUMNS], rows, columns=TOOLS_COLUMNS)
    complain(listing.LEGEND)
    for server_id, one in found.items():
        told_line = (
            listing.freshness(one, now=now) if isinstance(one, Catalog) else f"{server_id}: {Ending.of(one).prose}"
        )
        complain(terminal.escape(told_line))


def told_of(server: str, what: str, tools: Sequence[Tool], *, as_json: bool) -> None:
    """Print of which definitions an operator's word was taken."""
    if as_json:
        named = [{"name": tool.name, "fingerprint": tool.fingerprint} for tool in tools]
        print_json(jsontext.encode({"serverId": server, "tools": named}))
        return
    for tool in tools:
        print_text(terminal.escape(f"{what} {tool.name} {tool.fingerprint[: listing.SHORT]}"))
    if not tools:
        complain("nothing has changed since it was accepted")
