"""What a workflow's own schema makes of a run's ``configurable``."""

from __future__ import annotations

import pytest

from host import configurable
from host.errors import HostError

SCHEMA = b"""{
  "type": "object",
  "required": ["version"],
  "properties": {"run": {"properties": {"recursionLimit": {"maximum": 5}}}, "a/b~c": {"type": "string"}}
}"""


def refused(schema: bytes, text: bytes | None) -> HostError:
    with pytest.raises(HostError) as caught:
        configurable.check_by(schema, text)
    assert caught.value.code == "validation_error"
    return caught.value


@pytest.mark.parametrize("text", [b'{"version":1}', b'{"version":1,"run":{"recursionLimit":5}}'])
def test_what_the_schema_admits_is_taken(text: bytes) -> None:
    configurable.check_by(SCHEMA, text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b'{"version":1,"run":{"recursionLimit":6}}', "configurable.run.recursionLimit"),
        (b"{}", "configurable"),
        (b'{"version":1,"a/b~c":1}', "configurable.a/b~c"),
    ],
)
def test_what_it_does_not_admit_is_refused_with_its_place(text: bytes, field: str) -> None:
    assert refused(SCHEMA, text).details == {"field": field}


def test_no_configurable_is_to_the_schema_as_an_empty_one() -> None:
    assert refused(SCHEMA, None).details == {"field": "configurable"}
    configurable.check_by(b'{"properties":{"version":{"const":2}}}', None)


def test_a_refusal_repeats_no_value() -> None:
    error = refused(b'{"properties":{"version":{"const":2}}}', b'{"version":"s3cret"}')
    assert b"s3cret" not in error.envelope


def test_what_cannot_be_checked_is_refused() -> None:
    refused(b'{"type":"nothing"}', b"{}")


def test_a_configurable_that_would_come_back_with_every_snapshot_has_a_bound() -> None:
    fits = b'{"version":1,"extensions":{"acme":{"note":"%b"}}}'
    configurable.check(fits % (b"x" * (configurable.MAX_BYTES - len(fits) + 2)))
    with pytest.raises(HostError) as caught:
        configurable.check(fits % (b"x" * (configurable.MAX_BYTES - len(fits) + 3)))
    assert caught.value.details == {"field": "configurable"}
