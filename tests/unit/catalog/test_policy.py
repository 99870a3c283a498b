"""What holds for a tool, and why a call of it is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp.catalog.policy import CLASSIFIED, Classification, Standing, effective, refusal, values
from openwop_mcp.config import Server

SAID = st.fixed_dictionaries({}, optional={field: st.sampled_from(values(name)) for name, field in CLASSIFIED.items()})
STANDINGS = st.builds(
    Standing,
    st.none() | st.just("f"),
    st.booleans(),
    st.none() | st.just("its name is empty"),
    st.none() | SAID.map(lambda said: Classification("f", "ann", 1, "", **said)),
    st.none() | st.sampled_from(values("approval")),
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        **{field: st.sampled_from(values(name)) for name, field in CLASSIFIED.items()},
        "on_doubt": st.sampled_from(["fail", "ask", "resend"]),
        "quarantine": st.booleans(),
    },
)


def server(**policy: Any) -> Server:
    return Server.model_validate({"url": "https://example.org/mcp", "tools": {"*": policy}})


@given(POLICIES)
def test_of_a_tool_that_no_catalog_knows_the_settings_alone_count(policy: dict[str, Any]) -> None:
    assert effective(server(**policy), "a", None) == server(**policy).policy("a")


@given(POLICIES, STANDINGS)
def test_a_classification_goes_before_the_settings_field_by_field(policy: dict[str, Any], standing: Standing) -> None:
    said = standing.classification.fields if standing.classification is not None else {}
    held = effective(server(**policy), "a", standing).model_dump()
    settings = server(**policy).policy("a").model_dump()
    wanted = {**settings, **said}
    if standing.drifted or standing.classification is None:
        strictness = ["never", "write", "always"]
        wanted["approval"] = max(settings["approval"], standing.approval or "never", key=strictness.index)
    if standing.drifted:
        wanted |= {"safety_tier": "write", "replay_policy": "non-deterministic", "egress": "host-mediated"}
        wanted["on_doubt"] = {"resend": "fail"}.get(wanted["on_doubt"], wanted["on_doubt"])
    assert held == wanted


@given(POLICIES, STANDINGS)
def test_a_drifted_tool_is_sent_again_only_where_its_server_honours_keys(
    policy: dict[str, Any], standing: Standing
) -> None:
    drifted = Standing("f", drifted=True, unusable=None, classification=standing.classification)
    assert not effective(server(**policy), "a", drifted).repeat_safe
    honouring = Server.model_validate({"url": "https://example.org/mcp", "honours_key": True, "tools": {"*": policy}})
    assert effective(honouring, "a", drifted).repeat_safe


@given(POLICIES, STANDINGS)
def test_a_call_is_refused_where_the_tool_is_unusable_or_drifted_in_quarantine(
    policy: dict[str, Any], standing: Standing
) -> None:
    held = effective(server(**policy), "a", standing)
    refused = standing.unusable is not None or (standing.drifted and policy.get("quarantine", False))
    told = refusal(held, standing)
    assert (told is not None) is refused
    assert told is None or "worker.py tools" in told
    assert refusal(held, None) is None


@given(SAID)
def test_a_classification_is_read_as_it_was_written(said: dict[str, Any]) -> None:
    classification = Classification("f" * 64, "ann", 1, "looked at it", **said)
    assert Classification.decode(classification.encode()) == classification
    assert classification.fields == said


@pytest.mark.parametrize("name", CLASSIFIED)
def test_the_values_of_a_classification_are_those_of_the_settings(name: str) -> None:
    for value in values(name):
        assert getattr(server(**{CLASSIFIED[name]: value}).policy("a"), CLASSIFIED[name]) == value
