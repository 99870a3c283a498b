"""Definitions in folders."""

from __future__ import annotations

import pytest

from openwop_mcp.runs.definition import DefinitionError
from openwop_mcp.runs.single import single_call
from workflows.definitions import DefinitionNotFoundError, find_definition


def write(folder, name, identity, tool="b"):
    text, _ = single_call("a", tool, None, None)
    text = text.replace(b'"id":"call","name":"call', b'"id":"%b","name":"call' % identity)
    (folder / name).write_bytes(text)


def test_an_id_is_looked_for_in_the_folders_in_their_order(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write(tmp_path / folder, "x.json", b"flow", folder)
    write(tmp_path / "two", "y.json", b"other")
    folders = [tmp_path / "one", tmp_path / "two"]
    assert find_definition("flow", folders).name == "call a one"
    assert find_definition("other", folders).id == "other"


def test_a_file_is_read_by_its_path(tmp_path):
    write(tmp_path, "x.json", b"flow")
    assert find_definition(str(tmp_path / "x.json"), []).id == "flow"


def test_another_files_fault_does_not_stand_in_the_way_and_is_told_where_nothing_is_found(tmp_path):
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    write(tmp_path, "b.json", b"flow")
    assert find_definition("flow", [tmp_path]).id == "flow"
    with pytest.raises(DefinitionNotFoundError, match=r"a\.json"):
        find_definition("missing", [tmp_path])


def test_an_entry_that_cannot_be_read_does_not_stand_in_the_way_either(tmp_path):
    (tmp_path / "a.json").mkdir()
    write(tmp_path, "b.json", b"flow")
    assert find_definition("flow", [tmp_path]).id == "flow"
    with pytest.raises(DefinitionNotFoundError, match=r"a\.json"):
        find_definition("missing", [tmp_path])


def test_a_named_file_that_is_missing_or_unsound_is_told(tmp_path):
    (tmp_path / "a.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DefinitionNotFoundError, match=r"missing\.json"):
        find_definition(str(tmp_path / "missing.json"), [])
    with pytest.raises(DefinitionError, match=r"a\.json"):
        find_definition(str(tmp_path / "a.json"), [])


def test_without_folders_the_setting_is_named():
    with pytest.raises(DefinitionNotFoundError, match=r"host\.workflows"):
        find_definition("flow", [])
