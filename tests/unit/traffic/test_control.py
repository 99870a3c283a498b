"""Who may call: counts that come back to nothing, limits that hold, and in which order they are looked at."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from openwop_mcp.traffic import Full, Pass, ServerLimits, Traffic


def passed(given: Pass | Full) -> Pass:
    assert isinstance(given, Pass)
    return given


def test_calls_under_way_are_bounded_by_server() -> None:
    traffic = Traffic({"a": ServerLimits(in_flight=2), "b": ServerLimits()})
    first = passed(traffic.enter("a", "t", 0.0))
    passed(traffic.enter("a", "u", 0.0))
    assert traffic.enter("a", "t", 0.0) == Full("in_flight", count=2)
    passed(traffic.enter("b", "t", 0.0))
    traffic.leave(first, "connected", 0.0)
    passed(traffic.enter("a", "t", 0.0))


def test_calls_under_way_are_bounded_by_tenant_over_all_servers() -> None:
    traffic = Traffic({"a": ServerLimits(), "b": ServerLimits()}, tenant_limit=2)
    first = passed(traffic.enter("a", "t", 0.0))
    passed(traffic.enter("b", "t", 0.0))
    assert traffic.enter("b", "t", 0.0) == Full("tenant", count=2)
    passed(traffic.enter("b", "u", 0.0))
    traffic.leave(first, "unknown", 0.0)
    passed(traffic.enter("b", "t", 0.0))


def test_a_call_that_something_else_keeps_does_not_use_up_the_pace() -> None:
    traffic = Traffic({"a": ServerLimits(in_flight=1, rate=1, burst=2)})
    first = passed(traffic.enter("a", "t", 0.0))
    for _ in range(9):
        assert traffic.enter("a", "t", 0.0) == Full("in_flight", count=1)
    traffic.leave(first, "connected", 0.0)
    second = passed(traffic.enter("a", "t", 0.0))
    traffic.leave(second, "connected", 0.0)
    assert traffic.enter("a", "t", 0.0) == Full("rate", 1.0)


def test_a_server_is_left_alone_for_as_long_as_the_longest_that_it_said() -> None:
    traffic = Traffic({"a": ServerLimits(), "b": ServerLimits()})
    traffic.leave_alone("a", 5.0, 0.0)
    traffic.leave_alone("a", 2.0, 1.0)
    assert traffic.enter("a", "t", 2.0) == Full("retry_after", 3.0)
    passed(traffic.enter("b", "t", 2.0))
    passed(traffic.enter("a", "t", 5.0))


def test_connections_that_failed_open_the_circuit_and_the_probe_closes_it() -> None:
    traffic = Traffic({"a": ServerLimits(failures=2, rest=10.0)})
    flying = [passed(traffic.enter("a", "t", 0.0)) for _ in range(3)]
    assert [traffic.leave(one, "unconnected", 0.0) for one in flying] == [False, True, False]
    assert traffic.enter("a", "t", 4.0) == Full("circuit", 6.0, 2)
    probe = passed(traffic.enter("a", "t", 10.0))
    assert probe.probe
    assert traffic.enter("a", "t", 10.0) == Full("circuit", None, 2)
    assert traffic.leave(probe, "connected", 11.0)
    assert not passed(traffic.enter("a", "t", 11.0)).probe


def test_what_asks_whether_a_server_is_there_closes_its_circuit() -> None:
    traffic = Traffic({"a": ServerLimits(failures=1, rest=10.0)})
    traffic.leave(passed(traffic.enter("a", "t", 0.0)), "unconnected", 0.0)
    assert traffic.heard("a", 1.0)
    passed(traffic.enter("a", "t", 1.0))
    assert not traffic.heard("a", 1.0)


def test_who_is_sent_away_is_counted_and_told_when_to_come_if_that_is_known() -> None:
    traffic = Traffic({"a": ServerLimits(rate=1, burst=1, in_flight=5)})
    traffic.leave(passed(traffic.enter("a", "t", 0.0)), "connected", 0.0)
    full = traffic.enter("a", "t", 0.0)
    assert isinstance(full, Full)
    assert [traffic.send_away("a", full, 0.0) for _ in range(3)] == [pytest.approx(n) for n in (2.0, 3.0, 4.0)]
    assert traffic.send_away("a", Full("in_flight"), 0.0) is None
    assert [(one.server_id, one.in_flight, one.postponed, one.circuit) for one in traffic.snapshot()] == [
        ("a", 0, 4, "closed")
    ]


LIMITS = {"a": ServerLimits(in_flight=2), "b": ServerLimits(rate=5, burst=3), "c": ServerLimits(failures=2, rest=3.0)}
TENANT = 3


class Calls(RuleBasedStateMachine):
    """Calls that come and go in any order: the counts are those of a plain list, and no limit is passed."""

    def __init__(self) -> None:
        super().__init__()
        self.traffic = Traffic(LIMITS, TENANT)
        self.now = 0.0
        self.flying: list[Pass] = []

    @rule(seconds=st.floats(0, 5))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule(server_id=st.sampled_from("abc"), tenant=st.sampled_from("xyz"))
    def enter(self, server_id: str, tenant: str) -> None:
        given = self.traffic.enter(server_id, tenant, self.now)
        if isinstance(given, Pass):
            self.flying.append(given)
        elif given.reason == "in_flight":
            assert sum(one.server_id == server_id for one in self.flying) == LIMITS[server_id].in_flight
        elif given.reason == "tenant":
            assert sum(one.tenant == tenant for one in self.flying) == TENANT

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), ending=st.sampled_from(["connected", "unconnected", "unknown"]))
    def leave(self, data: st.DataObject, ending: str) -> None:
        one = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        self.traffic.leave(one, ending, self.now)

    @invariant()
    def the_counts_are_those_of_the_calls(self) -> None:
        servers = Counter(one.server_id for one in self.flying)
        assert {one.server_id: one.in_flight for one in self.traffic.snapshot()} == {
            name: servers[name] for name in LIMITS
        }
        assert self.traffic._tenants == Counter(one.tenant for one in self.flying)
        assert servers["a"] <= 2
        assert max(self.traffic._tenants.values(), default=0) <= TENANT


Calls.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestCalls = Calls.TestCase
