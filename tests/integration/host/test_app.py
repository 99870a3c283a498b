"""The application around the routes: what holds for every request, whatever it asks for."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import StreamingResponse
from temporalio.service import RPCError, RPCStatusCode

from host import app as application
from host import etags
from host.app import create_app
from host.context import Host
from host.errors import HostError
from host.limiting import KeyLimits
from host.web import caller, read_body
from host.workflows import FIXTURES
from openwop_mcp.logs import TextLines
from tests.support.hosts import asked, bearer, host

FIXTURE_SETTINGS = {"host": {"fixtures": True}}


def trying(own: Host) -> APIRouter:
    """Routes that end in all the ways in which one can."""
    router = APIRouter()

    @router.get("/boom")
    async def boom() -> None:
        raise RuntimeError("s3cret")

    @router.get("/away")
    async def away() -> None:
        raise RPCError("tcp connect error: 10.0.0.7:7233", RPCStatusCode.UNAVAILABLE, b"")

    @router.get("/number")
    async def number(n: int) -> int:
        return n

    @router.get("/stream")
    async def stream(cut: bool = False, gone: bool = False) -> StreamingResponse:
        async def frames() -> AsyncIterator[bytes]:
            yield b"data: 1\n\n"
            if cut:
                raise HostError("run_expired", "it is gone") if gone else RuntimeError("s3cret")
            yield b"data: 2\n\n"

        return StreamingResponse(frames(), media_type="text/event-stream")

    @router.get("/things/{thingId}", dependencies=[Depends(caller(own.authenticator, "runs:read"))])
    async def thing(request: Request) -> str:
        return request.path_params["thingId"]

    @router.post("/things/{thingId}:open")
    async def opened(request: Request) -> str:
        return f"opened {request.path_params['thingId']}"

    @router.post("/things", dependencies=[Depends(caller(own.authenticator, "runs:create"))])
    async def created(request: Request) -> int:
        return len(await read_body(request, most=100))

    return router


def app(settings: dict[str, Any] | None = None) -> FastAPI:
    own = host(settings)
    made = create_app(own)
    made.include_router(trying(own))
    return made


async def get(path: str, settings: dict[str, Any] | None = None, method: str = "GET", **headers: str) -> httpx.Response:
    async with asked(app(settings)) as client:
        return await client.request(method, path, headers=headers)


def envelope(response: httpx.Response) -> dict[str, Any]:
    told: dict[str, Any] = response.json()
    assert response.headers["content-type"] == "application/json"
    assert set(told) <= {"error", "message", "details"}
    return told


# --- the contract


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/.well-known/openwop", {}, 200),
        ("GET", "/.well-known/openwop", {"OpenWOP-Version": "2"}, 200),
        ("GET", "/.well-known/openwop", {"OpenWOP-Version": "3.0"}, 406),
        ("GET", "/openapi.json", {}, 200),
        ("GET", "/stream", {}, 200),
        ("GET", "/boom", {}, 500),
        ("GET", "/away", {}, 503),
        ("GET", "/number?n=x", {}, 400),
        ("GET", "/things/a", {}, 401),
        ("POST", "/things", bearer("acme-reads"), 403),
        ("POST", "/things", {**bearer("acme-all"), "Content-Type": "text/plain"}, 415),
        ("DELETE", "/things/a", {}, 404),
        ("GET", "/v1/runs", {}, 404),
        ("GET", "/prompts", {}, 404),
        ("OPTIONS", "/things", {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}, 404),
    ],
)
async def test_every_answer_names_the_contract_that_it_follows(method, path, headers, status):
    async with asked(app()) as client:
        answer = await client.request(method, path, headers=headers, content=b"x" if method == "POST" else None)
    assert (answer.status_code, answer.headers["openwop-version"]) == (status, "2.0")
    if status >= 400:
        envelope(answer)


async def test_an_answer_without_a_body_names_the_contract_too():
    etag = (await get("/.well-known/openwop")).headers["etag"]
    answer = await get("/.well-known/openwop", **{"If-None-Match": etag})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", etag)
    assert answer.headers["openwop-version"] == "2.0"


@pytest.mark.parametrize("asked_for", ["1", "1.1", "3", "latest", "", "2, 3"])
async def test_a_contract_that_is_not_served_is_refused_before_anything_else(asked_for):
    answer = await get("/things/a", **{"OpenWOP-Version": asked_for})
    assert answer.status_code == 406
    assert envelope(answer)["error"] == "protocol_version_unsupported"
    assert answer.json()["details"] == {"protocolVersions": ["2.0"]}


async def test_what_the_client_implements_chooses_nothing():
    assert (await get("/.well-known/openwop", **{"OpenWOP-Client-Version": "9.9"})).status_code == 200


# --- paths


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/things/acme~2Fabc", "acme~2Fabc"),
        ("/things/acme%2Fabc", "acme%2Fabc"),
        ("/things/acme%7E2Fabc", "acme~2Fabc"),
    ],
)
async def test_a_route_takes_the_segment_as_it_was_sent(path, seen):
    assert (await get(path, **bearer("acme-all"))).json() == seen


@pytest.mark.parametrize(
    "path", ["/things/acme~2Fabc:open", "/things/acme~2Fabc%3Aopen", "/things/acme~2Fabc%3aope%6E"]
)
async def test_an_operation_on_a_thing_is_found_however_its_colon_is_spelled(path):
    async with asked(app()) as client:
        assert (await client.post(path)).json() == "opened acme~2Fabc"


@pytest.mark.parametrize("path", ["/things/a/", "/things//", "//things/a", "/THINGS/a", "/.well-known/openwop/"])
async def test_a_path_that_is_spelled_otherwise_is_not_there_and_leads_nowhere(path):
    answer = await get(path, **bearer("acme-all"))
    assert answer.status_code == 404
    assert envelope(answer)["error"] == "not_found"


# --- refusals


async def test_a_fault_of_the_host_is_told_by_a_correlation_id_that_is_in_the_log_and_by_nothing_else(caplog):
    answer = await get("/boom")
    told = envelope(answer)
    assert (answer.status_code, told["error"]) == (500, "internal_error")
    assert "s3cret" not in answer.text
    assert "Traceback" not in answer.text
    identity = told["details"]["correlationId"]
    # A host of another test may warn meanwhile that it has no worker.
    [record] = [one for one in caplog.records if one.name == "openwop_mcp.host" and one.levelno >= logging.ERROR]
    assert identity in record.getMessage()
    assert record.exc_info is not None


async def test_where_temporal_does_not_answer_the_client_is_told_when_to_ask_again(caplog):
    answer = await get("/away")
    assert (answer.status_code, envelope(answer)["error"]) == (503, "service_unavailable")
    assert int(answer.headers["retry-after"]) > 0
    assert "10.0.0.7" not in answer.text
    assert "10.0.0.7" in caplog.text


async def test_no_key_is_told_before_anything_about_what_was_asked_for():
    for path in ("/things/a", "/workflows/conformance-noop", "/workflows/none"):
        answer = await get(path, FIXTURE_SETTINGS)
        assert (answer.status_code, envelope(answer)["error"]) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_a_missing_scope_is_named():
    answer = await get("/workflows/conformance-noop", FIXTURE_SETTINGS, **bearer("acme-reads"))
    assert (answer.status_code, envelope(answer)["error"]) == (403, "forbidden")
    assert answer.json()["details"] == {"missingScopes": ["manifest:read"]}


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/prompts"),
        ("POST", "/mcp"),
        ("GET", "/host/effect-seams"),
        ("POST", "/webhooks"),
        ("POST", "/runs/acme~2F0123456789abcdef:fork"),
    ],
)
async def test_an_operation_that_is_not_offered_is_not_found_with_and_without_a_key(method, path):
    for headers in ({}, bearer("acme-all")):
        answer = await get(path, method=method, **headers)
        assert (answer.status_code, envelope(answer)["error"]) == (404, "not_found")


async def test_no_preflight_is_granted():
    async with asked(app()) as client:
        answer = await client.options("/things", headers={"Origin": "https://a.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("gone", [False, True])
async def test_a_stream_that_breaks_is_cut_and_not_ended(gone, caplog):
    async with asked(app()) as client:
        messages = []

        async def send(message):
            messages.append(message)

        async def receive():
            # The client stays.
            return await asyncio.Event().wait()

        query = f"cut=true&gone={gone}"
        request = client.build_request("GET", f"/stream?{query}")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": "/stream", "raw_path": b"/stream", "query_string": query.encode(), "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers.raw],
            "server": ("host.test", 80), "client": ("127.0.0.1", 1),
        }  # fmt: skip
        await app()(scope, receive, send)
    assert messages[0]["status"] == 200
    assert messages[-1] == {"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True}
    assert ("it is gone" if gone else "s3cret") in caplog.text
    # A fault of the host is told with where it is, and nothing else is told as one.
    assert ("Traceback" in caplog.text) is not gone


# --- limits of a key


async def test_a_key_that_asks_for_too_much_is_told_so_and_others_are_served(monkeypatch):
    monkeypatch.setattr(application, "KeyLimits", functools.partial(KeyLimits, clock=lambda: 0.0))
    async with asked(app({"host": {"key_rate": 2}})) as client:
        answers = [await client.get("/things/a", headers=bearer("acme-all")) for _ in range(3)]
        other = await client.get("/things/a", headers=bearer("umbrella-all"))
        free = await client.get("/.well-known/openwop")
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert envelope(answers[2])["error"] == "rate_limited"
    assert int(answers[2].headers["retry-after"]) > 0
    assert (other.status_code, free.status_code) == (200, 200)


async def test_a_request_that_is_refused_gives_its_place_back():
    async with asked(app({"host": {"key_requests": 1}})) as client:
        for _ in range(3):
            answer = await client.post("/things", headers=bearer("acme-reads"))
            assert answer.status_code == 403


# --- the log


async def test_each_request_has_one_line_in_the_log_that_holds_no_key_no_id_and_nothing_that_was_sent(caplog):
    caplog.set_level(logging.INFO, "openwop_mcp.access")
    caplog.handler.setFormatter(TextLines())
    async with asked(app()) as client:
        await client.get("/things/t0ken?why=s3cret", headers=bearer("acme-all"))
        await client.post(
            "/things", headers={**bearer("acme-all"), "Content-Type": "application/json"}, content=b'"b0dy"'
        )
        await client.get("/nowhere/t0ken")
        await client.get("/boom")
    told = [line.partition(" openwop_mcp.access ")[2] for line in caplog.text.splitlines() if "_mcp.access " in line]
    assert [line.split(" ms ")[0].rsplit(" ", 1)[0] for line in told] == [
        "GET /things/{thingId} 200",
        "POST /things 200",
        "GET - 404",
        "GET /boom 500",
    ]
    assert re.search(r" ms tenant=acme request=[0-9a-f]{32} key=all$", told[0])
    assert re.search(r" ms request=[0-9a-f]{32}$", told[2])
    assert not [line for line in told for secret in ("acme-all", "t0ken", "s3cret", "b0dy") if secret in line]


# --- what the host says of itself


async def test_the_discovery_document_needs_no_key_and_claims_what_works_and_nothing_that_does_not():
    answer = await get("/.well-known/openwop", FIXTURE_SETTINGS)
    told = answer.json()
    families = {name for name, record in told.items() if isinstance(record, dict) and "witness" in record}
    assert families == {"auth", "eventLog", "idempotency", "interrupt", "limits", "mcp", "runList", "toolCatalog"}
    assert told["mcp"]["revisions"] == ["2026-07-28"]
    assert told["mcp"]["client"] is True
    assert told["eventLogSchemaVersion"] == 3
    assert {"conformance-approval", "conformance-clarification", "conformance-mcp-client"} <= set(told["fixtures"])
    assert answer.headers["etag"] == etags.of_bytes(answer.content)


async def test_without_fixtures_none_is_told():
    assert "fixtures" not in (await get("/.well-known/openwop")).json()


async def test_two_hosts_with_the_same_settings_say_the_same_of_themselves():
    assert (await get("/.well-known/openwop")).content == (await get("/.well-known/openwop")).content
    assert (await get("/openapi.json")).content == (await get("/openapi.json")).content


async def test_a_workflow_is_had_as_its_file_has_it():
    answer = await get("/workflows/conformance-approval", FIXTURE_SETTINGS, **bearer("acme-all"))
    assert answer.content == (FIXTURES / "conformance-approval.json").read_bytes()
    etag = answer.headers["etag"]
    again = await get(
        "/workflows/conformance-approval", FIXTURE_SETTINGS, **bearer("acme-all"), **{"If-None-Match": etag}
    )
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["none", "%2e%2e", "%00", "a%2Fb", "%C3%A9", "%zz", "x" * 2000])
async def test_a_workflow_that_is_not_there_is_not_found(name):
    answer = await get(f"/workflows/{name}", FIXTURE_SETTINGS, **bearer("acme-all"))
    assert (answer.status_code, envelope(answer)["error"]) == (404, "not_found")


# --- probes


async def test_probes_are_no_part_of_the_protocol():
    answer = await get("/healthz")
    assert (answer.status_code, answer.text) == (200, "ok\n")
    assert answer.headers["content-type"].startswith("text/plain")
    assert "openwop-version" not in answer.headers
    assert (await get("/healthz", **{"OpenWOP-Version": "9"})).status_code == 200


async def test_a_host_is_ready_while_temporal_answers_and_it_is_not_about_to_end(client, caplog):
    caplog.set_level(logging.INFO, "openwop_mcp.access")
    own = host(client=client)
    async with asked(create_app(own)) as browser:
        assert (await browser.get("/readyz")).status_code == 200
        own.stopping.set()
        answer = await browser.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "the host is about to end\n")
    assert "openwop-version" not in answer.headers
    assert [record for record in caplog.records if record.name == "openwop_mcp.access"] == []


# --- the OpenAPI document


async def test_the_openapi_document_describes_every_route_of_the_protocol_and_all_that_it_can_answer():
    own = host()
    made = create_app(own)
    async with asked(made) as client:
        told = json.loads((await client.get("/openapi.json")).content)
    assert told["openapi"].startswith("3.1")
    assert not {"/healthz", "/readyz"} & told["paths"].keys()
    operations = [operation for path in told["paths"].values() for operation in path.values()]
    identities = [operation["operationId"] for operation in operations]
    assert len(set(identities)) == len(identities)
    assert {"getCapabilities", "getOpenApiSpec", "getWorkflow"} <= set(identities)
    for operation in operations:
        statuses = set(operation["responses"])
        needs_key = operation.get("security") != []
        assert {"406", "429", "500", "503", *(("401", "403") if needs_key else ())} <= statuses
        assert all("description" in response for response in operation["responses"].values())
        for status, response in operation["responses"].items():
            if int(status) >= 400:
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Error"}


async def test_each_parameter_of_a_path_is_described():
    async with asked(create_app(host())) as client:
        told = (await client.get("/openapi.json")).json()
    for path, operations in told["paths"].items():
        named = {part.strip("{}") for part in path.split("/") if part.startswith("{") and part.endswith("}")}
        for operation in operations.values():
            assert named <= {one["name"] for one in operation["parameters"] if one["in"] == "path"}
