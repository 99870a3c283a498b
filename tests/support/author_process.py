"""A worker of authors in a process of its own, so that it can be killed.

python -m tests.support.author_process ADDRESS QUEUE
"""

from __future__ import annotations

import asyncio
import json
import sys

from temporalio.client import Client
from temporalio.worker import Worker

from tests.support.asking_flows import Asker, look_up


async def main(address: str, queue: str) -> None:
    client = await Client.connect(address)
    async with Worker(client, task_queue=queue, workflows=[Asker], activities=[look_up]):
        sys.stdout.write(json.dumps({"ready": True}) + "\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
