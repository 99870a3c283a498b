"""What was given on the command line as text: sound JSON that can be carried, or a usage error."""

from __future__ import annotations

import os
from pathlib import Path

import typer

from commands.settings import options_of
from openwop_mcp import jsontext
from openwop_mcp.calls import MAX_DEPTH
from openwop_mcp.config import Settings

__all__ = ("json_argument", "object_argument", "sound_json", "unicode_argument")


def object_argument(value: str, option: str, settings: Settings, *, beside: int = 0) -> bytes:
    """The JSON text of an option, or of the file that it names with ``@``: an object, byte for byte.

    Args:
        value: What was given.
        option: Its name, for messages.
        settings: They say how much can be carried.
        beside: Bytes of the definition that it travels with.
    """
    text = json_argument(value, option, settings, beside=beside)
    if jsontext.kind(text) != "object":
        raise typer.BadParameter('write a JSON object, as in \'{"city": "Bern"}\'', param_hint=f"'{option}'")
    return text


def json_argument(value: str, option: str, settings: Settings, *, beside: int = 0) -> bytes:
    """The same of any JSON value."""
    if not value.startswith("@"):
        return sound_json(os.fsencode(value), option, settings, beside=beside)
    try:
        text = Path(value[1:]).read_bytes()
    except OSError as error:
        raise typer.BadParameter(f"{value[1:]} cannot be read ({error.strerror})", param_hint=f"'{option}'") from None
    return sound_json(text, option, settings, beside=beside)


def sound_json(text: bytes, option: str, settings: Settings, *, beside: int = 0) -> bytes:
    """A text that is JSON, and that can be carried."""
    ceiling = options_of(settings).call_bytes
    if len(text) + beside > ceiling:
        together = f", with the {beside} of the definition," if beside else ""
        carries = "Temporal carries" if settings.storage.driver == "none" else "limits.call_bytes lets pass"
        raise typer.BadParameter(
            f"{len(text)} bytes{together} are over the {ceiling} bytes that {carries}",
            param_hint=f"'{option}'",
        )
    try:
        jsontext.check_depth(text, MAX_DEPTH)
        jsontext.check(text)
    except jsontext.JsonTextError as error:
        raise typer.BadParameter(error.within(text), param_hint=f"'{option}'") from None
    return text


def unicode_argument(value: str, hint: str) -> None:
    """Refuse what was not UTF-8 on the command line: no JSON can carry it."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter("is not valid UTF-8", param_hint=f"'{hint}'") from None
