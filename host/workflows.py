"""The workflows of which runs can be had: definitions read from folders when the host starts, all faults told at once.

Keeps each file's bytes and what they mean; starts nothing. A definition that needs more than there is here is kept, and
refused to whoever asks for a run of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Self

from openwop_mcp import config, jsontext, schemas
from openwop_mcp.config import SettingsError
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import Definition, DefinitionError, Static, parse

from . import etags
from .errors import HostError
from .siblings import definitions

__all__ = ("FIXTURES", "Workflow", "Workflows", "named_servers")

_HERE = Path(__file__).parent

FIXTURES = _HERE / "fixtures" if (_HERE / "fixtures").is_dir() else _HERE.parent / "examples" / "fixtures"
"""The conformance workflows: beside this file in the wheel, among the examples in the checkout."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow as its file has it.

    Attributes:
        id: Its id.
        file: Where it was read.
        text: The file's bytes.
        etag: Strong, of these bytes.
        definition: What can be run; None where something is missing.
        unknown_types: The node types that it needs and that are not there, each once.
    """

    id: str
    file: Path
    text: bytes
    etag: str
    definition: Definition | None
    unknown_types: tuple[str, ...] = ()


class Workflows:
    """The workflows of a host.

    Args:
        found: The workflows, each id once.
        fixtures: Ids of those among them that the conformance suite addresses.
    """

    def __init__(self, found: Iterable[Workflow], fixtures: Iterable[str] = ()) -> None:
        self._by_id = {workflow.id: workflow for workflow in found}
        self._fixtures = tuple(fixtures)

    @classmethod
    def read(cls, host: config.Host, *, source: str = config.DEFAULT_FILE) -> Self:
        """Read the folders of the settings.

        Args:
            host: The settings.
            source: The file of the settings, for faults in what they name.

        Raises:
            SettingsError: With all faults, one a line: of a file its path and the place in it.
        """
        faults: list[str] = []
        found: dict[str, Workflow] = {}
        offered: list[str] = []
        for file in _files(host, source, faults):
            try:
                workflow = _read(file)
            except (DefinitionError, definitions.DefinitionNotFoundError) as error:
                faults += str(error).splitlines()
                continue
            if (other := found.setdefault(workflow.id, workflow)) is not workflow:
                faults.append(f"{file}: id: '{workflow.id}' is taken by {other.file}: write another")
            elif file.parent == FIXTURES:
                offered.append(workflow.id)
        if faults:
            raise SettingsError("\n".join(faults))
        return cls(found.values(), offered)

    def ids(self) -> list[str]:
        """The ids of all, sorted."""
        return sorted(self._by_id)

    @property
    def fixtures(self) -> list[str]:
        """The conformance workflows that can be run."""
        return [identity for identity in self._fixtures if self._by_id[identity].definition is not None]

    def doubts(self, servers: Collection[str]) -> list[str]:
        """What runs will most likely fail with, a line for each: file, and what is not there.

        None of it is a fault of the file: another host or a worker with other settings may have it.

        Args:
            servers: Ids of the servers in the settings.
        """
        return [
            f"{workflow.file}: {doubt}"
            for workflow in self._by_id.values()
            # What a host lacks of the conformance workflows says what it does not offer.
            if workflow.file.parent != FIXTURES
            for doubt in _doubts(workflow, servers)
        ]

    def workflow(self, workflow_id: str) -> Workflow:
        """A workflow, whether it can be run or not.

        Raises:
            HostError: ``not_found``.
        """
        workflow = self._by_id.get(workflow_id)
        if workflow is None:
            near = _did_you_mean(workflow_id, [one.id for one in self._by_id.values() if one.definition is not None])
            raise HostError(
                "not_found", f"workflowId: there is no such workflow here{near}; graphs are read when the host starts"
            )
        return workflow

    def get(self, workflow_id: str) -> Definition:
        """The definition of a workflow that is to be run.

        Raises:
            HostError: ``not_found``, or ``capability_required`` if it needs what is not there.
        """
        workflow = self.workflow(workflow_id)
        if workflow.definition is None:
            raise HostError(
                "capability_required",
                f"workflowId: the workflow needs what this host does not have: {', '.join(workflow.unknown_types)}",
                {"requiredCapability": workflow.unknown_types[0]},
            )
        return workflow.definition


def _files(host: config.Host, source: str, faults: list[str]) -> Iterator[Path]:
    for name in host.workflows:
        folder = Path(name)
        if folder.is_dir():
            yield from sorted(folder.glob("*.json"))
        else:
            faults.append(f"{source}: host.workflows: {name}: there is no such folder: write the path of one")
    if host.fixtures:
        yield from sorted(FIXTURES.glob("*.json"))


def _read(file: Path) -> Workflow:
    if file.is_fifo() or file.is_char_device() or file.is_socket():
        # To read it may take for ever, and the host would start no more.
        raise definitions.DefinitionNotFoundError(f"{file}: cannot be read (Not a regular file)")
    text = definitions.read_text(file)
    definition: Definition | None = None
    unknown_types: tuple[str, ...] = ()
    try:
        definition = parse(text, source=str(file), node_types=REGISTRY)
    except DefinitionError as error:
        # What is missing here may be there elsewhere; any other fault is the file's.
        if len(error.unknown_types) < len(error.faults):
            raise
        unknown_types = tuple(dict.fromkeys(error.unknown_types))
    schema = jsontext.member(text, "configurableSchema")
    if schema is not None and (verdict := schemas.check(schema, b"{}")).state == "unchecked":
        raise DefinitionError([f"{file}: configurableSchema: nothing can be checked by it: {verdict.reason}"])
    identity = jsontext.decode(jsontext.member(text, "id") or b"null")
    return Workflow(identity, file, text, etags.of_bytes(text), definition, unknown_types)


def _doubts(workflow: Workflow, servers: Collection[str]) -> Iterator[str]:
    for type_id in workflow.unknown_types:
        yield f"there is no node type '{type_id}' here, so that no run is created{_did_you_mean(type_id, REGISTRY)}"
    for node_id, place, server_id in () if workflow.definition is None else named_servers(workflow.definition):
        if server_id not in servers:
            near = _did_you_mean(server_id, servers)
            yield f"node '{node_id}': {place}.serverId: the settings have no server '{server_id}'{near}"


def named_servers(definition: Definition) -> Iterator[tuple[str, str, str]]:
    """The nodes of a definition that say themselves which server they call, where they do, and that server's id."""
    for node in definition.nodes:
        place, named, port = "inputs", None, dict(node.inputs).get("serverId")
        if isinstance(port, Static):
            named = port.value
        elif port is None and "serverId" in node.type.either:
            # Where there is an input, it goes before the configuration.
            place, named = "config", jsontext.member(node.config, "serverId")
        server_id = None if named is None else jsontext.decode(named)
        if isinstance(server_id, str):
            yield node.id, place, server_id


def _did_you_mean(given: str, known: Iterable[str]) -> str:
    near = get_close_matches(given, list(known), 1)
    return f" (did you mean '{near[0]}'?)" if near else ""
