"""One tree from the host's request to the server's own span, in real processes, with nothing in it to hide."""

from __future__ import annotations

import signal

from opentelemetry.proto.trace.v1.trace_pb2 import Span as Kind

from tests.integration.telemetry.conftest import SECRET, Watched, client_of
from tests.support.cli import cli, serving
from tests.support.collector import Collector, Span, collector
from tests.support.host_process import path_of

CALL = "conformance-mcp-client"
CLIENT, SERVER, ERROR = Kind.SPAN_KIND_CLIENT, Kind.SPAN_KIND_SERVER, 2
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def calling(server_id: str, name: str, **more: object) -> dict[str, object]:
    return {"method": "callTool", "serverId": server_id, "name": name, "arguments": {"city": "Bern"}, **more}


def whole(heard: Collector, span: Span) -> list[Span] | None:
    """What a span hangs on, up to what hangs on nothing: a span is sent when it ends, and those above it end later."""
    line = heard.above(span)
    return None if line[-1].parent_id else line


async def test_one_tree_goes_from_the_request_to_the_servers_own_span(watched: Watched) -> None:
    answer = await watched.host.http.post(
        "/runs",
        json={"workflowId": "flow"},
        headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "baggage": f"team={SECRET}"},
    )
    run_id = answer.json()["runId"]

    def own(heard: Collector) -> object:
        return [one for one in heard.spans if one.service == "sample-server" and one.trace_id == TRACE]

    [last] = await watched.collector.until(own)
    # Spans are sent when they end, by three processes.
    line = await watched.collector.until(lambda heard: (line := heard.above(last))[-1].name == "POST /runs" and line)
    assert [one.name for one in line] == [
        "tools/call get_forecast",
        "tools/call get_forecast",
        "RunActivity:community.mcp.call-tool",
        "StartActivity:community.mcp.call-tool",
        "RunWorkflow:RunWorkflow",
        "StartWorkflow:RunWorkflow",
        "POST /runs",
    ]
    assert line[-1].parent_id == "00f067aa0ba902b7"

    def ends(heard: Collector) -> object:
        return [one for one in heard.spans if one.name == "CompleteWorkflow:RunWorkflow" and one.trace_id == TRACE]

    [end] = await watched.collector.until(ends)
    assert watched.collector.above(end)[1].name == "RunWorkflow:RunWorkflow"
    theirs, ours, *_, request = line
    assert (theirs.service, theirs.kind) == ("sample-server", SERVER)
    assert (ours.service, ours.kind, request.kind) == ("openwop-mcp", CLIENT, SERVER)
    assert request.attributes == {
        "http.request.method": "POST",
        "url.scheme": "http",
        "http.route": "/runs",
        "http.response.status_code": 201,
    }
    about = dict(ours.attributes)
    assert about.pop("server.port") > 0
    assert about.pop("jsonrpc.request.id") == theirs.attributes["jsonrpc.request.id"]
    assert about.pop("openwop_mcp.effect_id")
    assert about == {
        "mcp.method.name": "tools/call",
        "mcp.protocol.version": "2026-07-28",
        "gen_ai.tool.name": "get_forecast",
        "gen_ai.operation.name": "execute_tool",
        "server.address": "127.0.0.1",
        "network.protocol.name": "http",
        "network.transport": "tcp",
        "openwop_mcp.server_id": "sample",
        "openwop_mcp.run_id": run_id,
        "openwop_mcp.node_id": "a",
        "openwop_mcp.attempt": 1,
        "openwop_mcp.delivery": "answered",
    }


async def test_the_server_is_told_of_the_trace_in_the_message_and_in_a_header(watched: Watched) -> None:
    await watched.host.ended(CALL, calling("fake", "plain"))
    [request] = [one for one in watched.server.requests if one.json.get("params", {}).get("name") == "plain"]
    told = request.json["params"]["_meta"]["traceparent"]
    assert request.header("traceparent") == told
    [span] = await watched.collector.until(lambda heard: heard.named("tools/call plain"))
    assert told.startswith(f"00-{span.trace_id}-{span.span_id}-")


async def test_a_request_that_is_refused_has_its_route_and_status_and_no_path(watched: Watched) -> None:
    run_id = f"acme/{'0' * 32}"
    assert (await watched.host.http.get(path_of(run_id))).status_code == 404
    assert (await watched.host.http.get(f"/{SECRET}?{SECRET}=1")).status_code == 404
    [known] = await watched.collector.until(lambda heard: heard.named("GET /runs/{runId}"))
    [unknown] = await watched.collector.until(lambda heard: heard.named("GET"))
    assert known.attributes["http.response.status_code"] == unknown.attributes["http.response.status_code"] == 404
    assert "http.route" not in unknown.attributes
    # It is the client's fault, and none of the host's.
    assert known.status != ERROR


async def test_what_watches_the_host_is_neither_traced_nor_measured(watched: Watched) -> None:
    assert (await watched.host.http.get("/healthz")).status_code in {200, 404}
    assert (await watched.host.http.get("/readyz")).status_code in {200, 404}
    # Spans come in their order.
    await watched.host.http.get("/runs")
    await watched.collector.until(lambda heard: heard.named("GET /runs"))
    assert not [span for span in watched.collector.spans if "http.route" in span.attributes and "z" in span.name[-2:]]


async def test_nothing_that_travels_is_told_of_it(watched: Watched) -> None:
    for name in ("refuses", "fails", "lost", "other", "done"):
        await watched.cli("call", "fake", name, "--args", f'{{"password": "{SECRET}"}}', "--key", f"{SECRET}-{name}")
    await watched.host.ended(CALL, calling("fake", "refuses", arguments={"password": SECRET}))
    await watched.host.ended(CALL, {"method": "readResource", "serverId": "fake", "uri": f"fake://{SECRET}"})
    codes = {"refuses": "mcp_error", "fails": "tool_error", "lost": "upstream_unavailable", "other": "mcp_error"}
    for name, code in codes.items():
        spans = await watched.collector.until(lambda heard, name=name: heard.named(f"tools/call {name}"))
        assert {span.attributes["error.type"] for span in spans} == {code}
        assert {(span.status, span.described) for span in spans} == {(ERROR, "")}
    [refused, *_] = watched.collector.named("tools/call refuses")
    assert refused.attributes["rpc.response.status_code"] == "-32602"
    [lost, *_] = watched.collector.named("tools/call lost")
    assert lost.attributes["openwop_mcp.delivery"] == "unknown"
    [read, *_] = await watched.collector.until(lambda heard: heard.named("resources/read"))
    assert "mcp.resource.uri" not in read.attributes
    # Temporal's interceptor notes the exception of the activity that failed: its class is what is left of it.
    failed = await watched.collector.until(
        lambda heard: [one for one in heard.spans if one.name.startswith("RunActivity:") and one.status == ERROR]
    )
    assert {one.attributes.get("error.type") for one in failed} >= {"mcp_error"}
    assert {key for one in failed for _, about in one.events for key in about} <= {"exception.type"}
    await watched.collector.until(lambda heard: heard.points("openwop_mcp.calls", gen_ai__tool__name="done"))
    assert not [body for body in watched.collector.bodies if SECRET.encode() in body]


async def test_a_call_that_others_share_hangs_on_whoever_asked_first(watched: Watched) -> None:
    for _ in range(2):
        done = await watched.cli("call", "fake", "booked", "--args", "{}", "--key", "order-7")
        assert done.status == 0, done.err
    [span] = await watched.collector.until(lambda heard: heard.named("tools/call booked"))
    line = await watched.collector.until(lambda heard: whole(heard, span))
    workflows = [one.name for one in line if one.name.startswith("RunWorkflow:")]
    assert len(workflows) == 2
    assert workflows[-1] == "RunWorkflow:RunWorkflow"


async def test_what_a_catalog_does_belongs_to_nobodys_request(watched: Watched) -> None:
    await watched.collector.until(lambda heard: heard.named("tools/list"))
    lists = [one for one in watched.collector.named("tools/list") if one.service == "openwop-mcp"]
    lines = [await watched.collector.until(lambda heard, one=one: whole(heard, one)) for one in lists]
    assert {line[-1].name for line in lines} == {"RunActivity:catalog.publish"}


async def test_without_an_exporter_nothing_is_traced_and_a_trace_goes_on_all_the_same(watched: Watched) -> None:
    async with serving("dev", "--config", str(watched.settings), TOKEN="t" * 20) as dev, client_of(dev) as http:
        for name, headers in (("untold", {}), ("told", {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})):
            asked = {"workflowId": CALL, "inputs": calling("fake", name)}
            answer = await http.post("/runs", json=asked, headers=headers)
            events = f"{path_of(answer.json()['runId'])}/events/poll?timeout=10"
            while not (await http.get(events)).json()["isTerminal"]:
                pass
    met = {one.json["params"]["name"]: one for one in watched.server.requests if "name" in one.json.get("params", {})}
    assert "traceparent" not in met["untold"].json["params"]["_meta"]
    assert met["untold"].header("traceparent") is None
    # Nobody has a span between the client's and the server's.
    assert met["told"].json["params"]["_meta"]["traceparent"] == f"00-{TRACE}-00f067aa0ba902b7-01"


async def test_each_attempt_of_a_run_that_was_begun_without_a_trace_begins_one(watched: Watched) -> None:
    address = watched.host.serving.facts["temporal"]
    done = await cli(
        "call", "again", "lost", "--args", "{}", "--config", str(watched.settings),
        OPENWOP_MCP__TEMPORAL__ADDRESS=address, TOKEN="t" * 20,
    )  # fmt: skip
    assert done.status == 1
    _, run_id = done.err.splitlines()[0].split()

    def attempts(heard: Collector) -> object:
        own = [one for one in heard.named("tools/call lost") if one.attributes.get("openwop_mcp.run_id") == run_id]
        return len(own) == 2 and own

    own = await watched.collector.until(attempts)
    assert len({one.trace_id for one in own}) == 2
    lines = [await watched.collector.until(lambda heard, one=one: whole(heard, one)) for one in own]
    assert {line[-1].name for line in lines} == {"RunActivity:community.mcp.call-tool"}


async def test_traces_can_be_read_on_standard_error(watched: Watched) -> None:
    address = watched.host.serving.facts["temporal"]
    done = await cli(
        "call", "fake", "shown", "--args", "{}", "--config", str(watched.settings),
        OPENWOP_MCP__TEMPORAL__ADDRESS=address, TOKEN="t" * 20, OTEL_TRACES_EXPORTER="console",
    )  # fmt: skip
    assert done.status == 0
    assert '"name": "StartWorkflow:' in done.err
    assert b'"name"' not in done.out


async def test_the_end_sends_what_is_left(watched: Watched) -> None:
    with collector() as heard:
        slowly = {**heard.environment, "OTEL_BSP_SCHEDULE_DELAY": "600000", "OTEL_METRIC_EXPORT_INTERVAL": "600000"}
        async with serving("dev", "--config", str(watched.settings), TOKEN="t" * 20, **slowly) as dev:
            async with client_of(dev) as http:
                await http.get("/runs")
            assert not heard.spans
            done = await dev.end(signal.SIGTERM)
        assert done.status == 0
        assert heard.named("GET /runs")
        assert heard.points("openwop_mcp.interrupts.waiting")
