"""Snapshots of runs with sensitive parts: they are folds of the log, and show what it shows."""

from __future__ import annotations

import json
from typing import Any

from host.snapshot import RunView
from openwop_mcp.runs.events import RunEvent, timestamp
from tests.support.call_failures import call_failure, in_doubt
from tests.support.graphs import RUN_ID, node, start, workflow
from tests.support.temporal_model import TemporalModel

SECRET = "hunter2-hunter2"
MASKED = "[REDACTED]"
VARIABLES = [{"name": "token", "type": "string", "sensitive": True}]
TOKEN = {"type": "variable", "variableName": "token"}


def model() -> TemporalModel:
    nodes = [node("a", inputs={"arguments.token": TOKEN})]
    return TemporalModel(start(workflow(nodes, variables=VARIABLES)), json.dumps({"token": SECRET, "n": 1}).encode())


def snapshots(run: TemporalModel) -> list[dict[str, Any]]:
    """The snapshot before the log began, and after each of its events."""
    view = RunView(run.start)
    shown = [view.encode()]
    for sequence, event_type, node_id, payload, at in run.log:
        view.take([RunEvent(f"generation-{sequence}", RUN_ID, event_type, payload, timestamp(at), sequence, node_id)])
        shown.append(view.encode())
    assert SECRET.encode() not in b"".join(shown)
    return [json.loads(one) for one in shown]


def test_no_snapshot_of_a_run_shows_the_value_of_a_sensitive_variable() -> None:
    run = model()
    run.fail(run.ordinal("a"), in_doubt(message=SECRET, effectId="acme/1", attempt=1))
    run.task()
    run.answer("a", json.dumps({"action": "edit-accept", "editedArtifactData": {"content": [SECRET]}}).encode())
    run.task()
    run.succeed(run.ordinal("a"), json.dumps({"content": [SECRET]}).encode())
    run.task()
    pending, *begun = snapshots(run)
    assert "inputs" not in pending
    assert all(one["inputs"] == {"token": MASKED, "n": 1} for one in begun)
    assert begun[-1]["status"] == "completed"


def test_a_failed_run_says_why_without_what_a_server_said() -> None:
    run = model()
    told = json.dumps({"code": 1, "message": SECRET}).encode()
    run.fail(run.ordinal("a"), call_failure(retryable=False, message=SECRET, code="mcp_error", rpc_error=told))
    run.task()
    error = snapshots(run)[-1]["error"]
    assert (error["code"], error["message"]) == ("mcp_error", MASKED)
    assert (error["details"]["delivery"], error["details"]["error"]) == ("not_sent", MASKED)
