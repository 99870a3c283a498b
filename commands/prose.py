"""What people read of runs, calls and questions: a line from a record. It asks nobody and prints nothing."""

from __future__ import annotations

from typing import Any

from openwop_mcp import jsontext, terminal
from openwop_mcp.runs import negotiation
from openwop_mcp.runs.events import RunEvent
from openwop_mcp.runs.interrupts import OpenInterrupt
from openwop_mcp.runs.records import CallRecord, MadeCall
from workflows.client import RecordedRun, UnderWay

__all__ = ("brief", "call_prose", "decided", "described", "failure_prose", "named", "origin")


def named(one: OpenInterrupt) -> str:
    """Which question it is, in a line."""
    node = f", node {one.node_id}" if one.node_id else ""
    return terminal.escape(f"run {one.run_id}, interrupt {one.interrupt_id}{node}")


def origin(run: RecordedRun) -> str:
    """Of which workflow a run is, and who started it, as far as that is recorded, in a line."""
    who = run.started_by
    return terminal.escape(f"of workflow {run.workflow_id}" + ("" if who is None else f", started by {who}"))


def described(made: MadeCall, call: CallRecord) -> str:
    """What was recorded of a call, in a line."""
    return f"{asked_of(call.server_id, call.method, call.subject)}, {recorded_as(made, call)}"


def asked_of(server_id: str, method: str, subject: str) -> str:
    """What was asked, and of whom."""
    return " ".join(part for part in (server_id, method, subject) if part) or "a call that cannot be read"


def took(made: MadeCall) -> str:
    """How many attempts a call took, and apart from them for how many answers it waited."""
    answered = made.rounds.count("input")
    questions = "" if not answered else f", answered {answered} question{'s' if answered > 1 else ''}"
    return f"attempts {made.tries}" + questions + (", approved" if "approval" in made.rounds else "")


def recorded_as(made: MadeCall, call: CallRecord) -> str:
    """What tells whether a record is still what arrived."""
    return (
        f"MCP {call.result.provenance.get('revision', 'unknown')}, {len(call.result.raw)} bytes, sha256 {call.sha256},"
        f" {took(made)},"
        + (" intact" if call.intact else " CHANGED since it was recorded")
        + (", cached" if call.cached else "")
        + (", of an earlier call with this key" if call.result.provenance.get("shared") == "true" else "")
        + (", given by a person" if call.result.provenance.get("decided") else "")
        + (f", without a credential that came back ({call.redacted} times)" if call.redacted else "")
        + (f", schema {call.schema}" if call.schema not in {"", "ok"} else "")
        + (", no content" if _is_empty(call) else "")
    )


def _is_empty(call: CallRecord) -> bool:
    """Whether a tool had nothing to say, which is not to be taken for an answer that has not come."""
    if call.method != "tools/call":
        return False
    return call.result.get("content") == [] and not call.result.has_structured_content


def call_prose(call: MadeCall, now: UnderWay | None) -> str:
    """A call in a line: what became of it, what was asked, what was recorded; below, how far it is or why it failed."""
    failure = call.failure
    match call.outcome:
        case "failed" if failure is not None:
            became = f"failed {failure.code}"
        case "retrying" if failure is not None and failure.happened.postponed is not None:
            became = "waiting for room"
        case "retrying":
            became = "waiting to be tried again"
        case "inDoubt":
            became = "in doubt"
        case "suspended":
            became = "waiting for an answer (see 'worker.py interrupts list')"
        case "running" if now is not None and now.waits:
            became = f"waiting for a worker on task queue '{call.task_queue}'"
        case _:
            became = call.outcome
    end = took(call) if call.record is None else recorded_as(call, call.record)
    line = f"{call.name}: {became}, {asked_of(call.server_id, call.method, call.subject)}, {end}"
    if failure is not None:
        below = failure_prose(failure.code, failure.happened.delivery.value, failure.message)
    elif now is not None and now.progress is not None:
        below = now.progress.prose
    else:
        return terminal.escape(line)
    # What stands below may quote a server, which must not be able to add a line of its own.
    return f"{terminal.escape(line)}\n    {terminal.escape(below)}"


def failure_prose(code: str, delivery: str, message: str) -> str:
    """Why a call failed: first the two words that say what follows from it."""
    return f"{code}, delivery {delivery}: {message}"


def decided(event: RunEvent) -> str:
    """What an event says that is asked of somebody, was answered, or went wrong; of the others, names are enough."""
    told = jsontext.decode(event.payload)
    match event.type:
        case negotiation.EVENT:
            parts = [told.get("outcome"), told.get("version"), told.get("reason")]
        case "interrupt.requested":
            parts = [told.get("kind")]
        case "interrupt.resolved":
            by = told.get("resolvedBy")
            who = by.get("subjectId") if isinstance(by, dict) else None
            parts = [told.get("kind"), told.get("action") or told.get("decision"), who and f"by {who}"]
        case "node.failed" | "run.failed":
            parts = [told["error"]["code"]]
        case _:
            parts = []
    # That terms are ok is what accepted says.
    return terminal.escape(" ".join(part for part in parts if part and part != "ok"))


def brief(tool: dict[str, Any]) -> str:
    """The first line of a tool's description, as the server wrote it."""
    lines = str(tool.get("description") or tool.get("title") or "").splitlines()
    return lines[0] if lines else ""
