"""The settings as commands need them. What may stand in them is the library's to say."""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
from pathlib import Path

from commands.ending import known
from commands.errors import CommandError
from openwop_mcp.ceilings import INLINE_BYTES, MAX_CALL_BYTES
from openwop_mcp.config import DEFAULT_FILE, Key, Server, Settings, Temporal, load
from openwop_mcp.errors import UnknownServerError
from openwop_mcp.logs import Form, Level, set_up
from openwop_mcp.redaction import KNOWN
from openwop_mcp.runs.start import Options

__all__ = ("at", "configured", "no_file", "options_of", "serving_settings", "settings_of", "with_key")


def settings_of(config: str | None, *, secrets: bool = True, form: Form = "text", level: Level = "warning") -> Settings:
    """The settings, or an end with status 2 and one line for each fault. What is logged from then on is as they say.

    Args:
        config: The file, if one was named.
        secrets: Whether the command talks to servers, and so needs their credentials.
        form: How a line of the log is written where they do not say.
        level: The same, from which level on something is logged.
    """
    settings = load(config, environ=os.environ, secrets=secrets)
    set_up(settings.logs.format or form, settings.logs.level or level, settings.logs.levels)
    return settings


def serving_settings(config: str | None, *, form: Form) -> Settings:
    """The settings of a worker. Without a server it can do little, which is seldom meant."""
    settings = settings_of(config, form=form, level="info")
    if not settings.servers:
        logging.getLogger(__name__).warning(
            "no MCP server is configured: add [servers.ID] to %s%s", config or DEFAULT_FILE, no_file(config)
        )
    return settings


def with_key(settings: Settings) -> tuple[Settings, str | None]:
    """The settings of `dev`, which without a key makes one for itself, and that: nothing has to be set up to try it."""
    if settings.keys or settings.issuers:
        return settings, None
    key = secrets.token_urlsafe(24)
    KNOWN.add(key)
    own = Key(
        id="dev",
        sha256=hashlib.sha256(key.encode()).hexdigest(),
        tenant=settings.worker.tenant,
        subject="dev",
        scopes=("*",),
    )
    return settings.model_copy(update={"keys": (own,)}), key


def no_file(config: str | None) -> str:
    """Says so where the settings lack because there is no file of them."""
    there = config is not None or Path(DEFAULT_FILE).exists()
    return "" if there else f" (no {DEFAULT_FILE} in {Path.cwd()})"


def at(settings: Settings, address: str) -> Settings:
    """The same settings for a Temporal that one process has to itself: it serves everything, and has no versions."""
    own = Temporal(address=address, executable=settings.temporal.executable)
    alone = {"serves": None, "deployment": None, "build_id": None, "versioning": None}
    worker = settings.worker.model_copy(update=alone)
    return settings.model_copy(update={"temporal": own, "worker": worker})


def configured(settings: Settings, server_id: str, config: str | None) -> Server:
    """The settings of a server.

    Raises:
        CommandError: There is none of that id.
    """
    server = settings.server(server_id, settings.worker.tenant)
    if server is None:
        unknown = UnknownServerError(server_id, barred=settings.barred(server_id, settings.worker.tenant))
        details, delivery = known(unknown)
        raise CommandError(f"{unknown}{no_file(config)}", code=unknown.code, details=details, delivery=delivery)
    return server


def options_of(settings: Settings) -> Options:
    """What a run is to know of the settings."""
    heartbeat, classes = settings.worker.heartbeat_timeout, settings.server_classes
    if settings.storage.driver == "none":
        return Options(heartbeat, call_bytes=min(settings.limits.call_bytes, MAX_CALL_BYTES), classes=classes)
    return Options(heartbeat, inline_bytes=INLINE_BYTES, call_bytes=settings.limits.call_bytes, classes=classes)
