"""An author's worker and client with plain `temporalio`: the pack runs elsewhere. Argument: address."""

import asyncio
import json
import os
import sys

from temporalio.client import Client
from temporalio.worker import Worker

import activities
import openwop_mcp
import workflows


async def main() -> None:
    """Run one workflow."""
    client = await Client.connect(sys.argv[1])
    async with Worker(client, task_queue="author", workflows=[workflows.Order], activities=[activities.shout]):
        result = await client.execute_workflow("Order", "Bern", id="order-plain", task_queue="author")
    files = {module.__name__: module.__file__ for module in (activities, workflows, openwop_mcp)}
    print(json.dumps({"result": result, **files}))


asyncio.run(main())
sys.stdout.flush()
os._exit(0)
