"""The circuit: it opens after failures in a row, lets one call through after its rest, and closes by that alone."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from openwop_mcp.traffic import Circuit

FAILURES, REST = 3, 10.0


def opened(at: float = 0.0) -> Circuit:
    circuit = Circuit(FAILURES, REST)
    assert [circuit.unconnected(at, probe=False) for _ in range(FAILURES)] == [False, False, True]
    return circuit


def test_it_opens_after_so_many_failures_and_no_call_goes_until_its_rest_is_over() -> None:
    circuit = opened(at=100.0)
    assert circuit.state == "open"
    assert circuit.wait(104.0) == 6.0
    assert circuit.wait(110.0) == 0.0


def test_a_connection_in_between_has_the_count_begin_anew() -> None:
    circuit = Circuit(FAILURES, REST)
    for _ in range(5):
        for _ in range(FAILURES - 1):
            assert not circuit.unconnected(0.0, probe=False)
        assert not circuit.connected(probe=False)
    assert circuit.state == "closed"


def test_one_call_probes_and_the_others_wait_for_it() -> None:
    circuit = opened()
    assert circuit.begin()
    assert circuit.state == "probing"
    assert circuit.wait(1_000.0) is None
    assert circuit.connected(probe=True)
    assert circuit.state == "closed"
    assert circuit.failed == 0
    assert not circuit.begin()


def test_a_probe_without_a_connection_has_it_rest_again_and_tells_nothing_new() -> None:
    circuit = opened()
    circuit.begin()
    assert not circuit.unconnected(50.0, probe=True)
    assert circuit.state == "open"
    assert circuit.wait(50.0) == REST


def test_a_probe_that_was_given_up_leaves_the_next_call_to_probe() -> None:
    circuit = opened()
    circuit.begin()
    circuit.given_up(probe=True)
    assert circuit.wait(REST) == 0.0
    assert circuit.begin()


def test_what_began_before_it_opened_neither_closes_it_nor_has_it_rest_for_longer() -> None:
    circuit = opened()
    assert not circuit.connected(probe=False)
    assert not circuit.unconnected(9.0, probe=False)
    assert circuit.state == "open"
    assert circuit.wait(9.0) == 1.0
    circuit.begin()
    assert not circuit.connected(probe=False)
    circuit.given_up(probe=False)
    assert circuit.state == "probing"


def test_none_never_opens() -> None:
    circuit = Circuit(0, REST)
    assert not any(circuit.unconnected(0.0, probe=False) for _ in range(1_000))
    assert circuit.state == "closed"


class Outage(RuleBasedStateMachine):
    """Calls of a server that comes and goes, by any order of their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.circuit = Circuit(FAILURES, REST)
        self.now = 0.0
        self.flying: list[bool] = []
        self.opened_at = 0.0

    @rule(seconds=st.floats(0, 2 * REST))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def call(self) -> None:
        if self.circuit.wait(self.now) == 0:
            self.flying.append(self.circuit.begin())

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), how=st.sampled_from(["connected", "unconnected", "given_up"]))
    def end(self, data: st.DataObject, how: str) -> None:
        probe = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        before = self.circuit.state
        match how:
            case "connected":
                assert self.circuit.connected(probe=probe) == (before != "closed" and probe)
            case "unconnected":
                told = self.circuit.unconnected(self.now, probe=probe)
                assert told == (before == "closed" and self.circuit.state == "open")
                if told or (probe and self.circuit.state == "open"):
                    self.opened_at = self.now
            case _:
                self.circuit.given_up(probe=probe)

    @invariant()
    def one_probes_at_most(self) -> None:
        assert sum(self.flying) <= 1
        assert (self.circuit.state == "probing") == any(self.flying)

    @invariant()
    def it_rests_for_as_long_as_it_is_to(self) -> None:
        wait = self.circuit.wait(self.now)
        if self.circuit.state == "open":
            assert wait is not None
            assert abs(wait - max(0.0, self.opened_at + REST - self.now)) < 1e-9
        assert self.circuit.state == "closed" or self.circuit.failed >= FAILURES


Outage.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestOutage = Outage.TestCase
