"""The commands that check what was recorded: replay with the current code, and the ledger of effects."""

from __future__ import annotations

import dataclasses
import logging
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from commands.connection import connect
from commands.exported import file_of, read_exported
from commands.options import AsJson, Config, Recorded, unprojected
from commands.printing import LEDGER_COLUMNS, print_json, print_table, print_text
from commands.process import run_async
from commands.settings import settings_of
from openwop_mcp import jsontext
from openwop_mcp.config import Settings
from openwop_mcp.runs.ledger import EffectAttempt, effect_attempts
from openwop_mcp.storage import data_converter
from workflows.client import effect_ledger, read_run
from workflows.replay import HistoryFileError, ReplayVerdict, WorkflowClassError, files_of, open_file, replay

__all__ = ("app",)

app = typer.Typer()


@app.command("replay")
def replay_command(
    what: Annotated[
        str, typer.Argument(metavar="RUN|FOLDER|FILE", help="A run id, or exported histories.", callback=unprojected)
    ],
    workflow: Annotated[
        list[str] | None, typer.Option("--workflow", metavar="MODULE:CLASS", help="A workflow of your own; repeatable.")
    ] = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Replay recorded histories with the current code; the status is 0 only if none diverges and no byte changed."""
    settings = settings_of(config, secrets=False)
    classes = [workflow_class(name) for name in workflow or []]

    # What a replay finds is told by its verdict.
    logging.getLogger("temporalio").setLevel(logging.CRITICAL)
    path = file_of(what)
    # Of one file it is known which.
    several = path is not None and path.is_dir()
    converter = for_replay(settings)

    async def main() -> list[tuple[Path | None, ReplayVerdict | HistoryFileError]]:
        found: Sequence[tuple[Path | None, WorkflowHistory | HistoryFileError]]
        if path is None:
            found = [(None, history) for history in (await read_run(await connect(settings), what)).histories]
        else:
            found = [one for file in files_of(path) for one in await opened(file, converter, alone=not several)]
        histories = [one for _, one in found if isinstance(one, WorkflowHistory)]
        replayed = iter(await replay(histories, classes, data_converter=converter))
        return [(file, next(replayed) if isinstance(one, WorkflowHistory) else one) for file, one in found]

    try:
        verdicts = run_async(main())
    except WorkflowClassError as error:
        raise typer.BadParameter(str(error), param_hint="'--workflow'") from None
    if as_json:
        print_json(jsontext.encode([verdict_facts(file, verdict) for file, verdict in verdicts]))
    else:
        for file, verdict in verdicts:
            if isinstance(verdict, HistoryFileError):
                print_text(str(verdict))
                continue
            for line in verdict.prose().splitlines():
                print_text(f"{file}: {line}" if several else line)
    if not all(isinstance(verdict, ReplayVerdict) and verdict.sound for _, verdict in verdicts):
        raise typer.Exit(1)


@app.command("effects")
def effects_command(run: Recorded, config: Config = None, as_json: AsJson = False) -> None:
    """Show the ledger of a run's effects: one line for each attempt, without arguments and results."""
    settings = settings_of(config, secrets=False)
    tenant = settings.worker.tenant

    async def main() -> tuple[str, Sequence[EffectAttempt]]:
        if (file := file_of(run)) is not None:
            found = await read_exported(file, settings)
            parts = [history.events for history in found.histories]
            # What others share has workflows of its own, and what was under way is known to Temporal alone.
            return found.run_id, effect_attempts(parts, workflow_id=found.run_id, tenant=tenant)
        return run, await effect_ledger(await connect(settings), run, tenant=tenant)

    run_id, ledger = run_async(main())
    rows = [attempt.facts for attempt in ledger if attempt.state is not None]
    if as_json:
        print_json(jsontext.encode({"runId": run_id, "effects": rows}))
        return
    columns = ("nodeId", "attempt", "state", "at", "keying", "effectId")
    print_table(list(columns), [[str(row[name]) for name in columns] for row in rows], columns=LEDGER_COLUMNS)


async def opened(
    file: Path, converter: DataConverter, *, alone: bool
) -> list[tuple[Path, WorkflowHistory | HistoryFileError]]:
    """The histories of a file; or why there are none, where it is not alone and must not keep the others from it.

    Raises:
        HistoryFileError: It is alone, and cannot be read.
    """
    try:
        return [(file, history) for history in await open_file(file, converter)]
    except HistoryFileError as error:
        if alone:
            raise
        return [(file, error)]


def verdict_facts(file: Path | None, verdict: ReplayVerdict | HistoryFileError) -> dict[str, object]:
    """What came of one history, or of a file that holds none, for machines."""
    named = {} if file is None else {"file": str(file)}
    if isinstance(verdict, ReplayVerdict):
        return {**named, **verdict.facts()}
    return {**named, "sound": False, "error": {"code": verdict.code, "message": str(verdict)}}


def for_replay(settings: Settings) -> DataConverter:
    """The converter of a worker, but without its storage: what a replay makes is not to be kept."""
    return dataclasses.replace(data_converter(settings), external_storage=None)


def workflow_class(name: str) -> type:
    """An author's workflow, by ``module:class``."""
    module, _, attribute = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise typer.BadParameter(f"{name}: {error}", param_hint="'--workflow'") from None
    # What an author's module does when it is imported is no fault of this program.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - see above
        raise typer.BadParameter(
            f"{name}: importing {module} raised {type(error).__name__}: {error}", param_hint="'--workflow'"
        ) from None
    if not isinstance(found, type):
        raise typer.BadParameter(f"{name} is no class", param_hint="'--workflow'")
    return found
