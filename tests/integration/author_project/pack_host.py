"""The host out of the wheel: what it is made of, and what it offers."""

import asyncio
import json
from typing import Any, cast

from openwop_mcp.host import app, siblings
from openwop_mcp.host.context import Host
from openwop_mcp.host.logs import RunLogs
from openwop_mcp.host.records import Records
from openwop_mcp.host.workflows import Workflows

from openwop_mcp.config import Settings
from openwop_mcp.runs.start import Options


async def main() -> None:
    settings = Settings.model_validate({"host": {"fixtures": True}})
    unused = cast("Any", None)
    host = Host(
        settings=settings,
        client=unused,
        authenticator=unused,
        workflows=Workflows.read(settings.host),
        tools=unused,
        logs=RunLogs(unused),
        records=Records(unused),
        links=unused,
        task_queue="pack",
        options=Options(),
        stopping=asyncio.Event(),
    )
    told = {
        "host": app.__file__,
        "workflows": siblings.client.__file__,
        "fixtures": host.workflows.ids(),
        "paths": list(app.create_app(host).openapi()["paths"]),
    }
    print(json.dumps(told), flush=True)


asyncio.run(main())
