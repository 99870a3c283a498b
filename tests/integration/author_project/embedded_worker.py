"""The pack inside an author's worker, by the plugin. Arguments: address, settings."""

import asyncio
import json
import os
import sys

from openwop_mcp.activities import McpPlugin
from temporalio.client import Client
from temporalio.worker import Worker

import activities
import workflows
from openwop_mcp.config import load


async def main() -> None:
    """Run one workflow."""
    client = await Client.connect(sys.argv[1])
    async with Worker(
        client,
        task_queue="embedded",
        workflows=[workflows.Order],
        activities=[activities.shout],
        plugins=[McpPlugin(load(sys.argv[2], environ=os.environ))],
    ):
        result = await client.execute_workflow("Order", "Bern", id="order-embedded", task_queue="embedded")
    print(json.dumps({"result": result}))


asyncio.run(main())
sys.stdout.flush()
os._exit(0)
