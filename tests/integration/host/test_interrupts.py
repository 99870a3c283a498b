"""Questions of runs over HTTP: answered with a key or by a link, by two hosts at once, and by nobody else."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from temporalio.client import Client

from host import updates
from host.ids import project
from host.links import Links
from host.secret import shared_secret
from host.tokens import Claims, TokenKeys
from openwop_mcp.config import Host as HostSettings
from openwop_mcp.embedded import EmbeddedTemporal
from tests.support.doubts import BUSY, scene
from tests.support.graphs import node, workflow
from tests.support.hosts import bearer
from tests.support.pack import pack_worker, settings_for
from tests.support.patience import PATIENCE
from tests.support.run_hosts import Hosts, code, key, two_hosts

SHOWN = {"title": "Shall it go on?"}
FLOWS = {
    "gate": workflow([node("gate", "core.approvalGate", config=SHOWN)]),
    "named": workflow([node("gate", "core.approvalGate", config={**SHOWN, "approversList": ["alice"]})]),
    "elevated": workflow(
        [node("gate", "core.approvalGate", config={**SHOWN, "profile": "openwop-interrupt-auth-required"})]
    ),
    "ask": workflow(
        [
            node(
                "ask",
                "core.clarificationGate",
                config={"questions": [{"id": "n", "question": "How many?", "schema": {"type": "integer"}}]},
            )
        ]
    ),
    "event": workflow(
        [
            node(
                "wait~for:it",
                "core.interrupt",
                config={"kind": "external-event", "data": {"eventType": "paid", "correlation": {"order": 1}}},
            )
        ]
    ),
    "other": workflow([node("wait", "core.delay", config={"delayMs": 60_000})]),
    "many": workflow([node(f"gate{number}", "core.approvalGate", config=SHOWN) for number in range(200)]),
    "doubt": workflow([node("call", config={"serverId": "fake", "name": "asked"})]),
}
ACCEPT = {"action": "accept"}
ABSENT = "/runs/acme~2F0123456789abcdef"


@pytest.fixture
async def hosts(client: Client, temporal: EmbeddedTemporal, tmp_path: Path) -> AsyncIterator[Hosts]:
    other = await Client.connect(temporal.address)
    async with (
        pack_worker(client, settings_for("http://127.0.0.1:9/mcp")) as pack,
        two_hosts(client, other, tmp_path, pack.task_queue, flows=FLOWS) as both,
    ):
        yield both


async def events(hosts: Hosts, run_id: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = (await hosts.second.get(f"/runs/{project(run_id)}/events/poll?timeout=1")).json()[
        "events"
    ]
    return told


async def waits(hosts: Hosts, run_id: str) -> dict[str, dict[str, Any]]:
    """Wait until a run has asked; its events by their types."""
    async with asyncio.timeout(PATIENCE):
        while "node.suspended" not in (told := {one["type"]: one for one in await events(hosts, run_id)}):
            await hosts.second.get(f"/runs/{project(run_id)}/events/poll?timeout=1&afterSequence={len(told) - 1}")
        return told


async def asking(hosts: Hosts, flow: str) -> tuple[str, str]:
    """A run that waits, and the id of what it waits with."""
    run_id = await hosts.create(flow)
    told = await waits(hosts, run_id)
    return run_id, told["node.suspended"]["payload"]["interruptId"]


async def answer(
    hosts: Hosts, run_id: str, node_id: str, value: Any, headers: dict[str, str] | None = None
) -> httpx.Response:
    path = f"/runs/{project(run_id)}/interrupts/{node_id}"
    return await hosts.first.post(path, json={"resumeValue": value}, headers=headers or {})


async def token_of(client: Client, run_id: str, node_id: str, interrupt_id: str, **claims: Any) -> str:
    keys = TokenKeys.shared(await shared_secret(client))
    ends = claims.pop("expires_at", int(time.time()) + 60)
    return keys.sign(Claims(run_id, node_id, interrupt_id, ends, **claims))


# --- with a key


async def test_an_approval_is_answered_with_a_key_and_the_log_says_whose(hosts: Hosts) -> None:
    run_id, interrupt_id = await asking(hosts, "gate")
    assert (await hosts.second.get(f"/runs/{project(run_id)}")).json()["status"] == "waiting-approval"
    listed: list[dict[str, Any]] = []
    async with asyncio.timeout(PATIENCE):
        # Temporal lists it a moment after it was created.
        while [one["runId"] for one in listed] != [run_id]:
            listed = (await hosts.second.get("/runs?limit=1")).json()["runs"]
    assert [one["status"] for one in listed] == ["waiting-approval"]
    value = {"action": "accept", "decidedAt": "2026-11-30T00:00:00Z", "decidedBy": "somebody else"}
    taken = await answer(hosts, run_id, "gate", value)
    assert (taken.status_code, taken.json()) == (200, {"runId": run_id, "nodeId": "gate", "status": "completed"})
    told = {one["type"]: one["payload"] for one in await events(hosts, run_id)}
    resolved = told["interrupt.resolved"]
    assert resolved["interruptId"] == interrupt_id
    assert resolved["resolvedBy"]["subjectId"] == "dev"
    assert resolved["resumeValue"] == {**value, "decidedBy": "dev"}
    assert (resolved["decision"], resolved["action"]) == ("granted", "accept")
    assert told["node.completed"]["outputs"]["action"] == "accept"


async def test_other_questions_are_answered_in_their_own_words(hosts: Hosts) -> None:
    run_id, _ = await asking(hosts, "ask")
    assert (await hosts.second.get(f"/runs/{project(run_id)}")).json()["status"] == "waiting-input"
    refused = await answer(hosts, run_id, "ask", {"answers": {"n": "three"}})
    assert code(refused) == (400, "validation_error")
    assert refused.json()["details"] == {"field": "resumeValue"}
    assert "answers.n" in refused.json()["message"]
    assert "three" not in refused.text
    assert (await answer(hosts, run_id, "ask", {"answers": {"n": 3}})).json()["status"] == "completed"
    run_id, _ = await asking(hosts, "event")
    assert (await hosts.second.get(f"/runs/{project(run_id)}")).json()["status"] == "waiting-external"
    assert code(await answer(hosts, run_id, "wait~for:it", {"order": 2})) == (400, "validation_error")
    assert (await answer(hosts, run_id, "wait%7Efor%3Ait", {"order": 1, "decidedBy": "x"})).status_code == 200
    completed = [one for one in await events(hosts, run_id) if one["type"] == "node.completed"]
    assert completed[0]["payload"]["outputs"]["resumeValue"] == {"order": 1, "decidedBy": "x"}


async def test_an_effect_in_doubt_is_decided_over_http(client: Client, tmp_path: Path) -> None:
    async with (
        scene(client, {"*": {"safety_tier": "write"}, "asked*": {"on_doubt": "ask"}}) as at,
        two_hosts(client, client, tmp_path, at.pack.task_queue, flows=FLOWS) as both,
    ):
        at.acting.replies.append(BUSY)
        run_id, _ = await asking(both, "doubt")
        assert code(await answer(both, run_id, "call", {"action": "refine"})) == (400, "validation_error")
        assert (await answer(both, run_id, "call", ACCEPT)).status_code == 200
        assert (await both.ended(run_id))["type"] == "run.completed"
        assert len(at.acting.asked) == 2


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"[]", b'{"resumeValue":{},"decidedBy":"x"}', b'{"resumeValue":{"action":"accept"},"resumeValue":1}'],
)
async def test_a_body_that_is_no_answer_is_refused_and_the_question_stays(hosts: Hosts, body: bytes) -> None:
    run_id, _ = await asking(hosts, "gate")
    path = f"/runs/{project(run_id)}/interrupts/gate"
    refused = await hosts.first.post(path, content=body, headers={"Content-Type": "application/json"})
    assert code(refused) == (400, "validation_error")
    for value in ({"action": "refine"}, {"action": "timeout"}, {}, "accept", None):
        assert code(await answer(hosts, run_id, "gate", value)) == (400, "validation_error")
    assert (await answer(hosts, run_id, "gate", ACCEPT)).status_code == 200


@pytest.mark.parametrize("name", ["x" * 1_900_000, "\\ud800"])
async def test_an_answer_with_a_name_that_temporal_could_not_tell_is_refused_and_the_right_one_taken(
    hosts: Hosts, name: str
) -> None:
    run_id, _ = await asking(hosts, "ask")
    body = b'{"resumeValue":{"answers":{"n":3,"%b":1}}}' % name.encode()
    path = f"/runs/{project(run_id)}/interrupts/ask"
    refused = await hosts.first.post(path, content=body, headers={"Content-Type": "application/json"})
    assert code(refused) == (400, "validation_error")
    assert (await answer(hosts, run_id, "ask", {"answers": {"n": 3}})).status_code == 200


async def test_an_answer_that_is_more_than_is_carried_is_refused_and_the_right_one_taken(hosts: Hosts) -> None:
    run_id, _ = await asking(hosts, "ask")
    refused = await answer(hosts, run_id, "ask", {"answers": {"n": 3, "m": "x" * 2_000_000}})
    assert code(refused) == (413, "payload_too_large")
    assert (await answer(hosts, run_id, "ask", {"answers": {"n": 3}})).status_code == 200


async def test_what_is_not_there_cannot_be_answered(hosts: Hosts) -> None:
    assert code(await hosts.first.post(f"{ABSENT}/interrupts/gate", json={"resumeValue": ACCEPT})) == (404, "not_found")
    run_id = await hosts.create("other")
    for node_id in ("wait", "gate", "%2E%2E", "%FF", "x" * 300):
        assert code(await answer(hosts, run_id, node_id, ACCEPT)) == (404, "not_found")
    run_id, _ = await asking(hosts, "gate")
    others = await answer(hosts, run_id, "gate", ACCEPT, bearer("umbrella-all"))
    assert code(others) == (403, "id_tenant_mismatch")


async def test_what_was_answered_ended_or_cancelled_cannot_be_answered(hosts: Hosts) -> None:
    answered, _ = await asking(hosts, "gate")
    assert (await answer(hosts, answered, "gate", {"action": "reject"})).json()["status"] == "failed"
    cancelled, _ = await asking(hosts, "gate")
    unasked = await hosts.create("other")
    for run_id in (cancelled, unasked):
        assert (await hosts.first.post(f"/runs/{project(run_id)}/cancel")).status_code == 200
        assert (await hosts.ended(run_id))["type"] == "run.cancelled"
    for run_id, node_id in ((answered, "gate"), (cancelled, "gate"), (unasked, "wait")):
        assert code(await answer(hosts, run_id, node_id, ACCEPT)) == (409, "interrupt_already_resolved")
    assert code(await answer(hosts, unasked, "nothing", ACCEPT)) == (404, "not_found")


async def test_only_who_may_answer_answers(hosts: Hosts) -> None:
    run_id, _ = await asking(hosts, "named")
    assert code(await answer(hosts, run_id, "gate", ACCEPT, bearer("acme-reads"))) == (403, "forbidden")
    claimed = {**ACCEPT, "decidedBy": "alice"}
    assert code(await answer(hosts, run_id, "gate", claimed)) == (403, "forbidden")
    assert (await answer(hosts, run_id, "gate", ACCEPT, bearer("acme-alice"))).status_code == 200


async def test_of_answers_at_once_one_is_taken(hosts: Hosts) -> None:
    run_id, _ = await asking(hosts, "gate")
    path, asked = f"/runs/{project(run_id)}/interrupts/gate", {"resumeValue": ACCEPT}
    answers = await asyncio.gather(
        *(one.post(path, json=asked) for one in [hosts.first, hosts.second] for _ in range(4))
    )
    assert sorted(one.status_code for one in answers) == [200, *[409] * 7]


async def test_answers_to_many_questions_of_a_run_at_once_are_all_taken(hosts: Hosts) -> None:
    run_id, _ = await asking(hosts, "many")
    given = await asyncio.gather(*(answer(hosts, run_id, f"gate{number}", ACCEPT) for number in range(200)))
    assert {one.status_code for one in given} == {200}
    assert (await hosts.ended(run_id))["type"] == "run.completed"


async def test_an_answer_that_is_sent_again_with_its_key_is_taken_once(hosts: Hosts) -> None:
    run_id, _ = await asking(hosts, "gate")
    header = key()
    first = await answer(hosts, run_id, "gate", ACCEPT, header)
    again = await answer(hosts, run_id, "gate", ACCEPT, header)
    assert (first.status_code, again.status_code, again.content) == (200, 200, first.content)
    assert again.headers["openwop-idempotent-replay"] == "true"
    other = await answer(hosts, run_id, "gate", {"action": "reject"}, header)
    assert code(other) == (409, "idempotency_key_mismatch")


async def test_without_a_worker_an_answer_is_not_taken_in_time_and_with_its_key_it_is_told_once_it_was(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, named = f"pack-{uuid.uuid4().hex}", key()
    settings = settings_for("http://127.0.0.1:9/mcp")
    async with two_hosts(client, client, tmp_path, queue, flows=FLOWS) as both:
        async with pack_worker(client, settings, task_queue=queue):
            run_id, _ = await asking(both, "gate")
        with monkeypatch.context() as patch:
            patch.setattr(updates, "PATIENCE", 0.3)
            refused = await answer(both, run_id, "gate", ACCEPT, named)
        assert code(refused) == (503, "service_unavailable")
        assert int(refused.headers["retry-after"]) > 0
        async with pack_worker(client, settings, task_queue=queue):
            # What nobody took in time is there when somebody comes.
            assert (await both.ended(run_id))["type"] == "run.completed"
            assert (await answer(both, run_id, "gate", ACCEPT)).status_code == 409
            taken = await answer(both, run_id, "gate", ACCEPT, named)
            assert (taken.status_code, taken.json()["status"]) == (200, "completed")
            assert code(await answer(both, run_id, "gate", {"action": "reject"}, named)) == (
                409,
                "idempotency_key_mismatch",
            )


# --- by a link


async def test_a_link_shows_its_question_and_answers_it_once(
    hosts: Hosts, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    run_id, interrupt_id = await asking(hosts, "gate")
    token = await token_of(client, run_id, "gate", interrupt_id)
    nobody = {"Authorization": ""}
    with caplog.at_level(logging.DEBUG, "openwop_mcp"):
        shown = await hosts.first.get(f"/interrupts/{token}", headers=nobody)
        asked = [one["payload"] for one in await events(hosts, run_id) if one["type"] == "interrupt.requested"]
        assert (shown.status_code, shown.json()) == (200, asked[0])
        assert shown.headers["cache-control"] == "no-store"
        bad = await hosts.first.post(f"/interrupts/{token}", json={"resumeValue": {"action": "x"}}, headers=nobody)
        assert code(bad) == (400, "validation_error")
        header = {**nobody, **key()}
        path, body = f"/interrupts/{token}", {"resumeValue": {**ACCEPT, "decidedBy": "dev"}}
        taken = await hosts.second.post(path, json=body, headers=header)
        assert (taken.status_code, taken.json()) == (200, {"runId": run_id, "nodeId": "gate", "status": "completed"})
        assert (await hosts.first.post(path, json=body, headers=header)).content == taken.content
        assert code(await hosts.first.post(path, json=body, headers=nobody)) == (409, "interrupt_already_resolved")
        assert code(await hosts.first.get(path, headers=nobody)) == (409, "interrupt_already_resolved")
    told = {one["type"]: one["payload"] for one in await events(hosts, run_id)}
    by = told["interrupt.resolved"]["resolvedBy"]
    assert by["issuer"] == "urn:openwop-mcp:interrupt-token"
    assert (by["tenant"], by["lane"], by["kind"]) == ("acme", "workload", "workload")
    assert told["interrupt.resolved"]["resumeValue"]["decidedBy"] == by["subjectId"]
    assert "POST /interrupts/{token} 200" in caplog.text
    assert token not in caplog.text
    assert token not in json.dumps(told)


async def test_a_link_for_reading_answers_nothing(hosts: Hosts, client: Client) -> None:
    run_id, interrupt_id = await asking(hosts, "gate")
    token = await token_of(client, run_id, "gate", interrupt_id, intent="inspect")
    assert (await hosts.first.get(f"/interrupts/{token}")).status_code == 200
    refused = await hosts.first.post(f"/interrupts/{token}", json={"resumeValue": ACCEPT})
    assert code(refused) == (403, "forbidden")
    assert (await hosts.first.get(f"/runs/{project(run_id)}")).json()["status"] == "waiting-approval"


async def test_what_is_no_link_of_this_host_or_an_old_one_answers_nothing(hosts: Hosts, client: Client) -> None:
    run_id, interrupt_id = await asking(hosts, "gate")
    token = await token_of(client, run_id, "gate", interrupt_id)
    foreign = TokenKeys({"host": b"k" * 32}).sign(Claims(run_id, "gate", interrupt_id, int(time.time()) + 60))
    for bad in ("x", "ow2", token[:-2], foreign, token.replace("ow2.hs256", "ow2.none"), "%00", "%FF", token + "%00"):
        for ask in (hosts.first.get, lambda path: hosts.first.post(path, json={"resumeValue": ACCEPT})):
            refused = await ask(f"/interrupts/{bad}")
            assert code(refused) == (401, "interrupt_token_invalid")
            assert refused.headers["www-authenticate"].startswith("Bearer")
    old = await token_of(client, run_id, "gate", interrupt_id, expires_at=int(time.time()))
    assert code(await hosts.first.get(f"/interrupts/{old}")) == (410, "interrupt_expired")
    refused = await hosts.first.post(f"/interrupts/{old}", json={"resumeValue": ACCEPT})
    assert code(refused) == (410, "interrupt_expired")


async def test_a_link_to_what_was_cancelled_or_is_gone_answers_nothing(hosts: Hosts, client: Client) -> None:
    run_id, interrupt_id = await asking(hosts, "gate")
    token = await token_of(client, run_id, "gate", interrupt_id)
    await hosts.first.post(f"/runs/{project(run_id)}/cancel")
    await hosts.ended(run_id)
    refused = [
        await hosts.first.get(f"/interrupts/{token}"),
        await hosts.first.post(f"/interrupts/{token}", json={"resumeValue": ACCEPT}),
    ]
    assert [code(one) for one in refused] == [(409, "interrupt_already_resolved")] * 2
    gone = await token_of(client, "acme/0123456789abcdef", "gate", interrupt_id)
    assert code(await hosts.first.get(f"/interrupts/{gone}")) == (404, "not_found")


@pytest.mark.parametrize("flow", ["named", "elevated"])
async def test_who_answers_has_to_be_known_where_the_gate_says_so(hosts: Hosts, client: Client, flow: str) -> None:
    run_id, interrupt_id = await asking(hosts, flow)
    token = await token_of(client, run_id, "gate", interrupt_id)
    assert code(await hosts.first.get(f"/interrupts/{token}")) == (403, "forbidden")
    refused = await hosts.first.post(f"/interrupts/{token}", json={"resumeValue": ACCEPT})
    assert code(refused) == (403, "forbidden")
    assert (await answer(hosts, run_id, "gate", ACCEPT, bearer("acme-alice"))).status_code == 200


async def test_links_are_signed_with_the_keys_of_the_settings_where_there_are_some(
    client: Client, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 40, encoding="utf-8")
    flows = tmp_path / "flows"
    flows.mkdir()
    own = {
        "url": "https://host.example",
        "token_keys": [{"id": "2026-11", "secret": {"file": str(secret)}}],
        "token_lifetime": 60,
    }
    async with (
        pack_worker(client, settings_for("http://127.0.0.1:9/mcp")) as pack,
        two_hosts(client, client, flows, pack.task_queue, flows=FLOWS, settings=own) as both,
    ):
        run_id, interrupt_id = await asking(both, "gate")
        shared = await token_of(client, run_id, "gate", interrupt_id)
        assert code(await both.first.get(f"/interrupts/{shared}")) == (401, "interrupt_token_invalid")
        links = Links(HostSettings.model_validate(own), {}, client)
        began = time.time()
        link = await links.make(run_id=run_id, node_id="gate", interrupt_id=interrupt_id)
        assert link is not None
        assert link.url.startswith("https://host.example/interrupts/ow2.hs256.2026-11.")
        assert began + 55 < link.expires_at <= time.time() + 60
        path = link.url.removeprefix("https://host.example")
        assert (await both.first.post(path, json={"resumeValue": ACCEPT})).status_code == 200
        soon = await links.make(run_id=run_id, node_id="gate", interrupt_id=interrupt_id, until=time.time() + 5)
        assert soon is not None
        assert soon.expires_at - time.time() <= 5
    assert await Links(HostSettings(), {}, client).make(run_id=run_id, node_id="gate", interrupt_id="acme/x") is None
