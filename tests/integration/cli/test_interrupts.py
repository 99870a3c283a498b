"""`worker.py interrupts`: what runs and workflows wait with, shown, asked at a terminal, and answered."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import uuid
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from temporalio.client import Client
from temporalio.worker import Worker

from commands.identity import this_user
from tests.integration.cli.conftest import HOSTILE, PAYING
from tests.support.author_flows import Author, Call, Calls
from tests.support.cli import cli, on_terminal
from tests.support.doubts import asked_of_author
from tests.support.graphs import node, workflow
from tests.support.patience import PATIENCE

URL = "https://openwop.example.org"


def call(name: str, tool: str) -> dict[str, Any]:
    return node(name, config={"serverId": "fake", "name": tool})


async def asking(dev, tmp_path, *nodes: Mapping[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """A run that waits with one question for each node; its id, and the questions by node."""
    (tmp_path / "asks.json").write_text(json.dumps(workflow(list(nodes))), encoding="utf-8")
    started = await dev.cli("runs", "start", str(tmp_path / "asks.json"))
    assert started.status == 0, started.err
    run = started.text.strip()
    async with asyncio.timeout(PATIENCE):
        while len(found := (await dev.cli("interrupts", "list", run, "--json")).json) < len(nodes):
            pass
    return run, sorted(found, key=lambda one: one["nodeId"])


async def ended(dev, run: str) -> dict[str, Any]:
    async with asyncio.timeout(PATIENCE):
        while (log := (await dev.cli("runs", "events", run, "--json")).json)[-1]["type"] not in {
            "run.completed",
            "run.failed",
        }:
            pass
    return log[-1]["payload"]


async def test_a_question_is_listed_with_its_kind_and_age_and_shown_as_a_whole(dev, tmp_path):
    run, [asked] = await asking(dev, tmp_path, call("a", "doubtful"))
    listed = await dev.cli("interrupts", "list", run)
    lines = listed.text.splitlines()
    assert lines[0] == f"run {run}, interrupt {asked['interruptId']}, node a"
    assert re.fullmatch(r" {4}of workflow \S+, started by \S+", lines[1])
    assert re.fullmatch(r" {4}approval, asked \d+ (s|min) ago", lines[2])
    assert "      | in doubt: fake doubtful" in lines

    shown = await dev.cli("interrupts", "show", run)
    assert shown.status == 0, shown.err
    assert "  accept, edit-accept or reject" in shown.text.splitlines()
    assert '"resumeSchema"' not in shown.text
    assert "an answer holds to {" in shown.text
    for name in ("a", asked["interruptId"]):
        assert (await dev.cli("interrupts", "show", run, name, "--json")).json == asked
    assert asked["askedAt"].endswith("Z")


async def test_which_question_is_meant_has_to_be_said_where_there_are_several(dev, tmp_path):
    run, [one, two] = await asking(dev, tmp_path, call("a", "doubtful"), call("b", "doubtful"))
    several = await dev.cli("interrupts", "show", run, "--json")
    assert (several.status, several.json["error"]["code"]) == (1, "validation_error")
    assert "name one of a, b" in several.json["error"]["message"]
    unknown = await dev.cli("interrupts", "answer", run, "c", '{"action": "reject"}', "--json")
    assert (unknown.status, unknown.json["error"]["code"]) == (1, "not_found")

    first = await dev.cli("interrupts", "answer", run, "b", '{"action": "reject"}', "--json")
    assert first.json == {"runId": run, "interruptId": two["interruptId"]}
    last = await dev.cli("interrupts", "answer", run, '{"action": "reject"}', "--json")
    assert last.json == {"runId": run, "interruptId": one["interruptId"]}
    await ended(dev, run)
    over = await dev.cli("interrupts", "show", run)
    assert (over.status, over.err.strip()) == (1, f"'{run}' waits with no question")
    late = await dev.cli("interrupts", "answer", run, one["interruptId"], '{"action": "reject"}', "--json")
    assert (late.status, late.json["error"]["code"]) == (1, "interrupt_already_resolved")


async def test_nodes_that_share_an_effect_wait_with_one_question(dev, tmp_path):
    shared = {"idempotencyKey": {"type": "static", "value": uuid.uuid4().hex}}
    run, [one, two] = await asking(
        dev, tmp_path, {**call("a", "doubtful"), "inputs": shared}, {**call("b", "doubtful"), "inputs": shared}
    )
    assert one["interruptId"] == two["interruptId"]
    assert (await dev.cli("interrupts", "show", run, "a", "--json")).json["nodeId"] == "a"
    answered = await dev.cli("interrupts", "answer", run, '{"action": "reject"}', "--json")
    assert answered.json == {"runId": run, "interruptId": one["interruptId"]}
    assert (await dev.cli("interrupts", "list", run, "--json")).json == []


async def test_an_answer_after_that_of_another_run_is_taken_and_the_run_says_that_it_was_not_used(dev, tmp_path):
    shared = {"idempotencyKey": {"type": "static", "value": uuid.uuid4().hex}}
    first, later = [(await asking(dev, tmp_path, {**call("a", "doubtful"), "inputs": shared}))[0] for _ in range(2)]
    for run, action in ((first, "reject"), (later, "accept")):
        answered = await dev.cli("interrupts", "answer", run, json.dumps({"action": action}))
        assert (answered.status, answered.err.strip()) == (0, f"answered; see 'worker.py runs show {run}'")
        await ended(dev, run)
    told = [(await dev.cli("runs", "show", run)).text for run in (first, later)]
    assert ["another answer came first, and the one given here was not used" in one for one in told] == [False, True]


async def test_nobody_is_asked_where_there_is_no_terminal_or_a_script_reads(dev, tmp_path):
    run, _ = await asking(dev, tmp_path, call("a", "doubtful"))
    piped = await dev.cli("interrupts", "answer", run)
    assert piped.status == 2
    assert piped.out == b""
    assert f"'worker.py interrupts show {run}'" in piped.err
    status, seen = await on_terminal("interrupts", "answer", run, "--json", "--config", str(dev.settings))
    assert status == 2
    assert json.loads(seen)["error"]["code"] == "validation_error"
    for given in ("{", '"@"'):
        wrong = await dev.cli("interrupts", "answer", run, "a", given, "--json")
        assert (wrong.status, wrong.json["error"]["code"]) in {(2, "validation_error"), (1, "validation_error")}


async def test_a_person_at_a_terminal_is_asked_and_nothing_goes_without_their_yes(dev, tmp_path):
    run, [asked] = await asking(dev, tmp_path, call("a", "doubtful"))
    config = ("--config", str(dev.settings))
    (tmp_path / "result.json").write_text('{"content": [],\n "n": 1.10}', encoding="utf-8")
    question = "accept, edit-accept or reject? "
    for said, status in (
        ([(question, "r\n"), ("send it", "no\n")], 1),
        ([(question, signal.SIGINT)], 130),
        ([(question, "\x04")], 130),
    ):
        ended_with, seen = await on_terminal("interrupts", "answer", run, *config, said=said)
        assert (ended_with, b"Traceback" in seen) == (status, False), seen
        assert seen.endswith(b"\r\nnothing was sent, and the run waits as before\r\n"), seen
    assert (await dev.cli("interrupts", "list", run, "--json")).json == [asked]

    said = [
        (question, "ask\n"),
        (question, "edit\n"),
        ("editedArtifactData: ", "hunter2\n"),
        ("write JSON", "@nowhere.json\n"),
        ("cannot be read", "@result.json\n"),
        ("send it", "yes\n"),
    ]
    status, seen = await on_terminal("interrupts", "answer", run, *config, said=said, cwd=tmp_path)
    assert status == 0, seen
    # What was typed is shown by the terminal alone.
    assert seen.count(b"hunter2") == 1
    assert b"This would be sent:\r\n" in seen
    assert (await ended(dev, run))["outputs"] == {"a": {"result": {"content": [], "n": 1.1}}}


async def test_a_line_that_a_terminal_cuts_is_not_taken(dev, tmp_path):
    run, _ = await asking(dev, tmp_path, call("a", "doubtful"))
    said = [("or reject? ", "edit\n"), ("Data: ", "[" + "1" * 5000 + "]\n"), ("from a file", signal.SIGINT)]
    status, seen = await on_terminal("interrupts", "answer", run, "--config", str(dev.settings), said=said)
    assert status == 130, seen


async def test_a_server_asks_and_gets_what_was_typed(dev, tmp_path):
    run, [asked] = await asking(dev, tmp_path, call("a", "asks"))
    assert asked["interrupt"]["kind"] == "clarification"
    config = ("--config", str(dev.settings))
    for look in ("list", "show"):
        seen = (await on_terminal("interrupts", look, run, *config))[1].decode()
        assert PAYING in seen
        assert "punycode" in seen
        assert all(character.isprintable() or character in "\r\n" for character in seen)
    said = [
        ("accept, decline or cancel? ", "accept\n"),
        ("day: ", "31.12.2026\n"),
        ("write a date", "2026-12-31\n"),
        ("people [2]: ", "9\n"),
        ("1 to 8", "4\n"),
        ("extras: ", "2,1\n"),
        ("accept, decline or cancel? ", "d\n"),
        ("send it", "yes\n"),
    ]
    status, shown = await on_terminal("interrupts", "answer", run, *config, said=said)
    assert status == 0, shown
    assert all(character.isprintable() or character in "\r\n" for character in shown.decode())
    outputs = (await ended(dev, run))["outputs"]
    [text] = outputs["a"]["result"]["content"]
    assert json.loads(text["text"]) == {
        "who": {"action": "accept", "content": {"day": "2026-12-31", "people": 4, "extras": [HOSTILE, "c"]}},
        "pay": {"action": "decline"},
    }


async def test_an_answer_that_does_not_fit_is_refused_without_a_word_of_it(dev, tmp_path):
    run, _ = await asking(dev, tmp_path, call("a", "asks"))
    given = {"who": {"action": "accept", "content": {"day": "hunter2", "people": 99}}, "pay": {"action": "accept"}}
    refused = await dev.cli("interrupts", "answer", run, json.dumps(given))
    assert refused.status == 1
    assert "who.content.people" in refused.err
    assert "hunter2" not in refused.err


async def test_a_text_of_another_format_is_refused_like_any_other_that_does_not_fit(dev, tmp_path):
    run, _ = await asking(dev, tmp_path, call("a", "asks"))
    given = {"who": {"action": "accept", "content": {"day": "soon"}}, "pay": {"action": "accept"}}
    refused = await dev.cli("interrupts", "answer", run, json.dumps(given))
    assert refused.status == 1
    assert "node a (clarification): who.content.day: write a date" in refused.err
    assert len((await dev.cli("interrupts", "list", run, "--json")).json) == 1


async def test_a_run_that_waits_says_so_until_it_is_cancelled(dev, tmp_path):
    run, _ = await asking(dev, tmp_path, call("a", "doubtful"))
    hint = f"waits for a person: see 'worker.py interrupts list {run}'"
    assert hint in (await dev.cli("runs", "show", run)).text.splitlines()
    cancelled = await dev.cli("runs", "cancel", run, "--reason", "not wanted")
    assert (cancelled.status, cancelled.out) == (0, b"")
    async with asyncio.timeout(PATIENCE):
        while not (shown := (await dev.cli("runs", "show", run)).text).startswith(f"{run}: cancelled"):
            pass
    assert hint not in shown
    none = await dev.cli("interrupts", "list", run)
    assert (none.status, none.out, none.err) == (0, b"", f"'{run}' waits with no question\n")
    over = await dev.cli("runs", "cancel", run, "--json")
    assert (over.status, over.json["error"]["code"]) == (1, "not_found")


async def test_the_log_says_what_was_asked_and_answered_by_whom_and_what_failed(dev, tmp_path):
    run, _ = await asking(dev, tmp_path, node("gate", "core.approvalGate", config={"title": "T"}))
    assert (await dev.cli("interrupts", "answer", run, '{"action": "reject"}')).status == 0
    assert (await ended(dev, run))["error"]["code"] == "approval_rejected"
    told = [" ".join(line.split()) for line in (await dev.cli("runs", "events", run)).text.splitlines()]
    assert any(line.endswith("interrupt.requested gate approval") for line in told)
    assert any(line.endswith(f"interrupt.resolved gate approval reject by {this_user()}") for line in told)
    assert any(line.endswith("node.failed gate approval_rejected") for line in told)


async def test_an_approval_gate_is_answered_at_a_terminal(dev, tmp_path):
    gate = node("gate", "core.approvalGate", config={"title": HOSTILE, "timeoutMs": 3_600_000})
    run, _ = await asking(dev, tmp_path, gate)
    # An hour, less what it took until now.
    assert re.search(r"expires in 5\d min", (await dev.cli("interrupts", "list", run)).text)
    said = [("accept or reject? ", "a\n"), ("send it", "yes\n")]
    status, seen = await on_terminal("interrupts", "answer", run, "gate", "--config", str(dev.settings), said=said)
    assert status == 0, seen
    assert (await ended(dev, run))["outputs"]["gate"]["action"] == "accept"


async def test_a_link_opens_the_question_and_is_refused_where_it_would_not(dev, tmp_path):
    run, [asked] = await asking(dev, tmp_path, call("a", "doubtful"))
    none = await dev.cli("interrupts", "show", run, "--link", "--json")
    assert (none.status, none.json["error"]["code"]) == (1, "validation_error")
    assert "host.url" in none.json["error"]["message"]

    shown = await dev.cli("interrupts", "show", run, "--link", "--json", OPENWOP_MCP__HOST__URL=URL)
    link = shown.json["link"]
    assert shown.json == {**asked, "link": link}
    prose = await dev.cli("interrupts", "show", run, "--link", OPENWOP_MCP__HOST__URL=URL)
    assert prose.text.splitlines()[-1].startswith(f"{URL}/interrupts/ow2.hs256.")
    async with httpx.AsyncClient(base_url=dev.serving.facts["host"]) as client:
        opened = await client.get(link.removeprefix(URL))
    assert opened.json() == asked["interrupt"]

    gate = node("gate", "core.approvalGate", config={"title": "T", "approversList": ["alice"]})
    run, _ = await asking(dev, tmp_path, gate)
    named = await dev.cli("interrupts", "show", run, "--link", "--json", OPENWOP_MCP__HOST__URL=URL)
    assert (named.status, named.json["error"]["code"]) == (1, "forbidden")
    refused = await dev.cli("interrupts", "answer", run, '{"action": "accept"}', "--json")
    assert (refused.status, refused.json["error"]["code"]) == (1, "forbidden")


@pytest.fixture
async def author(dev):
    """A workflow of an author that waits with a question."""
    client = await Client.connect(dev.serving.facts["temporal"])
    async with Worker(client, task_queue="authors", workflows=[Author]):
        handle = await client.start_workflow(
            Author.run,
            Calls([Call("call_tool", ["fake", "doubtful"])], "openwop-mcp"),
            id=f"author-{uuid.uuid4().hex}",
            task_queue="authors",
        )
        await asked_of_author(handle)
        yield handle


async def test_a_question_of_an_authors_workflow_is_asked_and_answered_as_well(dev, author):
    listed = (await dev.cli("interrupts", "list", author.id)).text
    assert listed.startswith(f"run {author.id}, interrupt acme/")
    config = ("--config", str(dev.settings))
    said = [("or reject? ", "reject\n"), ("send it", "yes\n")]
    status, seen = await on_terminal("interrupts", "answer", author.id, *config, said=said)
    assert status == 0, seen
    [told] = await author.result()
    assert told.in_doubt
    none = await cli("interrupts", "show", author.id, "--link", "--json", *config)
    assert (none.status, none.json["error"]["code"]) == (1, "not_found")
