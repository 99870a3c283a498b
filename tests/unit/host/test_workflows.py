"""Workflows of a host: which files are taken, what is wrong with them, and what cannot be run here."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from host.errors import HostError
from host.workflows import FIXTURES, Workflows
from openwop_mcp.config import Host, SettingsError
from tests.support.graphs import node, workflow


def write(folder: Path, file_name: str, **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / file_name
    file.write_text(json.dumps({**workflow([node("a", "core.noop")], [], []), **changes}), encoding="utf-8")
    return file


def read(*folders: Path, fixtures: bool = False) -> Workflows:
    return Workflows.read(Host(workflows=tuple(map(str, folders)), fixtures=fixtures))


def faults(*folders: Path, fixtures: bool = False) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read(*folders, fixtures=fixtures)
    return str(caught.value).splitlines()


def code(caught: pytest.ExceptionInfo[HostError]) -> tuple[str, Any]:
    return caught.value.code, caught.value.details


def test_definitions_of_all_folders_are_had_by_their_ids(tmp_path: Path) -> None:
    write(tmp_path / "a", "one.json", id="one")
    file = write(tmp_path / "b", "any-name.json", id="two")
    workflows = read(tmp_path / "a", tmp_path / "b")
    assert workflows.ids() == ["one", "two"]
    assert workflows.get("two").id == "two"
    assert workflows.workflow("two").text == file.read_bytes()
    assert workflows.fixtures == []


def test_files_that_are_no_json_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing", encoding="utf-8")
    assert read(tmp_path).ids() == []


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        read(tmp_path).get("one")
    assert code(caught) == ("not_found", None)


def test_every_fault_of_every_file_is_told_at_once_with_file_and_path(tmp_path: Path) -> None:
    shape = write(tmp_path, "a.json", id="a", nodes=[{"id": "x"}])
    graph = write(tmp_path, "b.json", id="b", edges=[{"id": "e", "sourceNodeId": "a", "targetNodeId": "z"}])
    broken = tmp_path / "c.json"
    broken.write_text("{", encoding="utf-8")
    gone = tmp_path / "d.json"
    gone.symlink_to(tmp_path / "nowhere")
    write(tmp_path, "e.json", id="e")
    told = faults(tmp_path, tmp_path / "no-such-folder")
    assert [line.split(":")[0] for line in told] == [
        *[str(shape)] * 5,
        str(graph),
        str(broken),
        str(gone),
        "openwop-mcp.toml",
    ]
    assert any(line.startswith(f"{shape}: nodes[0].typeId: ") for line in told)
    assert told[5].startswith(f"{graph}: edges[0].targetNodeId: ")


def test_what_may_take_for_ever_to_read_is_not_read(tmp_path: Path) -> None:
    pipe, device = tmp_path / "a.json", tmp_path / "b.json"
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    assert faults(tmp_path) == [f"{file}: cannot be read (Not a regular file)" for file in (pipe, device)]


def test_two_workflows_of_one_id_are_a_fault_that_names_both_files(tmp_path: Path) -> None:
    first = write(tmp_path / "a", "one.json", id="one")
    second = write(tmp_path / "b", "one.json", id="one")
    [told] = faults(tmp_path / "a", tmp_path / "b")
    assert told.startswith(f"{second}: id: ")
    assert str(first) in told


def test_a_workflow_may_not_take_the_id_of_a_fixture_that_is_offered(tmp_path: Path) -> None:
    own = write(tmp_path, "own.json", id="conformance-noop")
    assert read(tmp_path).get("conformance-noop").name
    [told] = faults(tmp_path, fixtures=True)
    assert str(own) in told


def test_fixtures_are_offered_only_where_the_settings_say_so() -> None:
    assert read().ids() == []
    assert read(fixtures=True).ids() == sorted(file.stem for file in FIXTURES.glob("*.json"))


def test_every_fixture_can_be_run() -> None:
    workflows = read(fixtures=True)
    assert workflows.fixtures == workflows.ids()
    assert {"conformance-mcp-client", "conformance-approval", "conformance-clarification"} <= set(workflows.fixtures)


def test_a_workflow_with_a_node_type_that_nobody_knows_is_refused_with_its_name(tmp_path: Path) -> None:
    types = ("vendor.teleport", "vendor.dream", "vendor.teleport")
    write(tmp_path, "one.json", id="one", nodes=[node(f"n{at}", type_id) for at, type_id in enumerate(types)])
    workflows = read(tmp_path)
    with pytest.raises(HostError) as caught:
        workflows.get("one")
    assert code(caught) == ("capability_required", {"requiredCapability": "vendor.teleport"})
    assert workflows.workflow("one").unknown_types == ("vendor.teleport", "vendor.dream")


def test_a_fault_beside_a_node_type_that_is_not_there_is_told_when_the_host_starts(tmp_path: Path) -> None:
    edges = [{"id": "e", "sourceNodeId": "a", "targetNodeId": "z"}]
    write(tmp_path, "one.json", id="one", nodes=[node("a", "vendor.teleport")], edges=edges)
    assert len(faults(tmp_path)) == 2


def test_a_configurable_schema_that_is_none_is_told_when_the_host_starts(tmp_path: Path) -> None:
    file = write(tmp_path, "one.json", id="one", configurableSchema={"type": "nothing"})
    [told] = faults(tmp_path)
    assert told.startswith(f"{file}: configurableSchema: ")


def test_two_files_with_the_same_bytes_have_one_validator_and_others_another(tmp_path: Path) -> None:
    write(tmp_path / "a", "one.json", id="one")
    write(tmp_path / "b", "one.json", id="one")
    write(tmp_path / "c", "one.json", id="one", name="Other")
    etags = [read(tmp_path / name).workflow("one").etag for name in "abc"]
    assert etags[0] == etags[1] != etags[2]


def test_an_id_that_is_nearly_one_of_what_can_be_run_is_told_which(tmp_path: Path) -> None:
    write(tmp_path, "a.json", id="translate")
    write(tmp_path, "b.json", id="summarise", nodes=[node("a", "core.nope")])
    with pytest.raises(HostError) as caught:
        read(tmp_path).get("transalte")
    assert "did you mean 'translate'?" in caught.value.message
    with pytest.raises(HostError) as caught:
        read(tmp_path).get("sumarise")
    assert "did you mean" not in caught.value.message
    assert caught.value.message.endswith("; graphs are read when the host starts")


def test_what_runs_would_fail_with_is_told_by_file(tmp_path: Path) -> None:
    call = node("call", config={"serverId": "wether", "name": "t"})
    there = node("there", config={"serverId": "weather", "name": "t"})
    given = node(
        "given", config={"serverId": "wether", "name": "t"}, inputs={"serverId": {"type": "static", "value": "whether"}}
    )
    odd = write(tmp_path, "a.json", id="a", nodes=[node("a", "core.nop"), node("b", "acme.other")])
    lost = write(tmp_path, "b.json", id="b", nodes=[call, there, given])
    assert read(tmp_path, fixtures=True).doubts(["weather"]) == [
        f"{odd}: there is no node type 'core.nop' here, so that no run is created (did you mean 'core.noop'?)",
        f"{odd}: there is no node type 'acme.other' here, so that no run is created",
        f"{lost}: node 'call': config.serverId: the settings have no server 'wether' (did you mean 'weather'?)",
        # An input goes before the configuration.
        f"{lost}: node 'given': inputs.serverId: the settings have no server 'whether' (did you mean 'weather'?)",
    ]
