"""The registry, and the files that are generated from it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from openwop_mcp.catalog import shapes
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.nodes.manifest import files

PACK = Path(__file__).parents[3] / "pack"


def test_the_manifest_and_the_schemas_on_disk_are_those_of_the_registry() -> None:
    on_disk = {
        str(path.relative_to(PACK)): path.read_bytes() for path in [PACK / "pack.json", *PACK.glob("schemas/*.json")]
    }
    assert on_disk == {**files(), **shapes.files()}, "run python -m openwop_mcp.nodes"


def test_every_published_schema_is_a_closed_json_schema() -> None:
    for path, text in files().items():
        if path != "pack.json":
            schema = json.loads(text)
            Draft202012Validator.check_schema(schema)
            assert schema["additionalProperties"] is False


def test_the_manifest_refers_to_schemas_that_exist() -> None:
    derived = files()
    for node in json.loads(derived["pack.json"])["nodes"]:
        assert {node["configSchemaRef"], node["inputSchemaRef"], node["outputSchemaRef"]} <= set(derived)


def test_an_absent_member_is_not_null_in_the_schemas_and_not_in_the_models() -> None:
    node_type = REGISTRY["community.mcp.list-tools"]
    assert node_type.inputs.model_validate({}).model_dump(exclude_unset=True) == {}
    assert node_type.inputs.model_validate({"cursor": ""}).model_dump(exclude_unset=True) == {"cursor": ""}
    with pytest.raises(ValidationError, match="cursor"):
        node_type.inputs.model_validate({"cursor": None})
    schema = json.loads(files()["schemas/community.mcp.list-tools.inputs.schema.json"])
    assert not Draft202012Validator(schema).is_valid({"cursor": None})


@pytest.mark.parametrize("type_id", REGISTRY)
def test_every_input_that_may_stand_in_the_config_is_known_on_both_sides(type_id: str) -> None:
    node_type = REGISTRY[type_id]
    names = {field.alias for model in (node_type.inputs, node_type.config) for field in model.model_fields.values()}
    assert {*node_type.either, *node_type.ambient} <= names


@pytest.mark.parametrize("type_id", REGISTRY)
def test_what_runs_as_an_activity_reaches_out_and_nothing_else_does(type_id: str) -> None:
    node_type = REGISTRY[type_id]
    assert (node_type.run == "activity") == (node_type.role == "side-effect")
