"""A log line has the facts of what it is about, in one line, and no secret however it came into it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from temporalio import activity
from temporalio.exceptions import ApplicationError

from openwop_mcp.logs import JsonLines, TextLines, about, set_up
from openwop_mcp.redaction import Redactor
from tests.support.quiet import logging_undone

SECRET = "sk-live/9d8f7a6b5c4e3d2f"
PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQ/+9d8f\n-----END PRIVATE KEY-----"
REDACTOR = Redactor([SECRET, PEM])

FORMS: dict[str, Callable[[logging.LogRecord], str]] = {
    "json": JsonLines(REDACTOR).format,
    "text": TextLines(REDACTOR).format,
}


@pytest.fixture
def quiet() -> Iterator[None]:
    """What is set up here is undone."""
    with logging_undone():
        yield


def _record(message: str, *args: object, **extra: Any) -> logging.LogRecord:
    raised = extra.pop("raised", None)
    info = None if raised is None else (type(raised), raised, raised.__traceback__)
    record = logging.LogRecord("openwop_mcp.x", logging.WARNING, __file__, 7, message, args, info)
    record.created = 1764525600.1234
    record.__dict__.update(extra)
    return record


def _raised(error: Exception) -> Exception:
    try:
        raise error
    except type(error) as caught:
        return caught


async def _of(work: Callable[[], Any]) -> Any:
    """In a task of its own, whose facts end with it."""
    return await asyncio.create_task(asyncio.to_thread(work))


async def test_json_has_the_members_that_are_known_and_no_others() -> None:
    def write() -> str:
        about(run="acme/1", node="n", server=None)
        about(attempt=2)
        return FORMS["json"](_record("said %s", "é\u202e\n"))

    line = await _of(write)
    assert "\n" not in line
    assert "\u202e" not in line
    assert "é" in line
    assert json.loads(line) == {
        "time": "2025-11-30T18:00:00.123Z",
        "level": "warning",
        "logger": "openwop_mcp.x",
        "message": "said é\u202e\n",
        "run": "acme/1",
        "node": "n",
        "attempt": 2,
    }
    assert set(json.loads(FORMS["json"](_record("later")))) == {"time", "level", "logger", "message"}


async def test_text_has_the_same_facts_at_the_end() -> None:
    def write() -> str:
        about(run="acme/1", node='a "b"=c', attempt=2)
        return FORMS["text"](_record("said %s", "a\nb\x1b[31m\u202e"))

    assert await _of(write) == (
        "2025-11-30T18:00:00.123Z WARNING openwop_mcp.x said a\\u{a}b\\u{1b}[31m\\u{202e}"
        ' run=acme/1 node="a \\"b\\"=c" attempt=2'
    )


async def test_what_a_task_works_on_is_not_what_another_does() -> None:
    async def one(number: int) -> str:
        about(attempt=number)
        await asyncio.sleep(0)
        return await asyncio.create_task(asyncio.to_thread(lambda: FORMS["json"](_record("x"))))

    lines = await asyncio.gather(*(asyncio.create_task(one(number)) for number in range(5)))
    assert [json.loads(line)["attempt"] for line in lines] == list(range(5))


def test_the_run_of_a_workflows_own_line_is_told() -> None:
    line = FORMS["json"](_record("x", temporal_workflow={"workflow_id": "acme/7", "attempt": 1}))
    assert json.loads(line)["run"] == "acme/7"
    line = FORMS["text"](_record("x", temporal_activity={"workflow_id": "acme/8", "attempt": 1}))
    assert line.endswith(" x run=acme/8")


def test_facts_of_a_line_of_its_own_are_told_and_those_of_an_answer_are_members_for_machines_alone() -> None:
    answered = {"method": "GET", "route": "/runs/{runId}", "status": 200, "ms": 12}
    line = json.loads(FORMS["json"](_record("x", facts={"node": "a", **answered})))
    assert {name: line[name] for name in ("node", *answered)} == {"node": "a", **answered}
    # In a text they stand in the message.
    assert FORMS["text"](_record("x", facts={"node": "a", **answered})).endswith(" x node=a")


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("workflow_type", ["RunWorkflow", "EffectWorkflow", "Author"])
@pytest.mark.parametrize("debug", [False, True])
def test_an_attempt_that_failed_is_told_by_its_run_and_else_by_its_own_line(
    monkeypatch: pytest.MonkeyPatch, workflow_type: str, debug: bool
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    # Settings are read after a beginning.
    set_up("text", "warning", {})
    set_up("json", "info", {"temporalio.activity": "debug"} if debug else {})
    own = {"temporal_activity": {"workflow_id": "acme/7", "workflow_type": workflow_type}}
    for error in (ApplicationError("no room"), ValueError("a fault")):
        activity.logger.logger.warning("Completing activity as failed", exc_info=error, extra=own)
    told = [json.loads(line)["exception"]["type"] for line in out.getvalue().splitlines()]
    # A fault has a trace, which stands nowhere else.
    assert told == [*(["ApplicationError"] if debug or workflow_type == "Author" else []), "ValueError"]


def test_a_fault_is_told_with_its_trace_and_never_passes_for_another_event() -> None:
    error = _raised(ValueError("no\n2025-11-30T18:00:00.123Z ERROR forged"))
    told = json.loads(FORMS["json"](_record("x", raised=error)))["exception"]
    assert (told["type"], told["message"]) == ("ValueError", "no\n2025-11-30T18:00:00.123Z ERROR forged")
    assert "in _raised" in told["trace"]
    first, *rest = FORMS["text"](_record("x", raised=error)).split("\n")
    assert first.endswith(" x")
    assert all(line.startswith("    ") for line in rest)
    assert any("in _raised" in line for line in rest)


@pytest.mark.parametrize("form", FORMS)
def test_a_call_that_failed_is_no_fault_of_this_program_and_has_no_trace(form: str) -> None:
    line = FORMS[form](_record("failed", raised=_raised(ApplicationError("no\nconnection", type="upstream"))))
    assert "\n" not in line
    assert "connection" in line
    assert "Traceback" not in line
    assert "in _raised" not in line


SPELLED = [
    SECRET,
    SECRET.replace("/", "\\/"),
    "".join(f"%{byte:02x}" for byte in SECRET.encode()),
    base64.b64encode(b"ab" + SECRET.encode() + b"xyz").decode(),
    PEM,
    json.dumps(PEM),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("spelled", SPELLED)
def test_no_secret_comes_through_wherever_it_stands(form: str, spelled: str) -> None:
    cause = KeyError(spelled)
    error = ValueError(f"with {spelled}")
    error.__cause__ = cause
    for record in (
        _record(spelled),
        _record("%s", spelled),
        _record("%(a)s", {"a": spelled}),
        _record("x", raised=_raised(error)),
        _record("x", raised=_raised(ApplicationError(spelled))),
        _record("x", temporal_workflow={"workflow_id": spelled}),
        _record("x", stack_info=f"in f({spelled!r})"),
    ):
        line = FORMS[form](record)
        assert "[credential]" in line
        assert "9d8f" not in line.lower()
        if form == "json":
            json.loads(line)


@given(st.text(), st.text())
def test_any_text_makes_one_line(message: str, raised: str) -> None:
    line = FORMS["json"](_record("%s", message, raised=ValueError(raised)))
    assert "\n" not in line
    assert json.loads(line)["message"] == message
    text = FORMS["text"](_record("%s", message))
    assert len(text.splitlines()) == 1


def test_a_line_costs_little() -> None:
    secrets = [f"Bearer {base64.b64encode(bytes([number % 256] * 32)).decode()}{number}" for number in range(300)]
    redactor = Redactor(secrets)
    text = "2025-11-30T18:00:00.123Z WARNING openwop_mcp.client server weather: something that is about as long as most"
    redactor.text(text)
    began = time.thread_time()
    for _ in range(1000):
        redactor.text(text)
    assert time.thread_time() - began < 0.05  # seconds for a thousand: some 3 µs each, whatever the number of secrets


@pytest.mark.usefixtures("quiet")
def test_this_program_is_heard_from_the_level_that_is_set_and_libraries_where_they_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    set_up("json", "info", {"openwop_mcp.client": "debug", "a.b": "debug", "host": "error"})
    said = {
        "openwop_mcp.client._http": logging.DEBUG,
        "openwop_mcp.server.box": logging.INFO,
        "activities.perform": logging.INFO,
        "openwop_mcp.messages": logging.DEBUG,
        "a.b.c": logging.DEBUG,
        "httpx": logging.WARNING,
    }
    unsaid = {"openwop_mcp.runs": logging.DEBUG, "httpx": logging.INFO, "a": logging.INFO, "host.x": logging.WARNING}
    for level in (said, unsaid):
        for name, number in level.items():
            logging.getLogger(name).log(number, "x")
    assert [json.loads(line)["logger"] for line in out.getvalue().splitlines()] == list(said)


@pytest.mark.usefixtures("quiet")
def test_a_line_that_cannot_be_made_says_where_and_not_of_what(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    # That of pytest would raise.
    logging.getLogger().handlers.clear()
    set_up("json", "info", {})
    logging.getLogger("openwop_mcp.x").error("%d", SECRET)
    told = json.loads(out.getvalue())
    assert told["message"].startswith("a line of the log cannot be written (TypeError, test_lines.py:")
    assert "9d8f" not in out.getvalue()
