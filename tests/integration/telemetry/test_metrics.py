"""Every metric of the table is measured, in a real worker, and Temporal's own beside them."""

from __future__ import annotations

from openwop_mcp.telemetry.instruments import INSTRUMENTS
from tests.integration.telemetry.conftest import Watched
from tests.support.host_process import path_of

CALL = "conformance-mcp-client"


def calling(name: str) -> dict[str, object]:
    return {"method": "callTool", "serverId": "fake", "name": name, "arguments": {}}


async def test_every_metric_of_the_table_arrives_as_it_is_described(watched: Watched) -> None:
    await watched.host.ended(CALL, calling("counted"))
    await watched.host.ended(CALL, calling("lost"))
    for instrument in INSTRUMENTS:
        points = await watched.collector.until(lambda heard, one=instrument: heard.points(one.name))
        assert {point.unit for point in points} == {instrument.unit}
        assert {key for point in points for key in point.attributes} <= set(instrument.attributes)


async def test_a_call_is_counted_by_what_came_of_it(watched: Watched) -> None:
    await watched.host.ended(CALL, calling("fails"))
    await watched.host.ended(CALL, calling("refuses"))

    async def outcome(name: str) -> dict[str, object]:
        [*_, last] = await watched.collector.until(
            lambda heard: heard.points("openwop_mcp.calls", gen_ai__tool__name=name)
        )
        return {key.removeprefix("openwop_mcp."): value for key, value in last.attributes.items()}

    about = {"server_id": "fake", "mcp.method.name": "tools/call", "delivery": "answered"}
    assert await outcome("fails") == about | {"gen_ai.tool.name": "fails", "outcome": "tool_error"}
    assert await outcome("refuses") == about | {
        "gen_ai.tool.name": "refuses",
        "outcome": "failed",
        "error.type": "mcp_error",
    }


async def test_an_attempt_that_found_no_room_is_counted_as_postponed_and_not_as_failed(watched: Watched) -> None:
    for _ in range(2):
        await watched.host.ended(CALL, {**calling("paced"), "serverId": "paced"})
    points = await watched.collector.until(
        lambda heard: heard.points("openwop_mcp.calls", gen_ai__tool__name="paced", openwop_mcp__outcome="postponed")
    )
    assert points[-1].attributes["error.type"] == "rate_limited"
    assert points[-1].attributes["openwop_mcp.delivery"] == "not_sent"
    found = watched.collector.points("openwop_mcp.calls", gen_ai__tool__name="paced")
    assert {point.attributes["openwop_mcp.outcome"] for point in found} == {"result", "postponed"}


async def test_an_effect_in_doubt_is_counted(watched: Watched) -> None:
    await watched.host.ended(CALL, calling("lost"))
    found = await watched.collector.until(
        lambda heard: heard.points("openwop_mcp.calls.in_doubt", gen_ai__tool__name="lost")
    )
    assert found[-1].value >= 1


async def test_a_question_is_told_while_it_waits_and_no_longer(watched: Watched) -> None:
    def told(number: int) -> object:
        return lambda heard: [*heard.points("openwop_mcp.interrupts.waiting")][-1:][0].value == number

    await watched.collector.until(lambda heard: heard.points("openwop_mcp.interrupts.waiting"))
    run_id = await watched.host.create("conformance-clarification")
    await watched.host.until(run_id, "interrupt.requested")
    await watched.collector.until(told(1))
    answer = await watched.host.http.post(
        f"{path_of(run_id)}/interrupts/ask", json={"resumeValue": {"answers": {"q1": "blue"}}}
    )
    assert answer.status_code == 200, answer.text
    await watched.collector.until(told(0))


async def test_temporals_own_metrics_come_with_the_same_name(watched: Watched) -> None:
    points = await watched.collector.until(lambda heard: heard.points("temporal_workflow_completed"))
    own = await watched.collector.until(lambda heard: heard.points("openwop_mcp.calls"))
    same = ("service.name", "service.version", "service.instance.id")
    ids = {tuple(point.resource[key] for key in same) for point in own}
    assert {tuple(point.resource[key] for key in same) for point in points} & ids
    assert {point.resource["service.name"] for point in points} == {"openwop-mcp"}
