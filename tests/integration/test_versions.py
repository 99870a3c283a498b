"""Builds of the worker as versions of a deployment: real processes, and Temporal's own command that switches."""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from temporalio.api.deployment.v1 import WorkerDeploymentVersion, WorkerDeploymentVersionInfo
from temporalio.api.enums.v1 import RoutingConfigUpdateState, VersionDrainageStatus, VersioningBehavior
from temporalio.api.workflowservice.v1 import DescribeWorkerDeploymentRequest, DescribeWorkerDeploymentVersionRequest
from temporalio.client import Client, WorkflowHandle, WorkflowHistory
from temporalio.common import VersioningBehavior as Behavior
from temporalio.common import WorkerDeploymentVersion as Version
from temporalio.service import RPCError
from temporalio.worker import Worker, WorkerDeploymentConfig

from activities import McpPlugin
from commands.deployment import deployment_of
from commands.settings import at as alone
from openwop_mcp.catalog.names import catalog_id
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.config import SettingsError
from openwop_mcp.effects.identity import by_key
from openwop_mcp.effects.shared import effect_workflow_id
from openwop_mcp.embedded import find_temporal
from openwop_mcp.runs.interrupts import Resolution
from tests.support.author_flows import Author, Call, Calls
from tests.support.cli import Done, Serving, cli, serving
from tests.support.doubts import asked_of_run, resolve
from tests.support.fake_server import FakeServer, modern
from tests.support.graphs import edge, node, workflow
from tests.support.pack import Pack, settings_for, toml_for
from tests.support.patience import PATIENCE
from tests.support.tuned_temporal import tuned_temporal
from workflows import client as runs

DRAINS_SOON = (
    'matching.wv.VersionDrainageStatusVisibilityGracePeriod="100ms"',
    'matching.wv.VersionDrainageStatusRefreshInterval="100ms"',
)
PAID = {"kind": "external-event", "data": {"eventType": "paid", "correlation": {"order": 7}}}
KEYED = {"idempotencyKey": {"type": "static", "value": "order-7"}}
PINNED = VersioningBehavior.VERSIONING_BEHAVIOR_PINNED
AUTO_UPGRADE = VersioningBehavior.VERSIONING_BEHAVIOR_AUTO_UPGRADE
UNVERSIONED = ""

pytestmark = pytest.mark.timeout(300)

POLL = 0.2
"""Seconds between two looks at a deployment, of which Temporal allows some in a second."""


def call(node_id: str, server: str = "fake", **inputs: Any) -> dict[str, Any]:
    return node(node_id, config={"serverId": server, "name": "write"}, inputs=inputs)


WAITS = workflow(
    [call("before"), node("gate", "core.interrupt", config=PAID), call("after"), call("slow", "slow")],
    [edge("before", "gate"), edge("gate", "after"), edge("gate", "slow")],
)
GOES = workflow([call("one")])


@dataclass
class Scene:
    """A Temporal, a server of each class, and the processes of one deployment on a task queue of its own."""

    client: Client
    address: str
    folder: Path
    url: str
    # Also the tenant, since a catalog is one for each tenant, on whatever task queue.
    name: str = field(default_factory=lambda: f"versions-{uuid.uuid4().hex}")

    @property
    def pack(self) -> Pack:
        """To start runs as the settings of all these processes have them."""
        return Pack(self.client, self.name, settings_for(self.url, **self._tables()))

    def _tables(self, **worker: Any) -> dict[str, Any]:
        own = {"tenant": self.name, "task_queue": self.name, "classes": {"slow": {}}, **worker}
        return {"worker": own}

    @asynccontextmanager
    async def process(self, build: str, **worker: Any) -> AsyncIterator[Serving]:
        """`worker.py run` of a build; of none where that is the empty text."""
        versioned = {"deployment": self.name, "build_id": build} if build else {}
        file = self.folder / f"{self.name}-{build}.toml"
        slow = f'[servers.slow]\nurl = "{self.url}"\nnetwork = "private"\nclass = "slow"\n'
        tables = self._tables(**versioned, **worker)
        file.write_text(toml_for(self.address, self.url, **tables) + slow, encoding="utf-8")
        async with serving("run", "--config", str(file)) as running:
            yield running

    async def temporal(self, *arguments: str) -> Done:
        """Temporal's own command line."""
        process = await asyncio.create_subprocess_exec(
            str(find_temporal(None)), *arguments, "--address", self.address, stdout=-1, stderr=-1
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return Done(process.returncode, out, err.decode())

    async def make_current(self, build: str, *beside: str) -> None:
        """Wait for all task queues of a version, switch, and wait until every one of them knows."""
        queues = {self.name, *(f"{self.name}-{kind}" for kind in beside or ("effects", "catalog", "class-slow"))}
        async with asyncio.timeout(PATIENCE):
            while build and await self.queues(build) != queues:  # noqa: ASYNC110 - Temporal tells nobody
                await asyncio.sleep(POLL)
        named = ["--build-id", build] if build else ["--unversioned"]
        done = await self.temporal(
            "worker", "deployment", "set-current-version", "--deployment-name", self.name, *named, "--yes"
        )
        assert done.status == 0, done
        await self.until_routed()

    async def until_routed(self) -> None:
        """Wait until every task queue knows of a switch."""
        request = DescribeWorkerDeploymentRequest(namespace="default", deployment_name=self.name)
        over = RoutingConfigUpdateState.ROUTING_CONFIG_UPDATE_STATE_COMPLETED
        async with asyncio.timeout(PATIENCE):
            while True:
                told = (await self.client.workflow_service.describe_worker_deployment(request)).worker_deployment_info
                if told.routing_config_update_state == over:
                    return
                await asyncio.sleep(POLL)

    async def version(self, build: str) -> WorkerDeploymentVersionInfo:
        version = WorkerDeploymentVersion(deployment_name=self.name, build_id=build)
        request = DescribeWorkerDeploymentVersionRequest(namespace="default", deployment_version=version)
        answer = await self.client.workflow_service.describe_worker_deployment_version(request)
        return answer.worker_deployment_version_info

    async def queues(self, build: str) -> set[str]:
        """The task queues of a version, as far as Temporal has seen its workers poll."""
        try:
            return {one.name for one in (await self.version(build)).task_queue_infos}
        except RPCError:
            return set()

    async def start(self, definition: dict[str, Any]) -> WorkflowHandle[Any, Any]:
        return await self.pack.start(definition, tenant=self.name)

    async def run(self, definition: dict[str, Any]) -> list[WorkflowHistory]:
        log, found = await self.pack.run(definition, tenant=self.name)
        assert log[-1].type == "run.completed", log[-1]
        return found

    async def behaves(self, workflow_id: str) -> tuple[int, str]:
        """What holds for a workflow, and which build had its latest task."""
        description = await self.client.get_workflow_handle(workflow_id).describe()
        info = description.raw_description.workflow_execution_info.versioning_info
        return info.behavior, info.deployment_version.build_id


def builds(found: Sequence[WorkflowHistory]) -> list[str]:
    """Which build carried out each task of a workflow, without repetitions."""
    named = [
        event.workflow_task_completed_event_attributes.deployment_version.build_id
        for history in found
        for event in history.events
        if event.HasField("workflow_task_completed_event_attributes")
    ]
    return [build for at, build in enumerate(named) if at == 0 or named[at - 1] != build]


def made_by(found: Sequence[WorkflowHistory]) -> dict[str, int]:
    """The process that made each call, by activity id."""
    made: dict[str, int] = {}
    scheduled: dict[int, str] = {}
    for event in (event for history in found for event in history.events):
        if event.HasField("activity_task_scheduled_event_attributes"):
            scheduled[event.event_id] = event.activity_task_scheduled_event_attributes.activity_id
        elif event.HasField("activity_task_started_event_attributes"):
            began = event.activity_task_started_event_attributes
            made[scheduled[began.scheduled_event_id]] = int(began.identity.partition("@")[0])
    return made


@pytest.fixture(scope="module")
async def here(tmp_path_factory) -> AsyncIterator[Any]:
    """Makes scenes on one Temporal, which tells soon that a version is drained."""
    async with tuned_temporal(*DRAINS_SOON) as temporal, FakeServer(modern()) as server:
        client = await Client.connect(temporal.address)
        folder = tmp_path_factory.mktemp("versions")
        yield lambda: Scene(client, temporal.address, folder, server.url)


async def ended(at: Scene, handle: Any) -> list[WorkflowHistory]:
    """Let a run go on from its gate, to its end."""
    ((identity, _),) = await asked_of_run(handle)
    await resolve(handle, identity, b'{"order":7}')
    log, found = await at.pack.end(handle)
    assert log[-1].type == "run.completed", log[-1]
    return found


async def test_a_run_is_finished_by_the_build_that_began_it_while_new_ones_go_to_the_current(here):
    at = here()
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(at.process("1"))
        await at.make_current("1")
        old = await at.start(WAITS)
        await asked_of_run(old)
        async with at.process("2") as two:
            await at.make_current("2")
            draining = VersionDrainageStatus.VERSION_DRAINAGE_STATUS_DRAINING
            assert (await at.version("1")).drainage_info.status == draining
            found = await at.run(workflow([call("new", **KEYED), call("slow", "slow")]))
            assert builds(found) == ["2"]
            assert set(made_by(found).values()) == {two.process.pid}
            effect = effect_workflow_id(by_key(at.name, "fake", "write", "order-7", None).effect_id)
            assert await at.behaves(effect) == (PINNED, "2")

            assert await at.behaves(old.id) == (PINNED, "1")
            found = await ended(at, old)
            assert builds(found) == ["1"]
            # Also on the queue of a class.
            assert made_by(found) == dict.fromkeys(["before:1", "after:1", "slow:1"], one.process.pid)
            async with asyncio.timeout(PATIENCE):
                drained = VersionDrainageStatus.VERSION_DRAINAGE_STATUS_DRAINED
                while (await at.version("1")).drainage_info.status != drained:  # noqa: ASYNC110 - the same
                    await asyncio.sleep(POLL)


async def test_who_looks_at_a_pinned_run_or_answers_it_in_vain_is_told_its_version(here, monkeypatch):
    monkeypatch.setattr(runs, "PATIENCE", 1.0)
    at = here()
    async with at.process("1"):
        await at.make_current("1")
        run = await at.start(WAITS)
        ((identity, _),) = await asked_of_run(run)
    settings = str(at.folder / f"{at.name}-1.toml")
    version = f"{at.name}:1"
    prose, value = await asyncio.gather(
        cli("runs", "show", run.id, "--config", settings), cli("runs", "show", run.id, "--config", settings, "--json")
    )
    assert f", pinned to worker version '{version}'\n" in prose.text
    assert value.json["pinnedTo"] == version
    answer = Resolution(identity, b'{"order":7}', b"{}")
    with pytest.raises(runs.InterruptRefusedError, match=f"see that one of version '{version}', which the run is"):
        await runs.resolve_interrupt(at.client, run.id, answer)

    override = ("workflow", "update-options", "--workflow-id", run.id, "--versioning-override-behavior")
    named = ("--versioning-override-deployment-name", at.name, "--versioning-override-build-id", "1")
    assert (await at.temporal(*override, "pinned", *named)).status == 0
    assert await runs.pinned_to(at.client, run.id) == version
    assert (await at.temporal(*override, "auto_upgrade")).status == 0
    assert await runs.pinned_to(at.client, run.id) is None
    await run.terminate()
    assert await runs.pinned_to(at.client, run.id) is None


async def test_a_run_that_may_upgrade_goes_on_with_the_current_build_as_catalogs_always_do(here):
    at = here()
    async with at.process("1", versioning="auto-upgrade"):
        await at.make_current("1")
        old = await at.start(WAITS)
        await asked_of_run(old)
        assert await at.behaves(old.id) == (AUTO_UPGRADE, "1")
        catalogs = Catalogs(at.client, task_queue=at.name, heartbeat=10)
        assert await catalogs.refresh(at.name, "fake", within=PATIENCE)
        assert await at.behaves(catalog_id(at.name, "fake")) == (AUTO_UPGRADE, "1")
        async with at.process("2", versioning="auto-upgrade"):
            await at.make_current("2")
            assert builds(await ended(at, old)) == ["1", "2"]
            assert await catalogs.refresh(at.name, "fake", within=PATIENCE, force=True)
            assert await at.behaves(catalog_id(at.name, "fake")) == (AUTO_UPGRADE, "2")


async def test_runs_move_from_unversioned_workers_to_the_first_version_and_back(here):
    at = here()
    async with at.process(UNVERSIONED):
        old = await at.start(WAITS)
        await asked_of_run(old)
        async with at.process("1") as one:
            # Nothing comes to it before it is made the current one.
            assert builds(await at.run(GOES)) == [UNVERSIONED]
            await at.make_current("1")
            assert builds(await ended(at, old)) == [UNVERSIONED, "1"]
            assert builds(await at.run(GOES)) == ["1"]
            pinned = await at.start(WAITS)
            await asked_of_run(pinned)
            await at.make_current(UNVERSIONED)
            assert builds(await at.run(GOES)) == [UNVERSIONED]
            assert builds(await ended(at, pinned)) == ["1"]
            told = (await one.end(signal.SIGTERM)).err
    assert "set-current-version" in told


async def test_a_version_says_how_it_gets_runs_and_one_that_gets_some_does_not(here):
    at = here()
    async with at.process("1") as first:
        await at.make_current("1")
        async with at.process("1") as second:
            later = (await second.end(signal.SIGTERM)).err
        told = (await first.end(signal.SIGTERM)).err
    assert f"takes on default, slow, deployment {at.name}, buildId 1; Temporal" in later
    assert "set-current-version" not in later
    [line] = [line for line in told.splitlines() if "set-current-version" in line]
    command = shlex.split(json.loads(line)["message"].partition(": temporal ")[2])
    assert (await at.temporal(*command, "--yes", "--allow-no-pollers")).status == 0


async def test_a_worker_without_a_version_beside_a_current_one_says_how_it_gets_runs(here):
    at = here()
    async with at.process("1"):
        await at.make_current("1")
        async with at.process(UNVERSIONED) as second:
            told = (await second.end(signal.SIGTERM)).err
        [line] = [line for line in told.splitlines() if "set-current-version" in line]
        message = json.loads(line)["message"]
        assert f"go to version '{at.name}:1', and not to this worker" in message
        command = shlex.split(message.partition(": temporal ")[2])
        assert (await at.temporal(*command, "--yes")).status == 0
        await at.until_routed()
        async with at.process(UNVERSIONED) as third:
            assert builds(await at.run(GOES)) == [UNVERSIONED]
            assert "set-current-version" not in (await third.end(signal.SIGTERM)).err


async def test_the_task_queues_of_a_version_are_those_of_all_its_processes(here):
    at = here()
    everything = {at.name, f"{at.name}-effects", f"{at.name}-catalog"}
    async with at.process("1", serves=["default"]), asyncio.timeout(PATIENCE):
        while await at.queues("1") != everything:  # noqa: ASYNC110 - the same
            await asyncio.sleep(POLL)
        async with at.process("1", serves=["slow"]):
            while await at.queues("1") != everything | {f"{at.name}-class-slow"}:  # noqa: ASYNC110 - the same
                await asyncio.sleep(POLL)


async def test_effects_of_an_embedding_worker_are_of_the_same_version_as_that(here):
    at = here()
    version = WorkerDeploymentConfig(
        Version(at.name, "7"),
        use_worker_versioning=True,
        default_versioning_behavior=Behavior.AUTO_UPGRADE,
    )
    settings = settings_for(at.url, worker={"tenant": at.name})
    worker = Worker(
        at.client,
        task_queue=at.name,
        workflows=[Author],
        plugins=[McpPlugin(settings)],
        deployment_config=version,
    )
    async with worker:
        await at.make_current("7", "effects")
        made = Calls([Call("call_tool", ["fake", "write"], key="order-7")])
        handle = await at.client.start_workflow(Author.run, made, id=at.name, task_queue=at.name)
        assert [one.code for one in await handle.result()] == [None]
    assert await at.behaves(handle.id) == (AUTO_UPGRADE, "7")
    effect = effect_workflow_id(by_key(at.name, "fake", "write", "order-7", None).effect_id)
    assert await at.behaves(effect) == (PINNED, "7")


@pytest.mark.parametrize(
    ("worker", "told"),
    [
        ({"deployment": "pack"}, r"worker\.build_id is not: .* set OPENWOP_MCP__WORKER__BUILD_ID"),
        ({"build_id": "1"}, r"worker\.deployment is not: .* set OPENWOP_MCP__WORKER__DEPLOYMENT"),
        ({"versioning": "pinned"}, r"worker\.versioning belongs to a deployment"),
    ],
)
def test_a_worker_of_half_a_version_says_what_is_missing(worker, told):
    with pytest.raises(SettingsError, match=told):
        deployment_of(settings_for("http://127.0.0.1:9/mcp", worker=worker).worker)


async def test_only_a_worker_asks_for_a_whole_version(temporal, tmp_path):
    config = tmp_path / "s.toml"
    config.write_text(f'[temporal]\naddress = "{temporal.address}"\n[worker]\ndeployment = "pack"\n', encoding="utf-8")
    shown = await cli("runs", "show", "none", "--config", str(config))
    worker = await cli("run", "--config", str(config))
    assert (shown.status, worker.status) == (1, 2)
    assert "OPENWOP_MCP__WORKER__BUILD_ID" in worker.err


def test_a_process_with_a_temporal_of_its_own_serves_everything_and_has_no_version():
    worker = {
        "deployment": "pack",
        "build_id": "1",
        "versioning": "pinned",
        "classes": {"slow": {}},
        "serves": ["slow"],
    }
    own = alone(settings_for("http://127.0.0.1:9/mcp", worker=worker), "127.0.0.1:1").worker
    assert own.served == ("default", "slow")
    assert deployment_of(own) is None
