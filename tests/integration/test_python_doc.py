"""docs/python.md: the test that it shows passes, its worker embeds the pack, and every function is told of."""

from __future__ import annotations

import inspect
import re

import pytest

from openwop_mcp.ctx import mcp
from tests.support.cli import ROOT
from tests.support.documents import Played, play, read, sample_server, shell


@pytest.fixture(scope="module")
async def played(tmp_path_factory) -> Played:
    return await play("docs/python.md", tmp_path_factory.mktemp("python"))


@pytest.mark.timeout(400)
async def test_the_test_that_is_shown_passes(played):
    assert "1 passed" in played.text


async def test_the_worker_that_is_shown_embeds_the_pack(played):
    # In the wheel the activities are part of the library; a checkout has them beside it.
    embedded = (played.folder / "embedded.py").read_text(encoding="utf-8")
    embedded = embedded.replace("openwop_mcp.activities", "activities")
    (played.folder / "embedded.py").write_text(embedded, encoding="utf-8")
    (played.folder / "use_it.py").write_text(
        "import asyncio, os\n"
        "from temporalio.client import Client\n"
        "from embedded import worker\n"
        "from openwop_mcp.embedded import embedded_temporal\n"
        "async def main():\n"
        "    async with embedded_temporal() as temporal:\n"
        "        client = await Client.connect(temporal.address)\n"
        "        async with worker(client):\n"
        "            print(await client.execute_workflow('Trip', 'Bern', id='two', task_queue='trips'), flush=True)\n"
        "asyncio.run(main())\n"
        "os._exit(0)\n",
        encoding="utf-8",
    )
    async with sample_server(played.ports["7801"]):
        shown = await shell("python use_it.py", played.folder, {**played.env, "PYTHONPATH": str(ROOT)})
    assert "Bern" in shown


def test_the_functions_that_are_told_of_are_those_that_there_are():
    told = dict(re.findall(r"^\| `(\w+)\((.*?)\)` \|", read("docs/python.md"), re.MULTILINE))
    there = {name for name in mcp.__all__ if inspect.iscoroutinefunction(getattr(mcp, name))}
    assert set(told) == there
    for name, parameters in told.items():
        names = [one.split("=")[0] for one in parameters.split(", ") if one != "*"]
        assert list(inspect.signature(getattr(mcp, name)).parameters)[: len(names)] == names
