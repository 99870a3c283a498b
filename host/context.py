"""What the routes of one host share. Made once, where the application is put together; knows no route."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from temporalio.client import Client

from openwop_mcp.config import Settings
from openwop_mcp.runs.start import Options

from .catalog import ToolCatalog
from .links import Links
from .logs import RunLogs
from .records import Records
from .web import Authenticator
from .workflows import Workflows

__all__ = ("Host",)


@dataclass(frozen=True)
class Host:
    """What the routes need. None of it holds state that Temporal could not give again.

    Attributes:
        settings: The settings.
        client: Connected to the namespace of the runs, with the storage of large values.
        authenticator: Tells who sent a request.
        workflows: The workflows of which runs can be had.
        tools: The tools that can be called.
        logs: The logs of runs, as far as they were read.
        records: What was answered to requests with a key.
        links: What people without a key answer by.
        task_queue: Queue of the workers that carry runs out.
        options: What every run is started with.
        stopping: Set when the host is about to end: a stream ends then, and a poll waits no longer.
    """

    settings: Settings
    client: Client
    authenticator: Authenticator
    workflows: Workflows
    tools: ToolCatalog
    logs: RunLogs
    records: Records
    links: Links
    task_queue: str
    options: Options
    stopping: asyncio.Event
