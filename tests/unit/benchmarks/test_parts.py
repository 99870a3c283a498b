"""What the parts of the benchmarks make of what they measure, and what they run."""

from __future__ import annotations

import inspect
import json
from importlib import import_module

import pytest

from benchmarks.loads import bare_calls_graph, calls_graph, chain, give_graph, load_of
from benchmarks.measure import percentile
from benchmarks.offering import Offering
from benchmarks.parts import load
from benchmarks.programs import ROOT
from benchmarks.untold import REPLACED
from benchmarks.variants import GRAPHS, VARIANTS
from benchmarks.variants import load as load_variant
from openwop_mcp.nodes import REGISTRY
from openwop_mcp.runs.definition import parse


def body_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_growth_tells_by_what_ten_and_a_hundred_times_as_much_multiply_the_cost():
    rows = [{"name": "runs", "sizes": [10, 100, 1000], "ms": [2.0, 20.0, 2000.0]}]
    assert body_of(load("growth").tables({"rows": rows})) == [["runs", "2.00", "10.0", "1,000.0", "100.0"]]


def test_growth_leaves_out_a_factor_of_what_cost_nothing_that_could_be_told():
    rows = [{"name": "runs", "sizes": [10, 100], "ms": [0.0, 10.0]}]
    assert body_of(load("growth").tables({"rows": rows})) == [["runs", "0.00", "", "", ""]]


def test_memory_tells_what_each_run_took_up_since_the_row_before():
    rows = [
        {"name": "at the beginning", "runs": 0, "worker": 100.0, "host": 90.0, "temporal": 200.0},
        {"name": "1,000 more", "runs": 1000, "worker": 150.0, "host": 90.0, "temporal": 230.0},
    ]
    assert body_of(load("memory").tables({"rows": rows})) == [
        ["at the beginning", "100", "90", "200", "", "", ""],
        ["1,000 more", "150", "90", "230", "50", "0", "30"],
    ]


def test_telemetry_is_held_against_the_worker_that_has_no_code_for_it():
    found = {"without the code for it": [2.0, 4.0, 3.0], "no exporter": [3.0, 3.3, 2.9]}
    table = load("telemetry").tables({"cpuMs": {"calls at once": found}})
    assert table.splitlines()[0] == "### 100 calls at once"
    assert body_of("\n".join(table.splitlines()[2:])) == [
        ["without the code for it", "3.00", "1.000", "2.00", "4.00"],
        ["no exporter", "3.00", "1.000", "2.90", "3.30"],
    ]


def test_compression_tells_the_ratio_of_none_to_gzip_and_to_the_peer_and_nothing_where_a_number_is_unknown():
    one = {"cpu_ms": 2.0, "temporal_ms": 4.0, "p50_ms": 5.0, "kilobytes": 0.0}
    half = {name: value / 2 for name, value in one.items()}
    ways = {f"{variant} {way}": one if way == "gzip" else half for variant in VARIANTS for way in ("gzip", "none")}
    rows = body_of("\n".join(load("compression").tables({"medians": {"shape": ways}}).splitlines()[2:]))
    assert [row[1:] for row in rows if row[0] == "ratio none/gzip"] == [["0.50", "0.50", "0.50", ""]] * 5
    held = {row[0]: row[1:] for row in rows if "/peer" in row[0]}
    assert len(held) == 4 * 2
    assert held["ratio graph/peer: none"] == ["1.00", "1.00", "1.00", ""]


@pytest.mark.parametrize(("module", "name", "instead"), REPLACED)
def test_what_is_cut_out_of_a_worker_is_there_and_takes_what_it_is_given(module, name, instead):
    there = getattr(import_module(module), name)
    given = inspect.signature(there)
    arguments = [one for one in given.parameters.values() if one.default is one.empty]
    by_name = {one.name: None for one in arguments if one.kind is one.KEYWORD_ONLY}
    inspect.signature(instead).bind(*(None for one in arguments if one.kind is not one.KEYWORD_ONLY), **by_name)
    missing = {attribute for attribute in vars(there) if not attribute.startswith("_")} - set(dir(instead))
    # A caller asks for more than this only of a request that somebody wants to know of.
    assert missing <= {"answered"} if inspect.isclass(there) else not missing


@pytest.mark.parametrize(("calls", "lanes", "edges"), [(3, 3, 0), (3, 1, 2), (6, 2, 4)])
def test_calls_are_made_in_as_many_chains_as_are_asked_for(calls, lanes, edges):
    definition = parse(calls_graph(calls, lanes), source="test", node_types=REGISTRY)
    assert len(json.loads(definition.raw)["nodes"]) == calls
    assert len(json.loads(definition.raw)["edges"]) == edges


@pytest.mark.parametrize("definition", [give_graph(10), chain("waits", [("core.delay", {"delayMs": 1})] * 2)])
def test_a_graph_of_the_benchmarks_is_a_definition(definition):
    parse(definition, source="test", node_types=REGISTRY)


def test_a_history_of_the_benchmarks_comes_from_a_definition_that_is_not_too_large():
    from benchmarks.parts.projection import CALLS, LANES

    parse(bare_calls_graph(max(CALLS.values()), LANES), source="test", node_types=REGISTRY)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_has_a_module_and_a_load(name):
    assert callable(load_variant(name))
    assert (load_of(name).run is load_of("graph").run) is (name in GRAPHS)


def test_a_percentile_is_one_of_the_values():
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.99) == 4.0


def ask(offering: Offering, method: str, **params: object) -> dict[str, object]:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    _, answer = offering._answer("/mcp", "", body)
    found: dict[str, object] = json.loads(answer)
    return found


def names_and_texts(offering: Offering) -> dict[str, str]:
    found: dict[str, str] = {}
    cursor: dict[str, str] = {}
    while True:
        page = json.loads(json.dumps(ask(offering, "tools/list", **cursor)["result"]))
        found |= {tool["name"]: tool["description"] for tool in page["tools"]}
        if "nextCursor" not in page:
            return found
        cursor = {"cursor": page["nextCursor"]}


def test_the_server_has_as_many_tools_as_it_is_told_and_changes_as_many():
    offering = Offering()
    offering._answer("/offer", "tools=250", b"")
    before = names_and_texts(offering)
    assert len(before) == 250
    offering._answer("/offer", "changed=3", b"")
    after = names_and_texts(offering)
    assert [name for name in before if before[name] != after[name]] == ["tool_0", "tool_1", "tool_2"]


def test_a_result_of_the_server_is_as_long_as_it_is_told():
    result = json.loads(json.dumps(ask(Offering(), "tools/call", name="give", arguments={"bytes": 1000})["result"]))
    assert result["content"][0]["text"] == "x" * 1000


def test_every_part_is_explained_where_the_benchmarks_are():
    from benchmarks.parts import PARTS

    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert [name for name in PARTS if f"| `{name}` |" not in text] == []
