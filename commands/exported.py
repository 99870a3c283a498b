"""Exported histories in the place of runs: read from their file, so that no Temporal is asked."""

from __future__ import annotations

from pathlib import Path

from openwop_mcp.config import Settings
from openwop_mcp.storage import data_converter
from workflows.client import RecordedRun
from workflows.replay import open_file

__all__ = ("file_of", "read_exported")


def file_of(what: str) -> Path | None:
    """The file or folder that is meant; None where it is the id of a run."""
    path = Path(what)
    return path if path.exists() or path.suffix == ".json" else None


async def read_exported(file: Path, settings: Settings) -> RecordedRun:
    """Read the run that a file holds.

    Raises:
        HistoryFileError: It holds none, or one that the settings' keys do not open.
    """
    histories = await open_file(file, data_converter(settings))
    return RecordedRun(histories[0].workflow_id, histories)
