"""Two workers and two hosts, of which one each is killed; `make cluster` makes more runs and shows more."""

from __future__ import annotations

import pytest

from tests.cluster import cluster

RUNS = 30


@pytest.mark.timeout(600)
async def test_nothing_is_lost_or_doubled_when_a_worker_and_a_host_are_killed() -> None:
    done = await cluster.run(RUNS)
    assert done.violations == []
    assert done.killed == ["host-1", "worker-1"]
    # The worker had a call that acts, which another one made again, and which the server knew.
    assert done.caught > 0
    assert done.verdict.repeats > 0
    assert done.cut["events"] > 0
    assert done.repeated >= RUNS
    assert done.verdict.ends == {"run.completed": RUNS}
