"""A catalog goes on over worker deaths, resets and new histories, and its history always says the same as it does."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
import sys
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowHistory

from openwop_mcp import catalogs
from openwop_mcp.catalog import pacing
from openwop_mcp.catalog.projection import CatalogProjector
from openwop_mcp.catalog.start import CatalogStart, decode_pages
from openwop_mcp.catalogs import Catalogs
from openwop_mcp.embedded import EmbeddedTemporal
from tests.support.catalogs import Kept, Shop, keeping, of, tool
from tests.support.pack import SERVER, toml_for
from tests.support.patience import PATIENCE
from workflows.replay import replay

ROOT = Path(__file__).parents[3]


async def _until_continued(at: Kept, parts: int) -> list[WorkflowHistory]:
    async with asyncio.timeout(PATIENCE):
        while len(found := await at.histories()) < parts:
            await at.catalogs.refresh(at.tenant, SERVER, within=10, force=True)
    return found


def _projected(history: WorkflowHistory, tenant: str) -> tuple[bytes, list[bytes]]:
    projector = CatalogProjector(tenant, SERVER)
    for event in history.events:
        projector.take(event)
    return projector.catalog.encode()


async def test_a_new_history_carries_on_all_that_was_known(short_client: Client) -> None:
    async with keeping(short_client, Shop([tool("mail"), tool("gone"), tool("other")])) as at:
        first = of(await at.refresh(), "mail")
        await at.catalogs.classify(
            at.tenant, SERVER, [("mail", first.fingerprint)], by="ann", why="so", safety_tier="read"
        )
        at.shop.tools[2] = tool("other", "changed")
        del at.shop.tools[1]
        before = await at.refresh()
        version, changes = before.version, list(before.changes)
        assert of(before, "other").standing.drifted
        parts = await _until_continued(at, 3)
        after = await at.read()
        assert after.version == version
        assert list(after.changes) == changes
        assert after.listed_at is not None
        assert of(after, "other").accepted_definition is not None
        kept = of(after, "mail").standing.classification
        assert kept is not None
        assert kept.safety_tier == "read"
        # What a reader makes of one part is, to the last byte, what the workflow itself handed on.
        for part, following in itertools.pairwise(parts):
            start, pages = following.events[0].workflow_execution_started_event_attributes.input.payloads
            assert _projected(part, at.tenant) == (CatalogStart.decode(start.data).state, decode_pages(pages.data))


async def test_those_who_wait_for_a_list_while_the_history_changes_are_answered(short_client: Client) -> None:
    async with keeping(short_client) as at:
        await at.refresh()
        others = [Catalogs(short_client, task_queue="any", heartbeat=2) for _ in range(4)]
        for _ in range(12):
            answers = await asyncio.gather(
                *(one.refresh(at.tenant, SERVER, within=PATIENCE, force=True) for one in others)
            )
            assert answers == [True] * 4
        assert len(await at.histories()) > 1


async def test_a_catalog_that_is_reset_says_the_same_as_its_history(client: Client) -> None:
    async with keeping(client) as at:
        known = of(await at.refresh(), "one")
        await at.catalogs.classify(
            at.tenant, SERVER, [("one", known.fingerprint)], by="ann", why="", safety_tier="read"
        )
        description = await at.handle.describe()
        await client.workflow_service.reset_workflow_execution(
            ResetWorkflowExecutionRequest(
                namespace=client.namespace,
                workflow_execution=WorkflowExecution(workflow_id=at.handle.id, run_id=description.run_id),
                reason="a test",
                workflow_task_finish_event_id=4,
                request_id=uuid.uuid4().hex,
            )
        )
        catalog = await at.until(lambda catalog: catalog.listed_at is not None)
        assert catalog.names() == ("one", "two")
        assert (await at.refresh()).failure is None


async def test_histories_of_catalogs_replay(short_client: Client) -> None:
    async with keeping(short_client, Shop(subscribable=True)) as at:
        await at.refresh()
        await at.catalogs.approve(
            at.tenant, SERVER, [("one", of(await at.read(), "one").fingerprint)], by="ann", why=""
        )
        at.shop.tools[0] = tool("one", "changed")
        found = await _until_continued(at, 2)
        for verdict in await replay([*found, *(await at.histories())], []):
            assert verdict.sound, verdict.prose()


async def test_a_worker_that_dies_while_it_lists_is_followed_by_another(
    client: Client, temporal: EmbeddedTemporal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "LEAST_AFTER_FAILURE", 200)
    shop = Shop()
    async with keeping(client, shop, worker=False) as at:
        own = at.settings.worker
        config = tmp_path / "settings.toml"
        table = {"tenant": at.tenant, "task_queue": own.task_queue, "heartbeat_timeout": 2}
        config.write_text(toml_for(temporal.address, at.server.url, worker=table), encoding="utf-8")
        shop.gate.clear()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "worker.py", "run", "--config", str(config), stdout=asyncio.subprocess.PIPE, cwd=ROOT
        )
        try:
            # It starts the catalog by itself.
            await shop.until_asked(1)
            process.send_signal(signal.SIGKILL)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        async with at.worker():
            catalog = await at.until(lambda catalog: catalog.failure is not None)
            assert "lost" in catalog.failure.message  # type: ignore[union-attr]
            # Not before: a list that went through would take the failure away, maybe unseen.
            shop.gate.set()
            catalog = await at.until(lambda catalog: catalog.listed_at is not None)
            assert catalog.failure is None
            assert catalog.names() == ("one", "two")


@pytest.mark.parametrize("asks", ["a worker that starts", "a reader"])
async def test_a_catalog_of_another_task_queue_goes_on_where_the_workers_are_now(
    client: Client, monkeypatch: pytest.MonkeyPatch, asks: str
) -> None:
    # Else a worker that is merely slow is taken for none, and the catalog goes back to where there is none.
    monkeypatch.setattr(catalogs, "TAKEN", timedelta(seconds=PATIENCE))
    async with keeping(client, Shop([tool("one")]), worker=False) as at:
        async with at.worker():
            accepted = of(await at.refresh(), "one").definition
            at.shop.tools[0] = tool("one", "drifted")
            fingerprint = of(await at.refresh(), "one").fingerprint
        own = at.settings.worker.model_copy(update={"task_queue": f"{at.settings.worker.task_queue}-new"})
        moved = replace(
            at,
            settings=at.settings.model_copy(update={"worker": own}),
            catalogs=Catalogs(client, task_queue=own.task_queue, heartbeat=2),
        )
        async with moved.worker():
            if asks == "a reader":
                with monkeypatch.context() as patch:
                    patch.setattr(catalogs, "TAKEN", timedelta(seconds=0.5))
                    assert await moved.catalogs.refresh(at.tenant, SERVER, within=PATIENCE)
            else:
                await asyncio.gather(*(moved.catalogs.start(at.tenant, SERVER) for _ in range(3)))
            # What was known before is known still, also to those who have been reading it all the time.
            drifted = of(await at.refresh(), "one")
            assert drifted.standing.drifted
            assert drifted.accepted_definition == accepted
            await moved.catalogs.approve(at.tenant, SERVER, [("one", fingerprint)], by="ann", why="")
            assert not of(await at.read(), "one").standing.drifted
            before = (await at.handle.describe()).run_id
            await moved.catalogs.start(at.tenant, SERVER)
            assert (await at.handle.describe()).run_id == before
