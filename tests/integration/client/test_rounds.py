"""Questions before an answer: each round is the same request with another id, the answers, and the state as it came."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from openwop_mcp import jsontext
from openwop_mcp.client import CallOptions, McpClient
from openwop_mcp.client._conversation import MAX_ROUNDS
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import InvalidRequestError, MalformedAnswerError, TimeLimitError
from openwop_mcp.protocol.messages import FAULTS
from openwop_mcp.protocol.mrtr import Input
from tests.support.fake_server import Handler, Request, modern
from tests.support.legacy_server import LegacyServer
from tests.support.mcp_client import connected
from tests.support.patience import PATIENCE

EXACT = b'{"b":9007199254740993,"a": 1.10,"s":"\\u00e9 \xc3\xa9 \\ud800"}'
STATE = b'"e30=\\u0000 \xc3\xbc\\/"'
DONE = b'{"resultType":"complete","content":[],"contents":[],"messages":[]}'
QUESTION = b'{"method":"elicitation/create","params":{"message":"Which?","n":1.10}}'

ASKABLE: dict[str, Callable[[McpClient], Any]] = {
    "tools/call": lambda client: client.call_tool("t", EXACT),
    "prompts/get": lambda client: client.get_prompt("p", EXACT),
    "resources/read": lambda client: client.read_resource("fake://one"),
}
ELSEWHERE: dict[str, Callable[[McpClient], Any]] = {
    "tools/list": lambda client: client.list_tools(),
    "resources/list": lambda client: client.list_resources(),
    "resources/templates/list": lambda client: client.list_resource_templates(),
    "prompts/list": lambda client: client.list_prompts(),
    "completion/complete": lambda client: client.complete(b'{"ref":{},"argument":{}}'),
    "server/discover": lambda client: client.discover(),
}


class Person:
    """Answers questions, and keeps them."""

    def __init__(self, answer: bytes = b'{"action":"accept","content":{"n":1.10}}') -> None:
        self.asked: list[tuple[str, bytes]] = []
        self.answer = answer

    async def __call__(self, method: str, params: bytes) -> bytes:
        self.asked.append((method, params))
        return self.answer


def _rounds(*results: bytes) -> Handler:
    """Answers with each of these in turn, and with the last of them for ever."""
    left = list(results)

    def answer(_: Request) -> bytes:
        return left.pop(0) if len(left) > 1 else left[0]

    return modern(dict.fromkeys([*ASKABLE, *ELSEWHERE], answer))


def _input(requests: bytes | None = None, state: bytes | None = None) -> bytes:
    members = [("resultType", b'"input_required"')]
    members += [] if requests is None else [("inputRequests", requests)]
    members += [] if state is None else [("requestState", state)]
    return jsontext.build(members)


def _params(request: Request) -> dict[str, bytes]:
    found = jsontext.member(request.body, "params")
    assert found is not None
    return {name: value for name, value in jsontext.members(found) if name != "_meta"}


@pytest.mark.parametrize("method", ASKABLE)
async def test_a_repeat_is_the_request_with_the_answers_and_the_exact_state_and_the_next_has_what_it_was_asked(
    method: str,
) -> None:
    person = Person()
    handler = _rounds(_input(b'{"q":%b}' % QUESTION, STATE), _input(b'{"r":%b,"s":%b}' % (QUESTION, QUESTION)), DONE)
    async with connected(handler, options={"on_input": person}) as (client, server):
        assert (await ASKABLE[method](client)).result == DONE
        first, second, third = server.requests
    assert len({request.json["id"] for request in server.requests}) == 3
    base = _params(first)
    assert _params(second) == {**base, "inputResponses": b'{"q":%b}' % person.answer, "requestState": STATE}
    assert _params(third) == {**base, "inputResponses": b'{"r":%b,"s":%b}' % (person.answer, person.answer)}
    assert person.asked == [("elicitation/create", b'{"message":"Which?","n":1.10}')] * 3
    assert len({request.header("Mcp-Name") for request in server.requests}) == 1


async def test_a_state_alone_asks_nobody_and_goes_back() -> None:
    person = Person()
    async with connected(_rounds(_input(state=STATE), DONE), options={"on_input": person}) as (client, server):
        assert (await client.call_tool("t", EXACT)).result == DONE
        assert _params(server.requests[1]).get("requestState") == STATE
        assert "inputResponses" not in _params(server.requests[1])
    assert person.asked == []


@pytest.mark.parametrize("answer", [b'{"action":"decline"}', b'{"action":"cancel"}'])
async def test_a_refusal_is_sent_as_such_and_a_server_that_asks_for_ever_ends_at_the_ceiling(answer: bytes) -> None:
    assert MAX_ROUNDS == 10
    person = Person(answer)
    handler = _rounds(_input(b'{"q":%b}' % QUESTION, STATE))
    async with connected(handler, options={"on_input": person}) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.call_tool("t", EXACT)
        assert len(server.requests) == 1 + MAX_ROUNDS
        sent = {_params(request)["inputResponses"] for request in server.requests[1:]}
        assert sent == {b'{"q":%b}' % answer}
    assert len(person.asked) == MAX_ROUNDS
    error = caught.value
    assert error.fault == "endless_input_requests"
    assert error.fault in FAULTS
    assert (error.delivery, error.retryable) == (Delivery.ANSWERED, False)
    assert str(MAX_ROUNDS) in error.message


async def test_states_without_end_end_at_the_ceiling() -> None:
    async with connected(_rounds(_input(state=b'"s"')), options={"on_input": Person()}) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.call_tool("t", EXACT)
        assert len(server.requests) == 1 + MAX_ROUNDS
    assert caught.value.fault == "endless_input_requests"


async def test_the_answer_to_the_last_round_that_is_allowed_is_the_result() -> None:
    rounds = [_input(state=b'"s"')] * MAX_ROUNDS
    async with connected(_rounds(*rounds, DONE), options={"on_input": Person()}) as (client, server):
        assert (await client.call_tool("t", EXACT)).result == DONE
        assert len(server.requests) == 1 + MAX_ROUNDS


@pytest.mark.parametrize(
    "asked",
    [
        b'{"resultType":"input_required"}',
        _input(state=b"7"),
        _input(state=b"null"),
        _input(b"[]"),
        _input(b"null", b'"s"'),
        _input(b'{"q":{"method":"tools/call"}}'),
        _input(b'{"q":"elicitation/create"}', b'"s"'),
        b'{"resultType":"input_requir\\u0065d"}',
    ],
)
async def test_a_question_that_cannot_be_answered_is_final_and_asks_nobody(asked: bytes) -> None:
    person = Person()
    async with connected(_rounds(asked), options={"on_input": person}) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.call_tool("t", EXACT)
        assert len(server.requests) == 1
    error = caught.value
    assert error.fault == "invalid_input_request"
    assert error.fault in FAULTS
    assert (error.delivery, error.retryable) == (Delivery.ANSWERED, False)
    assert person.asked == []


@pytest.mark.parametrize("method", ELSEWHERE)
@pytest.mark.parametrize("askable", [True, False])
@pytest.mark.parametrize("asked", [_input(b'{"q":%b}' % QUESTION), _input(state=b'"s"'), _input()])
async def test_a_question_where_none_can_be_is_no_result_and_asks_nobody(
    method: str, askable: bool, asked: bytes
) -> None:
    person = Person()
    async with connected(_rounds(asked), options={"on_input": person} if askable else {}) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await ELSEWHERE[method](client)
        assert len(server.requests) == 1
    assert caught.value.fault == "unknown_result_type"
    assert caught.value.facts["excerpt"].startswith('{"jsonrpc"')
    assert person.asked == []


@pytest.mark.parametrize("method", [*ASKABLE, *ELSEWHERE])
@pytest.mark.parametrize(
    "kind", [b'"teleport"', b'"task"', b'"Complete"', b'""', b"null", b"7", b'["complete"]', b"{}"]
)
async def test_a_type_that_the_protocol_does_not_have_is_no_result_of_any_method(method: str, kind: bytes) -> None:
    result = b'{"resultType":%b,"content":[]}' % kind
    async with connected(_rounds(result)) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await {**ASKABLE, **ELSEWHERE}[method](client)
        assert len(server.requests) == 1
    assert (caught.value.fault, caught.value.delivery) == ("unknown_result_type", Delivery.UNKNOWN)
    assert result.decode() in caught.value.facts["excerpt"]


@pytest.mark.parametrize("method", [*ASKABLE, *ELSEWHERE])
@pytest.mark.parametrize(
    "result", [b'{"content":[]}', b'{"resultType":"complete"}', b'{"resultType":"c\\u006fmplete"}'], ids=str
)
async def test_a_result_without_a_type_is_complete(method: str, result: bytes) -> None:
    async with connected(_rounds(result)) as (client, _):
        assert (await {**ASKABLE, **ELSEWHERE}[method](client)).result == result


async def test_a_client_says_that_it_can_be_asked_only_if_it_can() -> None:
    key = "io.modelcontextprotocol/clientCapabilities"
    for options, declared in (({"on_input": Person()}, {"elicitation": {"form": {}}}), ({}, {})):
        async with connected(modern(), options=options) as (client, server):
            await client.call_tool("t", EXACT)
            assert server.requests[0].json["params"]["_meta"][key] == declared


async def test_rounds_share_the_total_limit_of_the_call() -> None:
    now = [0.0]

    async def slow_person(method: str, params: bytes) -> bytes:
        now[0] += PATIENCE - 2
        return b'{"action":"accept"}'

    async def never(request: Request) -> bytes:
        if "inputResponses" in request.json["params"]:
            await asyncio.Event().wait()
        return _input(b'{"q":%b}' % QUESTION)

    handler = modern({"tools/call": never})
    options = {"on_input": slow_person, "clock": lambda: now[0]}
    limits = dict.fromkeys(("first_byte", "idle", "total"), 2 * PATIENCE)
    async with connected(handler, options=options, **limits) as (client, _):
        # The second round would have twice as long, if it had as much of its own.
        async with asyncio.timeout(PATIENCE / 2):
            with pytest.raises(TimeLimitError) as caught:
                await client.call_tool("t", EXACT, CallOptions(timeout=PATIENCE))
    assert caught.value.limit == "total"


async def test_the_state_is_neither_logged_nor_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    secret = "st4te-of-the-server"
    handler = _rounds(_input(state=b'"%b"' % secret.encode()))
    async with connected(handler, options={"on_input": Person()}) as (client, _):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.call_tool("t", EXACT)
    assert secret not in f"{caught.value} {caught.value.facts} {caplog.text}"


SUSPENDS = CallOptions(suspends=True)
FORM = b'{"method":"elicitation/create","params":{"message":"Which?","requestedSchema":{},"n":1.10}}'
GOES_ON: dict[str, Callable[[McpClient, CallOptions], Any]] = {
    "tools/call": lambda client, options: client.call_tool("t", EXACT, options),
    "prompts/get": lambda client, options: client.get_prompt("p", EXACT, options),
    "resources/read": lambda client, options: client.read_resource("fake://one", options),
}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"


@pytest.mark.parametrize("method", GOES_ON)
async def test_a_caller_that_suspends_has_the_question_as_it_came_and_repeats_from_any_client(method: str) -> None:
    asked = _input(b'{"q":%b}' % FORM, STATE)
    handler = _rounds(asked, DONE)
    async with connected(handler) as (client, server):
        exchange = await GOES_ON[method](client, SUSPENDS)
        assert (exchange.result, exchange.asked) == (asked, True)
        assert list(exchange.questions.requests) == ["q"]
        assert server.requests[0].json["params"]["_meta"][CAPABILITIES] == {"elicitation": {"form": {}, "url": {}}}
        again = replace(SUSPENDS, input=Input(1, b'{"q":{"n":1.10}}', STATE))
        done = await GOES_ON[method](client, again)
        assert (done.result, done.asked, done.questions) == (DONE, True, None)
        first, second = server.requests
        assert first.json["id"] != second.json["id"]
        assert first.header("Mcp-Name") == second.header("Mcp-Name")
        assert _params(second) == {**_params(first), "inputResponses": b'{"q":{"n":1.10}}', "requestState": STATE}


async def test_a_caller_that_suspends_declares_so_only_where_something_can_be_asked() -> None:
    async with connected(modern()) as (client, server):
        await client.list_tools(options=SUSPENDS)
        await client.complete(b'{"ref":{},"argument":{}}', SUSPENDS)
        assert [request.json["params"]["_meta"][CAPABILITIES] for request in server.requests] == [{}, {}]


async def test_neither_a_question_nor_what_an_answer_led_to_is_kept_for_others() -> None:
    fresh = b'{"contents":[],"ttlMs":60000,"cacheScope":"public","n":%d}'
    handler = _rounds(_input(b'{"q":%b}' % FORM), fresh % 1, fresh % 2)
    async with connected(handler) as (client, server):
        await client.read_resource("fake://one", SUSPENDS)
        await client.read_resource("fake://one", replace(SUSPENDS, input=Input(1, b'{"q":{}}')))
        assert (await client.read_resource("fake://one", SUSPENDS)).result == fresh % 2
        assert (await client.read_resource("fake://one", SUSPENDS)).cached
        # What was kept is no answer to a person's.
        await client.read_resource("fake://one", replace(SUSPENDS, input=Input(1, b'{"q":{}}')))
        assert len(server.requests) == 4


@pytest.mark.parametrize(
    ("requests", "fault"),
    [
        (b'{"q":{"method":"sampling/createMessage","params":{}}}', "input_required_undeclared"),
        (b'{"q":%b,"r":{"method":"roots/list"}}' % FORM, "input_required_undeclared"),
        (b'{"q":{"method":"elicitation/create","params":{"message":"?"}}}', "invalid_input_request"),
        (b'{"q":{"method":"tools/call"}}', "invalid_input_request"),
    ],
)
async def test_what_nobody_can_answer_is_final_for_a_caller_that_suspends(requests: bytes, fault: str) -> None:
    async with connected(_rounds(_input(requests, STATE))) as (client, server):
        with pytest.raises(MalformedAnswerError) as caught:
            await client.call_tool("t", EXACT, SUSPENDS)
        assert len(server.requests) == 1
    error = caught.value
    assert (error.fault, error.delivery, error.retryable) == (fault, Delivery.ANSWERED, False)
    assert "e30" not in f"{error} {error.facts}"


async def test_an_older_server_hears_of_no_elicitation_and_is_sent_no_answers() -> None:
    legacy = LegacyServer()
    async with connected(legacy, options={"floor": "2025-06-18"}) as (client, server):
        await client.call_tool("echo", EXACT, SUSPENDS)
        assert not any(b"elicitation" in request.body for request in server.requests)
        sent = len(server.requests)
        with pytest.raises(InvalidRequestError, match="nothing was sent"):
            await client.call_tool("echo", EXACT, replace(SUSPENDS, input=Input(1, b'{"q":{}}', STATE)))
        assert len(server.requests) == sent


@pytest.mark.parametrize("options", [CallOptions(), SUSPENDS])
async def test_what_an_older_server_calls_input_required_is_its_result(options: CallOptions) -> None:
    result = _input(b'{"q":%b}' % FORM)
    legacy = LegacyServer(results={"tools/call": result})
    async with connected(legacy, options={"floor": "2025-06-18"}) as (client, _):
        exchange = await client.call_tool("echo", EXACT, options)
    assert exchange.result == result
    assert exchange.questions is None
