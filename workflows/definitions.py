"""Workflow definitions on disk: one JSON file each, in folders. Knows files; their meaning is the library's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from openwop_mcp import jsontext
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import Definition, DefinitionError, parse

__all__ = ("DefinitionNotFoundError", "find_definition", "read_definition", "read_text")


class DefinitionNotFoundError(Exception):
    """There is no such definition. The message says where it was looked for, and which files there cannot be used."""

    code = "not_found"


def find_definition(named: str, folders: Sequence[Path]) -> Definition:
    """Find a definition.

    Args:
        named: The path of a file that ends with ``.json``, or the id of a workflow.
        folders: Where to look for an id. The first definition that has it is taken.

    Raises:
        DefinitionNotFoundError: There is none.
        DefinitionError: The file that was named holds no sound definition.
    """
    if named.endswith(".json"):
        return read_definition(Path(named))
    broken: list[str] = []
    for folder in folders:
        for file in sorted(folder.glob("*.json")):
            try:
                definition = read_definition(file)
            except (DefinitionError, DefinitionNotFoundError) as error:
                # Another workflow's fault is no reason not to start this one.
                broken.append(str(error))
                continue
            if definition.id == named:
                return definition
    where = f"looked in {', '.join(map(str, folders))}" if folders else "no folder to look in: set host.workflows"
    raise DefinitionNotFoundError("\n".join([f"no workflow '{named}' ({where})", *broken]))


def read_definition(file: Path) -> Definition:
    """Read one definition.

    Raises:
        DefinitionNotFoundError: The file cannot be read.
        DefinitionError: It holds no sound definition.
    """
    return parse(read_text(file), source=str(file), node_types=REGISTRY)


def read_text(file: Path) -> bytes:
    """Read a file that is to hold a definition: JSON, whatever it says.

    Raises:
        DefinitionNotFoundError: The file cannot be read.
        DefinitionError: It holds no JSON.
    """
    try:
        text = file.read_bytes()
    except OSError as error:
        raise DefinitionNotFoundError(f"{file}: cannot be read ({error.strerror})") from None
    try:
        jsontext.check(text)
    except jsontext.JsonTextError as error:
        raise DefinitionError([f"{file}: {error.within(text)}"]) from None
    return text
