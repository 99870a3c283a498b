"""Notifications that a run waits: signed, told at least once, where they may go, until somebody has answered."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from openwop_client import read_webhook_headers, verify_webhook_signature
from temporalio.client import Client

from host.ids import project
from tests.support.doubts import BUSY, Acting
from tests.support.fake_server import FakeServer, Reply, Request
from tests.support.graphs import edge, node, workflow
from tests.support.live_log import LiveLog, told
from tests.support.pack import chain, log_of, pack_worker, settings_for
from tests.support.patience import PATIENCE
from tests.support.run_hosts import Hosts, code, two_hosts
from workflows.replay import replay

SECRET = "callback-secret-0123456789-0123456789"
HOST = "http://host.test"
ACCEPT = {"action": "accept"}
GATE = {"title": "Shall it go on?"}
FLOWS = {
    "gate": workflow([node("gate", "core.approvalGate", config={**GATE, "timeoutMs": 600_000})]),
    "named": workflow([node("gate", "core.approvalGate", config={**GATE, "approversList": ["dev"]})]),
    "two": workflow([node(name, "core.approvalGate", config=GATE) for name in ("a", "b")]),
    "long": workflow([node("gate", "core.approvalGate", config={**GATE, "description": "x" * 20_000})]),
    "masked": workflow(
        [
            node(
                "call",
                config={"serverId": "fake", "name": "asks"},
                inputs={"arguments": {"type": "variable", "variableName": "arguments"}},
            )
        ],
        variables=[{"name": "arguments", "type": "object", "sensitive": True}],
    ),
    "chain": workflow(
        [
            node("gate", "core.approvalGate", config=GATE),
            *(node(f"n{at}", config={"serverId": "fake", "name": "write"}) for at in range(14)),
        ],
        [edge(one, other) for one, other in itertools.pairwise(f"n{at}" for at in range(14))],
    ),
}


@dataclass
class Receiver:
    """Somebody who is told. It answers 204, or what it is to answer first; None breaks the connection off."""

    replies: list[Reply | None] = field(default_factory=list)
    told: list[Request] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    url: str = ""

    async def answer(self, request: Request) -> Reply | None:
        async with self.changed:
            self.told.append(request)
            self.changed.notify_all()
        return self.replies.pop(0) if self.replies else Reply(204)

    async def until(self, times: int) -> list[dict[str, Any]]:
        """Wait until it was told so often; the bodies."""
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: len(self.told) >= times), PATIENCE)
        return [request.json for request in self.told]


@dataclass
class Scene:
    hosts: Hosts
    receiver: Receiver
    acting: Acting
    client: Client
    host: dict[str, Any]

    async def create(self, flow: str, **members: Any) -> str:
        return await self.hosts.create(flow, callbackUrl=self.receiver.url, **members)

    async def answer(self, run_id: str, node_id: str = "gate") -> httpx.Response:
        path = f"/runs/{project(run_id)}/interrupts/{node_id}"
        return await self.hosts.first.post(path, json={"resumeValue": ACCEPT})

    async def sound(self, live: LiveLog, run_id: str) -> str:
        """The log is as it was told live, and a replay agrees; the histories as JSON."""
        found = await chain(self.client, run_id)
        assert live.of(found) == told(log_of(found))
        for verdict in await replay(found, []):
            assert verdict.sound, verdict.prose()
        return "".join(history.to_json() for history in found)


@contextlib.asynccontextmanager
async def scene(
    client: Client, tmp_path: Path, *replies: Reply | None, worker: Mapping[str, Any] | None = None
) -> AsyncIterator[Scene]:
    """A host, a worker and a receiver; ``worker`` are settings of the host that the worker has otherwise."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    flows = tmp_path / "flows"
    flows.mkdir()
    own = {"url": HOST, "callback_secret": {"file": str(secret)}, "callback_network": "private"}
    receiver, acting = Receiver(list(replies)), Acting()
    async with FakeServer(receiver.answer) as listening, FakeServer(acting.handler()) as mcp:
        receiver.url = f"http://127.0.0.1:{listening.port}/told?by=openwop"
        tools = {"*": {"safety_tier": "write"}, "asks": {"on_doubt": "ask"}}
        settings = settings_for(mcp.url, tools=tools, host={**own, **(worker or {})})
        async with (
            pack_worker(client, settings) as pack,
            two_hosts(client, client, flows, pack.task_queue, flows=FLOWS, settings=own) as both,
        ):
            yield Scene(both, receiver, acting, client, own)


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveLog:
    return LiveLog(monkeypatch)


async def first(client: Client, run_id: str, attribute: str) -> Any:
    """Wait for an event of a run's history by the name of its attributes; these."""
    async with asyncio.timeout(PATIENCE):
        async for event in client.get_workflow_handle(run_id).fetch_history_events(wait_new_event=True):
            if event.HasField(attribute):  # type: ignore[arg-type]  # the name of a field
                return getattr(event, attribute)
    raise AssertionError(attribute)


async def test_whoever_creates_a_run_is_told_that_it_waits_and_answers_by_the_link(
    client: Client, tmp_path: Path, live: LiveLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "openwop_mcp")
    async with scene(client, tmp_path) as at:
        run_id = await at.create("gate")
        [told_of] = await at.receiver.until(1)
        [request] = at.receiver.told
        assert (request.method, request.path) == ("POST", "/told?by=openwop")
        headers = read_webhook_headers(dict(request.headers))
        assert headers is not None
        assert verify_webhook_signature(
            SECRET, headers.signature, headers.timestamp, request.body, algorithm_header=headers.algorithm
        ).valid
        assert not verify_webhook_signature(SECRET, headers.signature, headers.timestamp, request.body + b" ").valid
        assert request.header("openwop-event-type") == "interrupt.requested"
        assert request.header("content-type") == "application/json"
        events = {one.type: json.loads(one.payload) for one in log_of(await chain(client, run_id))}
        asked, suspended = events["interrupt.requested"], events["node.suspended"]
        assert request.header("openwop-webhook-id") == suspended["interruptId"]
        link = told_of.pop("resolveUrl")
        expires_at = told_of.pop("expiresAt")
        assert told_of == {
            "runId": run_id,
            "nodeId": "gate",
            "interruptId": suspended["interruptId"],
            "kind": "approval",
            "key": asked["key"],
            "data": asked["data"],
        }
        assert expires_at > time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time() + 9 * 60))
        assert expires_at <= time.strftime("%Y-%m-%dT%H:%M:%S.999Z", time.gmtime(time.time() + 10 * 60))
        path = link.removeprefix(HOST)
        assert (await at.hosts.first.get(path, headers={"Authorization": ""})).json() == asked
        taken = await at.hosts.second.post(path, json={"resumeValue": ACCEPT}, headers={"Authorization": ""})
        assert taken.json() == {"runId": run_id, "nodeId": "gate", "status": "completed"}
        assert len(at.receiver.told) == 1
        history = await at.sound(live, run_id)
        token = path.rpartition("/")[2]
        for hidden in (token, SECRET):
            assert hidden not in history
            assert hidden not in caplog.text
        assert "by=openwop" not in caplog.text
        assert "by=openwop" not in (await at.hosts.first.get(f"/runs/{project(run_id)}/events/poll")).text


async def test_each_question_is_told_by_itself(client: Client, tmp_path: Path, live: LiveLog) -> None:
    async with scene(client, tmp_path) as at:
        run_id = await at.create("two")
        told_of = await at.receiver.until(2)
        assert sorted(one["nodeId"] for one in told_of) == ["a", "b"]
        assert len({one["interruptId"] for one in told_of}) == 2
        for node_id in ("a", "b"):
            assert (await at.answer(run_id, node_id)).status_code == 200
        assert (await at.hosts.ended(run_id))["type"] == "run.completed"
        await at.sound(live, run_id)


async def test_a_receiver_that_is_not_there_is_told_later(client: Client, tmp_path: Path, live: LiveLog) -> None:
    async with scene(client, tmp_path, Reply(503), None) as at:
        run_id = await at.create("gate")
        once, *others = await at.receiver.until(3)
        assert {one["interruptId"] for one in others} == {once["interruptId"]}
        assert len({request.header("openwop-webhook-id") for request in at.receiver.told}) == 1
        assert (await at.answer(run_id)).status_code == 200
        assert (await at.hosts.ended(run_id))["type"] == "run.completed"
        await at.sound(live, run_id)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(302, headers=[("Location", "/told-elsewhere")]),
        Reply(307, headers=[("Location", "/told-elsewhere")]),
        Reply(404),
    ],
    ids=lambda reply: str(reply.status),
)
async def test_a_receiver_that_wants_none_or_elsewhere_is_not_told_again(
    client: Client, tmp_path: Path, live: LiveLog, reply: Reply, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(client, tmp_path, reply) as at:
        run_id = await at.create("gate")
        failed = await first(client, run_id, "activity_task_failed_event_attributes")
        assert failed.failure.message == f"the notification was not delivered: its receiver answered {reply.status}"
        assert [request.path for request in at.receiver.told] == ["/told?by=openwop"]
        assert (await at.answer(run_id)).json()["status"] == "completed"
        logged = [record.getMessage() for record in caplog.records if record.name == "openwop_mcp.runs"]
        assert logged == [f"run {run_id}: not_delivered: {failed.failure.message}"]
        await at.sound(live, run_id)


async def test_of_a_run_that_is_cancelled_nobody_is_told_any_more(
    client: Client, tmp_path: Path, live: LiveLog, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(client, tmp_path, *[Reply(503)] * 100) as at:
        run_id = await at.create("two")
        await at.receiver.until(2)
        assert (await at.hosts.first.post(f"/runs/{project(run_id)}/cancel")).status_code == 200
        assert (await at.hosts.ended(run_id))["type"] == "run.cancelled"
        await at.sound(live, run_id)
        assert [record for record in caplog.records if record.name == "openwop_mcp.runs"] == []


async def test_nobody_is_told_any_more_of_what_was_answered(client: Client, tmp_path: Path, live: LiveLog) -> None:
    async with scene(client, tmp_path, *[Reply(503)] * 100) as at:
        run_id = await at.create("two")
        await at.receiver.until(2)
        assert (await at.answer(run_id, "a")).json()["status"] == "waiting-approval"
        await first(client, run_id, "activity_task_canceled_event_attributes")
        pending = (await client.get_workflow_handle(run_id).describe()).raw_description.pending_activities
        assert [one.activity_type.name for one in pending] == ["interrupt.notify"]
        assert (await at.answer(run_id, "b")).json()["status"] == "completed"
        await at.sound(live, run_id)


async def test_what_may_not_be_reached_is_not_and_the_run_waits_on(
    client: Client, tmp_path: Path, live: LiveLog
) -> None:
    # The host takes the address, and the worker, which dials it, does not.
    async with scene(client, tmp_path, worker={"callback_network": "public"}) as at:
        run_id = await at.create("gate")
        failed = await first(client, run_id, "activity_task_failed_event_attributes")
        assert "host.callback_network" in failed.failure.message
        assert failed.failure.application_failure_info.non_retryable
        assert at.receiver.told == []
        assert (await at.answer(run_id)).json()["status"] == "completed"
        assert "127.0.0.1" not in failed.failure.message
        await at.sound(live, run_id)


async def test_a_worker_without_the_secret_tries_again_as_it_may_be_given_it(client: Client, tmp_path: Path) -> None:
    async with scene(client, tmp_path, worker={"callback_secret": None}) as at:
        run_id = await at.create("gate")
        handle = client.get_workflow_handle(run_id)

        async def attempts() -> int:
            pending = (await handle.describe()).raw_description.pending_activities
            return max((one.attempt for one in pending), default=0)

        async with asyncio.timeout(PATIENCE):
            while await attempts() < 2:
                pass
        assert (await at.answer(run_id)).json()["status"] == "completed"
        assert at.receiver.told == []


async def test_of_a_node_that_is_masked_nothing_is_told_but_that_it_waits(client: Client, tmp_path: Path) -> None:
    async with scene(client, tmp_path) as at:
        at.acting.replies.append(BUSY)
        run_id = await at.create("masked", inputs={"arguments": {"pin": "4711-secret"}})
        [told_of] = await at.receiver.until(1)
        assert set(told_of) == {"runId", "nodeId", "interruptId", "kind", "key", "resolveUrl", "expiresAt"}
        assert b"4711" not in at.receiver.told[0].body
        assert "4711" not in (await at.hosts.first.get(told_of["resolveUrl"].removeprefix(HOST))).text
        assert (await at.answer(run_id, "call")).status_code == 200


async def test_what_a_link_does_not_answer_is_told_without_one(client: Client, tmp_path: Path) -> None:
    async with scene(client, tmp_path) as at:
        run_id = await at.create("named")
        [told_of] = await at.receiver.until(1)
        assert "data" in told_of
        assert "resolveUrl" not in told_of
        assert (await at.answer(run_id)).status_code == 200


async def test_a_long_question_is_read_where_the_link_leads(client: Client, tmp_path: Path) -> None:
    async with scene(client, tmp_path) as at:
        await at.create("long")
        [told_of] = await at.receiver.until(1)
        assert "data" not in told_of
        shown = await at.hosts.first.get(told_of["resolveUrl"].removeprefix(HOST))
        assert len(shown.json()["data"]["description"]) == 20_000


async def test_what_is_open_is_told_again_where_the_run_goes_on_in_another_history(
    short_client: Client, tmp_path: Path, live: LiveLog
) -> None:
    async with scene(short_client, tmp_path) as at:
        run_id = await at.create("chain")
        once, again, *_ = await at.receiver.until(2)
        told_again = {name: again[name] for name in ("runId", "nodeId", "interruptId", "kind", "key")}
        assert told_again == {name: once[name] for name in told_again}
        await at.acting.until_asked(14)
        assert (await at.answer(run_id)).status_code == 200
        assert (await at.hosts.ended(run_id))["type"] == "run.completed"
        await at.sound(live, run_id)


REFUSED: Sequence[tuple[str, Any]] = [
    ("no url", "x"),
    ("another scheme", "ftp://127.0.0.1/x"),
    ("a user", "http://me@127.0.0.1/x"),
    ("a fragment", "http://127.0.0.1/x#y"),
    ("no port", "http://127.0.0.1:0/x"),
    ("a space", "http://127.0.0.1/a b"),
    ("an address elsewhere", "https://169.254.169.254/latest"),
    ("an address of everybody", "https://192.0.2.1/"),
    ("no string", 7),
    ("nothing", ""),
    ("too long", "http://127.0.0.1/" + "x" * 2048),
]


@pytest.mark.parametrize("url", [url for _, url in REFUSED], ids=[name for name, _ in REFUSED])
async def test_a_url_that_nobody_is_told_at_is_refused_with_the_run(client: Client, tmp_path: Path, url: Any) -> None:
    async with scene(client, tmp_path) as at:
        refused = await at.hosts.first.post("/runs", json={"workflowId": "gate", "callbackUrl": url})
        assert code(refused) == (400, "validation_error")
        assert refused.json()["details"]["field"] == "callbackUrl"
        assert str(url or "no echo") not in refused.text or url == 7


async def test_where_callbacks_are_public_one_to_this_machine_is_refused(client: Client, tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    secret = tmp_path / "secret"
    secret.write_text(SECRET, encoding="utf-8")
    own = {"url": HOST, "callback_secret": {"file": str(secret)}}
    async with two_hosts(client, client, flows, "nobody", flows=FLOWS, settings=own) as both:
        for url in ("https://127.0.0.1/x", "https://localhost/x", "https://[::1]/x", "http://example.org/x"):
            refused = await both.first.post("/runs", json={"workflowId": "gate", "callbackUrl": url})
            assert code(refused) == (400, "validation_error"), url
        document = (await both.first.get("/.well-known/openwop")).json()
        assert document["interrupt"]["callbackDelivery"] is True


async def test_where_none_is_delivered_none_is_taken(client: Client, tmp_path: Path) -> None:
    async with two_hosts(client, client, tmp_path, "nobody", flows=FLOWS) as both:
        refused = await both.first.post("/runs", json={"workflowId": "gate", "callbackUrl": "https://example.org/x"})
        assert code(refused) == (400, "validation_error")
        assert "callbackDelivery" not in (await both.first.get("/.well-known/openwop")).json()["interrupt"]
