"""The command that opens what is encrypted for Temporal's own tools, until it is told to stop."""

from __future__ import annotations

import asyncio

import typer

from commands.options import Config
from commands.process import run_async, until_stopped
from commands.running import running_codec
from commands.serving import ready
from commands.settings import settings_of
from openwop_mcp.config import DEFAULT_FILE, SettingsError

__all__ = ("app",)

app = typer.Typer()


@app.command("codec")
def codec_command(config: Config = None) -> None:
    """Open what is encrypted for Temporal's UI and command line, until SIGINT or SIGTERM."""
    settings = settings_of(config, secrets=False, form="json", level="info")
    source = config or DEFAULT_FILE
    faults: list[str] = []
    if not settings.encryption.keys:
        faults.append(
            f"{source}: encryption.keys: there is nothing to open with: write [[encryption.keys]] with an id and"
            ' secret = { env = "NAME" }'
        )
    if not settings.keys and not settings.issuers:
        faults.append(
            f'{source}: keys: nobody could use it: write [[keys]] with an id, secret = {{ env = "NAME" }}, a tenant, a'
            ' subject and scopes = ["audit:read"]'
        )
    if faults:
        raise SettingsError("\n".join(faults))

    async def serve() -> None:
        async with running_codec(settings) as codec:
            assert codec is not None
            ready(codec=codec.address)
            await asyncio.Event().wait()

    run_async(until_stopped(serve()))
