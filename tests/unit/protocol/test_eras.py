"""The era of a server, by what it answered: any answer has a verdict, and none of an outage's is one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.protocol import eras, messages
from openwop_mcp.protocol.eras import Answered, Verdict, judge
from openwop_mcp.protocol.revisions import LEGACY, MODERN

STATUSES = st.none() | st.integers(-1, 1000) | st.sampled_from([200, 400, 404, *sorted(eras.NO_EVIDENCE)])
CODES = (
    st.none()
    | st.integers()
    | st.sampled_from([*sorted(eras.RECOGNISED), -32700, -32603, -32602, -32601, -32600, -32000])
)
REVISIONS = st.sampled_from([MODERN, *LEGACY, "2099-01-01", ""]) | st.text()
ANSWERS = st.builds(
    Answered,
    status=STATUSES,
    code=CODES,
    result=st.booleans(),
    offered=st.none() | st.lists(REVISIONS, max_size=4),
)


@given(ANSWERS, st.booleans())
def test_every_answer_has_one_of_three_verdicts(answered: Answered, probe: bool) -> None:
    assert judge(answered, probe=probe) in ("modern", "legacy", "none")


@given(ANSWERS, st.booleans())
def test_no_outage_and_nothing_that_wants_something_else_first_is_taken_for_an_older_era(
    answered: Answered, probe: bool
) -> None:
    if answered.result or answered.status is None:
        return
    if answered.status in eras.NO_EVIDENCE or not 200 <= answered.status < 500:
        assert judge(answered, probe=probe) != "legacy"


@given(ANSWERS, st.booleans(), st.sampled_from(sorted(eras.RECOGNISED)))
def test_a_recognised_error_is_a_modern_servers_whatever_else_there_is(
    answered: Answered, probe: bool, code: int
) -> None:
    found = Answered(answered.status, code, offered=answered.offered)
    assert judge(found, probe=probe) == "modern"


@given(STATUSES, st.none() | st.lists(REVISIONS, max_size=4))
def test_a_result_is_of_the_era_that_it_names_where_it_must_name_one(
    status: int | None, offered: list[str] | None
) -> None:
    answered = Answered(status, result=True, offered=offered)
    assert judge(answered, probe=True) == ("modern" if MODERN in (offered or []) else "legacy")
    assert judge(answered, probe=False) == "modern"


@given(ANSWERS)
def test_an_error_to_another_method_says_no_more_than_one_to_the_probe(answered: Answered) -> None:
    said = judge(replace(answered, result=False), probe=False)
    assert said in ("none", judge(replace(answered, result=False), probe=True))


@given(ANSWERS)
def test_only_http_can_refuse_a_revision_outside_a_probe(answered: Answered) -> None:
    if not answered.result and judge(answered, probe=False) == "legacy":
        assert answered.status in range(400, 500)


@pytest.mark.parametrize(
    ("status", "code", "probe", "other"),
    [
        # Over stdio any error to the probe is an older server's (MCP 2026-07-28, stdio, backward compatibility).
        (None, messages.METHOD_NOT_FOUND, "legacy", "none"),
        (None, messages.INVALID_PARAMS, "legacy", "none"),
        (None, -32000, "legacy", "none"),
        (None, messages.UNSUPPORTED_REVISION, "modern", "modern"),
        (None, None, "none", "none"),
        # Over HTTP (Streamable HTTP, backward compatibility).
        (200, messages.METHOD_NOT_FOUND, "legacy", "none"),
        (200, None, "none", "none"),
        (400, None, "legacy", "legacy"),
        (400, -32000, "legacy", "legacy"),
        (400, -32600, "legacy", "legacy"),
        (400, messages.INVALID_PARAMS, "legacy", "none"),
        (400, messages.HEADER_MISMATCH, "modern", "modern"),
        (404, None, "legacy", "legacy"),
        (404, messages.METHOD_NOT_FOUND, "modern", "modern"),
        (405, None, "legacy", "legacy"),
        (406, None, "legacy", "legacy"),
        (401, -32000, "none", "none"),
        (403, None, "none", "none"),
        (408, None, "none", "none"),
        (421, None, "none", "none"),
        (429, -32600, "none", "none"),
        (500, -32601, "none", "none"),
        (503, None, "none", "none"),
        (307, None, "none", "none"),
    ],
)
def test_an_answer_is_judged_as_the_protocol_says(
    status: int | None, code: int | None, probe: Verdict, other: Verdict
) -> None:
    answered = Answered(status, code)
    assert (judge(answered, probe=True), judge(answered, probe=False)) == (probe, other)
