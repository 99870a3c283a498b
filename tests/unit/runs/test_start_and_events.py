"""The start of a run and the envelope of its events."""

from __future__ import annotations

import json

import pytest

from openwop_mcp.runs.engines import ENGINE_VERSION, ENGINES
from openwop_mcp.runs.events import RunEvent, timestamp
from openwop_mcp.runs.start import Options, Owner, RunStart
from tests.support.graphs import RUN_ID, node, start, workflow


def test_a_start_survives_its_encoding_byte_for_byte() -> None:
    text = json.dumps(workflow([node("a")]), indent=1).encode()
    begun = RunStart(
        RUN_ID,
        text,
        Owner("acme", {"subjectId": "dev"}, "team"),
        transport="mcp",
        options=Options(heartbeat_timeout=2.5),
        tags=("a", "é"),
        metadata=b'{ "n": 1.10 }',
    )
    assert RunStart.decode(begun.encode()) == begun
    assert RunStart.decode(begun.carrying(b'{"s":1.0}').encode()).state == b'{"s":1.0}'


def test_a_start_says_who_is_told_that_the_run_waits_and_one_without_says_nothing_of_it() -> None:
    begun = start(workflow([node("a")]), callback_url="https://example.org/a?b=c")
    assert RunStart.decode(begun.encode()) == begun
    assert RunStart.decode(begun.carrying(b"{}").encode()).callback_url == begun.callback_url
    assert b"callbackUrl" not in start(workflow([node("a")])).encode()


def test_a_start_echoes_its_configurable_and_one_without_says_nothing_of_it() -> None:
    begun = start(workflow([node("a")]), configurable=b'{ "version": 1, "run": {"runTimeoutMs":1} }')
    assert RunStart.decode(begun.encode()) == begun
    assert RunStart.decode(begun.carrying(b"{}").encode()).configurable == begun.configurable
    assert b"configurable" not in start(workflow([node("a")])).encode()


def test_a_start_says_which_servers_are_in_a_class_and_one_without_says_nothing_of_it() -> None:
    begun = start(workflow([node("a")]), options=Options(classes={"weather": "slow"}))
    assert RunStart.decode(begun.encode()) == begun
    assert RunStart.decode(begun.carrying(b"{}").encode()).options.classes == {"weather": "slow"}
    assert b"classes" not in start(workflow([node("a")])).encode()


def test_a_start_from_a_newer_host_is_read_and_one_for_a_newer_engine_is_not() -> None:
    text = start(workflow([node("a")])).encode()
    assert RunStart.decode(text[:-1] + b',"later":1}').run_id == RUN_ID
    newer = ENGINE_VERSION + 1
    for told in (str(newer), "0", "[1]", '"1"'):
        with pytest.raises(ValueError, match=f"engine version .*{newer - 1}: use the version"):
            RunStart.decode(text.replace(b'"engineVersion":%d' % ENGINE_VERSION, b'"engineVersion":%s' % told.encode()))
    with pytest.raises(ValueError, match="owner"):
        RunStart.decode(text.replace(b'"owner":', b'"owned":'))


@pytest.mark.parametrize("version", sorted(ENGINES))
def test_a_run_keeps_the_engine_that_it_was_started_with(version: int) -> None:
    begun = start(workflow([node("a")]), engine_version=version)
    assert RunStart.decode(begun.encode()).engine_version == version
    assert RunStart.decode(begun.carrying(b"{}").encode()).engine_version == version


def test_an_owner_is_shown_as_the_host_resolved_it() -> None:
    assert json.loads(Owner("acme", {"subjectId": "dev"}).encode()) == {
        "tenant": "acme",
        "subject": {"subjectId": "dev"},
    }


def test_an_event_is_a_closed_envelope_around_exact_bytes() -> None:
    event = RunEvent("e-1", RUN_ID, "node.started", b'{"n": 1.10}', timestamp(0), 3, node_id="a")
    assert b'"payload":{"n": 1.10}' in event.encode()
    assert json.loads(event.encode()) == {
        "eventId": "e-1",
        "runId": RUN_ID,
        "type": "node.started",
        "payload": {"n": 1.1},
        "timestamp": "1970-01-01T00:00:00.000Z",
        "sequence": 3,
        "schemaVersion": 1,
        "engineVersion": ENGINE_VERSION,
        "nodeId": "a",
    }
    assert b"nodeId" not in RunEvent("e-1", RUN_ID, "run.started", b"{}", timestamp(0), 0).encode()


def test_timestamps_have_milliseconds_always() -> None:
    assert timestamp(1_790_000_000_120) == "2026-09-21T14:13:20.120Z"
