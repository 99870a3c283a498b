"""The commands about questions that runs wait with: list, show and answer them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any

import typer
from temporalio.client import Client

from commands.arguments import json_argument, sound_json
from commands.connection import connect
from commands.errors import CommandError
from commands.identity import operator
from commands.interviewing import asked_here
from commands.options import AsJson, Config, Run, unprojected
from commands.printing import complain, print_json, print_text
from commands.process import run_async, run_in_turn
from commands.prose import named, origin
from commands.settings import settings_of
from openwop_mcp import jsontext
from openwop_mcp.config import Settings
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.questions import telling
from openwop_mcp.questions.eligibility import takes_tokens
from openwop_mcp.runs.interrupts import OpenInterrupt, Resolution, encode_open
from openwop_mcp.storage import LostValueError, StorageError
from workflows.client import (
    InterruptRefusedError,
    RecordedRun,
    RunExpiredError,
    RunNotFoundError,
    open_interrupts,
    read_asking,
    resolve_interrupt,
    waiting_runs,
)

__all__ = ("app",)

app = typer.Typer(no_args_is_help=True, help="Questions that runs wait with.")

InterruptName = Annotated[
    str | None,
    typer.Argument(
        metavar="INTERRUPT", help="Its id, or the node that waits; needed where the run waits with several."
    ),
]


UNREAD = (EncryptionError, LostValueError, StorageError, RunExpiredError, RunNotFoundError)
"""Why what one run waits with cannot be read, be it that another deployment has the key: others wait all the same."""


async def _asked(client: Client, run_id: str) -> list[tuple[RecordedRun, OpenInterrupt]]:
    found = await read_asking(client, run_id)
    return [(found, one) for one in await open_interrupts(client, found)]


@app.command("list")
def interrupts_list_command(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="A run id; default all that wait.", callback=unprojected)
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """List the questions that runs, and workflows of your own, wait with."""
    settings = settings_of(config, secrets=False)

    async def main() -> list[tuple[RecordedRun, OpenInterrupt]]:
        client = await connect(settings)
        if run is not None:
            return await _asked(client, run)
        found: list[tuple[RecordedRun, OpenInterrupt]] = []
        async for one in waiting_runs(client):
            try:
                found += await _asked(client, one)
            except UNREAD as error:
                complain(f"{one}: what it waits with cannot be read: {error}")
        return found

    found = run_async(main())
    if as_json:
        print_json(encode_open([one for _, one in found]))
        return
    if not found:
        complain("no run waits" if run is None else f"'{run}' waits with no question")
    for asking, one in found:
        print_text(named(one))
        print_text(f"    {origin(asking)}")
        for line in telling.in_brief(one.payload, one.asked_at, time.time()):
            print_text(f"    {line}")


@app.command("show")
def interrupts_show_command(
    run: Run,
    interrupt: InterruptName = None,
    link: Annotated[
        bool, typer.Option("--link", help="Also make an address at which it can be answered without a key.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Show all that a question says, and what it takes as an answer."""
    settings = settings_of(config, secrets=False)

    async def main() -> tuple[RecordedRun, OpenInterrupt, str | None]:
        client = await connect(settings)
        found = await read_asking(client, run)
        one = meant(found, await open_interrupts(client, found), interrupt)
        return found, one, await link_to(client, settings, found, one) if link else None

    found, one, url = run_async(main())
    if as_json:
        linked = [] if url is None else [("link", jsontext.encode(url))]
        print_json(jsontext.build([*jsontext.members(one.encode()), *linked]))
        return
    print_text(named(one))
    print_text(origin(found))
    for line in telling.in_full(one.payload, one.asked_at, time.time()):
        print_text(line)
    if url is not None:
        print_text(url)


@app.command("answer")
def interrupts_answer_command(
    run: Run,
    interrupt: InterruptName = None,
    answer: Annotated[
        str | None,
        typer.Argument(
            metavar="JSON", help="The answer; @FILE reads a file. Without it you are asked, if this is a terminal."
        ),
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Answer a question that a run waits with."""
    if answer is None and interrupt is not None and interrupt.startswith(("{", "@")):
        # No id and no node that one would write by hand begins so.
        interrupt, answer = None, interrupt
    settings = settings_of(config, secrets=False)
    given = None if answer is None else json_argument(answer, "JSON", settings)
    if given is None and (as_json or not (sys.stdin.isatty() and sys.stderr.isatty())):
        raise typer.BadParameter(
            f"write the answer, as 'worker.py interrupts show {run}' says what it may be: nobody can be asked here",
            param_hint="'JSON'",
        )

    async def find() -> OpenInterrupt:
        client = await connect(settings)
        found = await read_asking(client, run)
        return meant(found, await open_interrupts(client, found), interrupt)

    async def resolve(interrupt_id: str, value: bytes, one: OpenInterrupt | None = None) -> str:
        resolution = Resolution(interrupt_id, value, jsontext.encode(operator(settings.worker.tenant)))
        try:
            await resolve_interrupt(await connect(settings), run, resolution)
        except InterruptRefusedError as error:
            if one is None or error.code != "validation_error":
                raise
            # What was meant may be a question that the run came to since.
            about = f"node {one.node_id} ({one.kind})" if one.node_id else f"the {one.kind}"
            raise CommandError(f"{about}: {error}", code=error.code) from None
        return interrupt_id

    def resolve_found(one: OpenInterrupt) -> Coroutine[Any, Any, str]:
        value = given if given is not None else sound_json(asked_here(one), "JSON", settings)
        return resolve(one.interrupt_id, value, one)

    if given is not None and interrupt is not None and "/" in interrupt:
        answered = run_async(resolve(interrupt, given))
    else:
        answered = run_in_turn(find(), resolve_found)
    if as_json:
        print_json(jsontext.encode({"runId": run, "interruptId": answered}))
    else:
        complain(f"answered; see 'worker.py runs show {run}'")


def meant(run: RecordedRun, waiting: Sequence[OpenInterrupt], name: str | None) -> OpenInterrupt:
    """The question that is meant: by its id, by the node that waits, or as the only one."""
    found = [one for one in waiting if name in {None, one.interrupt_id, one.node_id or None}]
    # Nodes that share an effect wait with one question.
    if len({one.interrupt_id for one in found}) == 1:
        return found[0]
    if found:
        names = ", ".join(sorted(one.node_id or one.interrupt_id for one in found))
        raise CommandError(
            f"'{run.run_id}' waits with {len(found)} questions: name one of {names}", code="validation_error"
        )
    if waiting:
        raise CommandError(
            f"'{run.run_id}' waits with no question of that name: see 'worker.py interrupts list {run.run_id}'",
            code="not_found",
        )
    raise CommandError(f"'{run.run_id}' waits with no question", code="not_found")


async def link_to(client: Client, settings: Settings, run: RecordedRun, one: OpenInterrupt) -> str:
    """An address at which a question can be answered without a key."""
    # Here for the same reason as in `running_worker`.
    from host.links import Links

    if not run.is_graph:
        raise CommandError("there is no link to it: only questions of graphs have one", code="validation_error")
    nodes = jsontext.elements(jsontext.member(run.definition, "nodes") or b"[]")
    asks = next(node for node in nodes if jsontext.decode(jsontext.member(node, "id") or b'""') == one.node_id)
    if not takes_tokens(one.payload, jsontext.member(asks, "config") or b"{}"):
        raise CommandError(
            "there is no link to it: it has to be known who answers it, with a key of the host", code="forbidden"
        )
    made = await Links(settings.host, os.environ, client).make(
        run_id=one.run_id,
        node_id=one.node_id,
        interrupt_id=one.interrupt_id,
        until=telling.ends_at(one.payload, one.asked_at),
    )
    if made is None:
        raise CommandError(
            "the settings do not say where the host is: set host.url, as in https://openwop.example.org",
            code="validation_error",
        )
    return made.url
