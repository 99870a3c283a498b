"""A worker of the pack and of nothing else: what `worker.py run` does in a checkout. Arguments: address, settings."""

import asyncio
import os
import sys

from openwop_mcp.activities import Calls, mcp_activities, node_activities
from openwop_mcp.workflows import RunWorkflow
from temporalio.client import Client
from temporalio.worker import Worker

from openwop_mcp.config import load


async def main() -> None:
    """Serve until standard input ends."""
    settings = load(sys.argv[2], environ=os.environ)
    client = await Client.connect(sys.argv[1])
    async with Calls(settings) as calls:
        served = [*mcp_activities(calls), *node_activities(calls)]
        async with Worker(client, task_queue=settings.worker.task_queue, workflows=[RunWorkflow], activities=served):
            print("ready", flush=True)
            await asyncio.to_thread(sys.stdin.read)


asyncio.run(main())
sys.stdout.flush()
os._exit(0)
