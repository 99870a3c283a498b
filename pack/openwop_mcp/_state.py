"""Where this user keeps what outlives a process: one folder, as the XDG Base Directory Specification has it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

__all__ = ("state_folder",)


def state_folder(environ: Mapping[str, str]) -> Path:
    """``$XDG_STATE_HOME/openwop-mcp``, or the same under ``~/.local/state``. It need not exist."""
    state = environ.get("XDG_STATE_HOME", "")
    # A relative path there is to be ignored (XDG Base Directory Specification).
    base = Path(state) if Path(state).is_absolute() else Path(environ.get("HOME") or Path.home()) / ".local/state"
    return base / "openwop-mcp"
