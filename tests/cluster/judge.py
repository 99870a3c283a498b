"""The judgement of a cluster: what its clients were told of each run, held against what the server did. Pure.

The server honours keys and the settings say so, hence no call may be lost, doubled or in doubt, whoever was killed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from openwop_mcp import jsontext
from tests.chaos.judge import IN_DOUBT
from tests.cluster.counting_server import Seen
from tests.cluster.plan import TOOLS, WRITES, PlannedRun

__all__ = ("Told", "Verdict", "judge")

COMPLETED = "run.completed"

FAILED = frozenset({"run.failed", "run.cancelled"})


@dataclass(frozen=True)
class Told:
    """What the clients were told of a run.

    Attributes:
        planned: The run.
        ids: Its id, as each answer to its creation has it; none where there was no answer in time.
        followed: Its events as they came to whoever followed it, JSON texts; the last one is its end, if that came in
            time.
        logs: All its events, as each host tells them when all is over: the bodies of answers.
        ledgers: Its effects, likewise.
    """

    planned: PlannedRun
    ids: Sequence[str] = ()
    followed: Sequence[bytes] = ()
    logs: Sequence[bytes] = ()
    ledgers: Sequence[bytes] = ()


@dataclass
class Verdict:
    """What came out.

    Attributes:
        ends: How many runs ended how; by the type of their last event, or `lost`.
        acted: How often each tool acted.
        planned: How often it was to.
        repeats: Requests that the server knew by their key.
        doubts: Calls that are told to be in doubt.
        violations: What must not be, in words.
    """

    ends: Counter[str] = field(default_factory=Counter)
    acted: Counter[str] = field(default_factory=Counter)
    planned: Counter[str] = field(default_factory=Counter)
    repeats: int = 0
    doubts: int = 0
    violations: list[str] = field(default_factory=list)


def judge(told: Sequence[Told], listed: Sequence[str], seen: Iterable[Seen]) -> Verdict:
    """Hold all that was told against all that was done.

    Args:
        told: Of each run.
        listed: Ids of the runs that there are, as the hosts list them.
        seen: The calls at the server.
    """
    verdict = Verdict()
    requests: defaultdict[str, list[Seen]] = defaultdict(list)
    for request in seen:
        requests[request.effect].append(request)
    for one in told:
        verdict.violations += [f"run {one.planned.number} {wrong}" for wrong in _of_run(verdict, one, requests)]
    planned = {effect: tool for one in told for tool, effect in one.planned.effects.items()}
    verdict.planned = Counter(planned.values())
    verdict.violations += _of_server(verdict, planned, requests)
    verdict.violations += _of_list(told, listed)
    return verdict


def _of_run(verdict: Verdict, one: Told, requests: Mapping[str, Sequence[Seen]]) -> Iterator[str]:
    if len(set(one.ids)) != 1:
        yield f"was created as {sorted(set(one.ids))}" if one.ids else "was not created"
    events = [jsontext.decode(text) for text in one.followed]
    end = events[-1]["type"] if events else "lost"
    verdict.ends[end] += 1
    if end != COMPLETED:
        yield f"{'failed' if end in FAILED else 'did not end in time'}: {_story(events)}"
        return
    if [event["sequence"] for event in events] != list(range(len(events))):
        yield f"was told with gaps: {[event['sequence'] for event in events]}"
    if len(set(one.logs)) != 1:
        yield f"has {len(set(one.logs))} logs"
    elif _events(one.logs[0]) != [bytes(text) for text in one.followed]:
        yield "was told otherwise while it was under way than afterwards"
    verdict.doubts += sum(event["type"] == "node.failed" and IN_DOUBT in str(event) for event in events)
    for tool, effect in one.planned.effects.items():
        results = [_result(text) for text, event in zip(one.followed, events, strict=True) if _ends(event, tool)]
        if len(results) != 1 or results[0] is None:
            yield f"has {len(results)} ends of {tool}, {results}"
        elif results[0] not in {request.result for request in requests.get(effect, ())}:
            yield f"has a result of {tool} that was not sent, {results[0]!r}"
    yield from _of_ledger(one, requests)


def _of_ledger(one: Told, requests: Mapping[str, Sequence[Seen]]) -> Iterator[str]:
    if len(set(one.ledgers)) != 1:
        yield f"has {len(set(one.ledgers))} ledgers"
        return
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in jsontext.decode(one.ledgers[0])["effects"]:
        rows[row["nodeId"]].append(row)
    for tool, effect in one.planned.effects.items():
        mine, asked = rows[tool], requests.get(effect, ())
        if not mine or mine[-1]["state"] != "completed":
            yield f"has no completed {tool} in its ledger: {mine}"
        elif {row["providerKey"] for row in mine} != {request.key for request in asked}:
            yield f"has other keys of {tool} in its ledger than the server"
        elif len(asked) > len(mine):
            yield f"has {len(mine)} attempts at {tool} in its ledger, and the server {len(asked)} requests"
    if strange := rows.keys() - set(TOOLS):
        yield f"has {sorted(strange)} in its ledger"


def _of_server(verdict: Verdict, planned: Mapping[str, str], requests: Mapping[str, Sequence[Seen]]) -> Iterator[str]:
    whose: dict[str | None, str] = {}
    for effect, asked in requests.items():
        keys = {request.key for request in asked}
        if len(keys) > 1 or None in keys:
            yield f"{effect} was sent with the keys {keys}"
        yield from (f"{effect} and {whose[key]} have the key {key}" for key in keys if key in whose)
        whose.update(dict.fromkeys(keys, effect))
        if effect not in planned:
            yield f"{effect} was never asked for"
    for effect, tool in planned.items():
        asked = requests.get(effect, ())
        times = sum(request.acted for request in asked)
        verdict.acted[tool] += times
        verdict.repeats += len(asked) - times
        if times != 1 and (tool in WRITES or not times):
            yield f"{effect} happened {times} times"


def _of_list(told: Sequence[Told], listed: Sequence[str]) -> Iterator[str]:
    created = Counter(run_id for one in told for run_id in set(one.ids))
    yield from (f"{run_id} was told to be {times} runs" for run_id, times in created.items() if times > 1)
    counted = Counter(listed)
    yield from (f"{run_id} is listed {times} times" for run_id, times in counted.items() if times > 1)
    yield from (f"{run_id} was created, and nobody was told" for run_id in counted.keys() - created.keys())
    yield from (f"{run_id} is not listed" for run_id in created.keys() - counted.keys())


def _ends(event: Mapping[str, Any], tool: str) -> bool:
    return event.get("nodeId") == tool and event["type"] in {"node.completed", "node.failed", "node.skipped"}


def _result(event: bytes) -> str | None:
    """The result of a node that completed, byte for byte."""
    exact = jsontext.pointer(event, ["payload", "outputs", "result"])
    return None if exact is None else exact.decode()


def _events(page: bytes) -> list[bytes]:
    """The events of a page, byte for byte."""
    exact = jsontext.pointer(page, ["events"])
    return [] if exact is None else [bytes(event) for event in jsontext.elements(exact)]


def _story(events: Sequence[Mapping[str, Any]]) -> str:
    failed = [event for event in events if event["type"].endswith(".failed")]
    return f"{[event['type'] for event in events]} {failed}"
