"""docker-compose.yml as Compose reads it: merged keys resolved, nothing run."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.support.cli import ROOT

__all__ = ("FILE", "PACK", "command", "compose", "environment", "services")

FILE = ROOT / "docker-compose.yml"

PACK = "openwop-mcp-pack"
"""The image of worker and host."""


def compose() -> dict[str, Any]:
    """The whole file."""
    read: dict[str, Any] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return read


def services() -> dict[str, dict[str, Any]]:
    """The services by name."""
    found: dict[str, dict[str, Any]] = compose()["services"]
    return found


def environment(name: str) -> dict[str, str]:
    """What a service's processes find in their environment."""
    given: dict[str, str] = services()[name].get("environment", {})
    return given


def command(name: str) -> list[str]:
    """The command line of a service of the pack, without its program; that of the image where it has none."""
    given: list[str] | None = services()[name].get("command")
    return given if given is not None else _image_command()


def _image_command() -> list[str]:
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    found: list[str] = json.loads([line for line in lines if line.startswith("CMD ")][-1].removeprefix("CMD "))
    return found
