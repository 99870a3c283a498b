"""Runs that a command starts, and waits for to their end. What is then printed of them is for the command."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError

from commands.connection import PATIENCE, WATCH, connect
from commands.errors import CommandError, StartedRunError
from commands.identity import operator
from commands.printing import complain
from commands.process import run_async
from commands.prose import call_prose
from commands.settings import options_of
from openwop_mcp import terminal
from openwop_mcp.config import Settings
from openwop_mcp.runs.definition import Definition
from openwop_mcp.runs.limits import limited
from openwop_mcp.runs.start import Owner, RunStart
from openwop_mcp.storage import LostValueError, StorageError
from openwop_mcp.verbatim import Verbatim
from workflows.client import (
    RecordedRun,
    UnderWay,
    mint_run_id,
    read_run,
    start_run,
    under_way,
    waits_for_answers,
)

__all__ = ("failed", "start", "start_and_wait")


@dataclass(slots=True)
class Told:
    """What a person who waits for a run was told, so that nothing is told twice.

    Attributes:
        lines: The last that was told of each call, by the id of its activity.
        waits: The last that was told of what a call waits for, by its name.
        unbegun: Activities that had no worker at the last look.
        asked: Whether it was told that the run waits for a person.
    """

    lines: dict[str, str] = field(default_factory=dict)
    waits: dict[str, str] = field(default_factory=dict)
    unbegun: frozenset[str] = frozenset()
    asked: bool = False


async def start(settings: Settings, definition: Definition, inputs: bytes, client: Client | None = None) -> str:
    """Start a run as the operator of this machine."""
    client = client or await connect(settings)
    tenant = settings.worker.tenant
    start = RunStart(
        run_id=mint_run_id(tenant),
        definition=definition.raw,
        owner=Owner(tenant, operator(tenant)),
        options=limited(options_of(settings), definition),
    )
    await start_run(client, start, definition, inputs, task_queue=settings.worker.task_queue)
    return start.run_id


def start_and_wait(
    settings: Settings, definition: Definition, inputs: bytes, started: Callable[[str], None], *, progress: bool = False
) -> RecordedRun:
    """Start a run and wait for its end.

    Args:
        settings: Where.
        definition: What to run.
        inputs: JSON text of the run's inputs.
        started: Told the run's id before anything is waited for: whatever happens then, the run can be looked at.
        progress: Whether to show meanwhile how far its calls are, or what they wait for.

    Raises:
        StartedRunError: There is a run, and waiting for its end failed or was given up.
    """
    run_id: str | None = None

    async def main() -> RecordedRun:
        nonlocal run_id
        client = await connect(settings)
        run_id = await start(settings, definition, inputs, client)
        started(run_id)
        return await to_the_end(client, run_id, progress=progress)

    try:
        return run_async(main())
    except (KeyboardInterrupt, Exception) as error:
        if run_id is None or isinstance(error, BrokenPipeError):
            raise
        raise StartedRunError(run_id) from error


async def to_the_end(client: Client, run_id: str, *, progress: bool) -> RecordedRun:
    """Wait until a run has ended, and read it.

    Raises:
        CommandError: No worker took the run; it was ended before anything was sent.
    """
    handle = client.get_workflow_handle(run_id)
    result = asyncio.ensure_future(handle.result())
    told = Told()
    patient_until = time.monotonic() + PATIENCE
    taken = False
    # Short calls cost no look: the first is due after a second.
    while not (await asyncio.wait([result], timeout=WATCH))[0]:
        if progress:
            await tell_progress(client, run_id, told)
        await tell_questions(client, run_id, told)
        if not taken and time.monotonic() >= patient_until:
            await give_up_unless_taken(handle)
            taken = True
    with contextlib.suppress(WorkflowFailureError):
        await result
    return await read_run(client, run_id)


async def tell_questions(client: Client, run_id: str, told: Told) -> None:
    """Tell that a run waits for a person, once for each time that it does."""
    try:
        waits = await waits_for_answers(client, run_id)
    except RPCError:
        return
    if waits and not told.asked:
        complain(
            f"the run waits for a person: see 'worker.py interrupts show {run_id}', and"
            f" 'worker.py interrupts answer {run_id}'"
        )
    told.asked = waits


async def tell_progress(client: Client, run_id: str, told: Told) -> None:
    """Tell how far a run's calls are, or what they wait for."""
    try:
        going = await under_way(client, run_id)
        unbegun = frozenset(activity_id for activity_id, activity in going.items() if activity.waits)
        # A worker takes most at once: that there is none is news where a look later it is still so.
        if not going or unbegun & told.unbegun:
            tell_waits(await read_run(client, run_id), going, told)
        told.unbegun = unbegun
    except (RPCError, StorageError, LostValueError):
        # The next look may fare better; that the run cannot be waited for any more is told by the wait.
        return
    for activity_id, activity in going.items():
        if activity.progress is not None and told.lines.get(activity_id) != (line := activity.progress.prose):
            told.lines[activity_id] = line
            # The message is a server's, which must not be able to add a line of its own.
            complain(terminal.escape(line))


def tell_waits(run: RecordedRun, going: Mapping[str, UnderWay], told: Told) -> None:
    """Tell which calls wait: for room, for another attempt, or for a worker; once for each of that."""
    for call in run.made:
        now = going.get(call.activity_id)
        if call.outcome == "retrying" or (call.outcome == "running" and now is not None and now.waits):
            prose = call_prose(call, now)
            # Below it stands for how long, which is another number each time.
            line = prose.splitlines()[0]
            if told.waits.get(call.name) != line:
                told.waits[call.name] = line
                complain(prose)


async def give_up_unless_taken(handle: WorkflowHandle[Any, Any]) -> None:
    """End a run that no worker has taken: without a worker nothing can have been sent."""
    if EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED in await event_types(handle):
        return
    await handle.terminate("no worker")
    if EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED in await event_types(handle):
        raise CommandError(
            f"no worker took the run within {PATIENCE:g} s; one did while the run was being ended, so that the effect"
            f" may have happened: see 'worker.py runs show {handle.id}'",
            code="service_unavailable",
        )
    raise CommandError(
        f"no worker took the run within {PATIENCE:g} s, and nothing was sent: start 'worker.py run' or 'worker.py dev'"
        " with the same temporal and worker settings",
        code="service_unavailable",
    )


async def event_types(handle: WorkflowHandle[Any, Any]) -> set[int]:
    """What has happened to a workflow so far."""
    return {event.event_type async for event in handle.fetch_history_events()}


def failed(run: RecordedRun) -> CommandError:
    """Why a run of a graph did not complete."""
    code, message, details = run.failure or ("internal_error", f"the run is {run.status}", b"{}")
    delivery = Verbatim(details).get("delivery")
    return CommandError(message, code=code, details=details, delivery=delivery if isinstance(delivery, str) else None)
