"""Requests put together and answers judged."""

from __future__ import annotations

import contextlib
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openwop_mcp import jsontext
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import MalformedAnswerError, RpcError
from openwop_mcp.protocol import messages
from openwop_mcp.protocol.revisions import MODERN

DEEP = 500


def judge(data: bytes | str, *, method: str = "tools/call", http_status: int = 200, legacy: bool = False) -> bytes:
    raw = data.encode() if isinstance(data, str) else data
    return messages.answer(raw, 7, method=method, http_status=http_status, legacy=legacy)


def fault(data: bytes | str, **more: Any) -> str:
    with pytest.raises(MalformedAnswerError) as caught:
        judge(data, **more)
    assert caught.value.delivery is Delivery.UNKNOWN
    assert len(caught.value.facts["excerpt"]) <= 256
    assert caught.value.facts["excerpt"].isprintable()
    return caught.value.fault


def envelope(**members: str) -> str:
    return (
        "{" + ",".join(f'"{name}":{value}' for name, value in {"jsonrpc": '"2.0"', "id": "7", **members}.items()) + "}"
    )


def test_a_request_holds_every_value_byte_for_byte() -> None:
    body = messages.request(
        12,
        "tools/call",
        [("name", b'"t\\u00e9"'), ("arguments", b'{ "n" : 1.10 }')],
        [*messages.terms_meta(MODERN, b'{"name":"n","version":"1"}', b"{}"), ("dev.example/key", b'"k"')],
    )
    assert body == (
        b'{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"t\\u00e9","arguments":{ "n" : 1.10 },'
        b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",'
        b'"io.modelcontextprotocol/clientInfo":{"name":"n","version":"1"},'
        b'"io.modelcontextprotocol/clientCapabilities":{},"dev.example/key":"k"}}}'
    )
    jsontext.check(body)


def test_a_request_without_params_still_has_its_meta() -> None:
    body = messages.request(1, "server/discover", [], messages.terms_meta(MODERN, b"{}", b"{}"))
    assert list(json.loads(body)["params"]) == ["_meta"]


def test_a_request_with_neither_has_no_params() -> None:
    assert messages.request(1, "ping", []) == b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.mark.parametrize(
    "result",
    [
        '{"resultType":"complete","n": 1.0, "big":1e400, "id":123456789012345678901234, "s":"\\u00e9\\/"}',
        "{ }",
        '{"resultType" : "compl\\u0065te"}',
        '{"a":"\\ud800"}',
        '{"a":' + "[" * DEEP + "]" * DEEP + "}",
        '{"a":1,"a":2,"result":{"error":1}}',
    ],
)
def test_a_result_comes_back_byte_for_byte(result: str) -> None:
    assert judge(f' {{"id" : 7, "result" : {result} , "jsonrpc":"2.0"}}\n') == result.encode()


def test_an_escaped_name_of_the_envelope_is_that_name() -> None:
    assert judge('{"jsonrpc":"2\\u002e0","id":7,"\\u0072esult":{"a":1}}') == b'{"a":1}'


def test_other_members_of_the_envelope_may_stand_there_twice() -> None:
    assert judge('{"x":1,"x":2,"jsonrpc":"2.0","id":7,"result":{}}') == b"{}"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"a":"\xff"}}', "invalid_utf8"),
        (b'{"jsonrpc":"2.0","id":7,"\xff":1,"result":{}}', "invalid_utf8"),
        ("", "invalid_json"),
        ("<html>", "invalid_json"),
        ("\ufeff" + envelope(result="{}"), "invalid_json"),
        (envelope(result='{"a":NaN}'), "invalid_json"),
        (envelope(result="{}") + "{}", "invalid_json"),
        (envelope(result="{}")[:-1], "invalid_json"),
        ("[]", "not_an_object"),
        ("[" + envelope(result="{}") + "]", "not_an_object"),
        ("null", "not_an_object"),
        ('["\\ud800"]', "not_an_object"),
        ('{"id":7,"result":{}}', "not_jsonrpc"),
        (envelope(jsonrpc='"1.0"', result="{}"), "not_jsonrpc"),
        (envelope(jsonrpc="2.0", result="{}"), "not_jsonrpc"),
        (envelope(result="{}", error='{"code":1,"message":""}'), "both_result_and_error"),
        (envelope(result="{}", error="null"), "both_result_and_error"),
        (envelope(), "neither_result_nor_error"),
        (envelope(method='"x"'), "neither_result_nor_error"),
        (envelope(result="null"), "invalid_result"),
        (envelope(result="[]"), "invalid_result"),
        (envelope(result='"{}"'), "invalid_result"),
        (envelope(error="null"), "invalid_error"),
        (envelope(error='"no"'), "invalid_error"),
        (envelope(error='{"code":"1","message":""}'), "invalid_error"),
        (envelope(error='{"code":true,"message":""}'), "invalid_error"),
        (envelope(error='{"code":1.5,"message":""}'), "invalid_error"),
        (envelope(error='{"code":1}'), "invalid_error"),
        (envelope(error='{"code":1,"message":null}'), "invalid_error"),
        (envelope(result='{"resultType":"task"}'), "unknown_result_type"),
        (envelope(result='{"resultType":null}'), "unknown_result_type"),
        (envelope(result='{"resultType":["complete"]}'), "unknown_result_type"),
        (envelope(result='{"resultType":"Complete"}'), "unknown_result_type"),
    ],
)
def test_a_broken_answer_is_refused_by_its_fault(data: bytes | str, expected: str) -> None:
    assert fault(data) == expected
    assert expected in messages.FAULTS


@pytest.mark.parametrize("name", ["jsonrpc", "id", "result", "error"])
@pytest.mark.parametrize("escape", [False, True])
def test_a_member_of_the_envelope_that_stands_there_twice_is_refused(name: str, escape: bool) -> None:
    again = f"\\u{ord(name[0]):04x}{name[1:]}" if escape else name
    members = {"jsonrpc": '"2.0"', "id": "7", "result": "{}"}
    value = members.setdefault(name, '{"code":1,"message":""}')
    text = ",".join([f'"{key}":{item}' for key, item in members.items()] + [f'"{again}":{value}'])
    assert fault(f"{{{text}}}") == "duplicate_member"


@pytest.mark.parametrize("received", ["8", "7.0", '"7"', "null", "[7]", "70"])
def test_the_answer_to_another_request_is_refused_and_names_both_ids(received: str) -> None:
    with pytest.raises(MalformedAnswerError, match="expected id 7, received") as caught:
        judge(envelope(id=received, result="{}"))
    assert caught.value.fault == "wrong_id"
    assert str(caught.value).endswith(received)


def test_an_answer_without_id_is_refused() -> None:
    with pytest.raises(MalformedAnswerError, match="received none"):
        judge('{"jsonrpc":"2.0","result":{}}')


@pytest.mark.parametrize(
    "data",
    [
        envelope(id="null", error='{"code":-32600,"message":"no"}'),
        '{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}',
    ],
)
def test_an_error_may_lack_the_id_that_the_server_could_not_read(data: str) -> None:
    with pytest.raises(RpcError) as caught:
        judge(data)
    assert caught.value.rpc_code == -32600


def test_an_error_with_a_word_for_an_id_counts_only_where_the_status_is_an_error_too() -> None:
    data = envelope(id='"server-error"', error='{"code":-32600,"message":"no"}')
    with pytest.raises(RpcError):
        judge(data, http_status=400)
    assert fault(data, http_status=200) == "wrong_id"
    assert fault(envelope(id="8", error='{"code":-32600,"message":"no"}'), http_status=400) == "wrong_id"


@pytest.mark.parametrize("method", ["tools/call", "resources/read", "prompts/get"])
def test_a_request_for_input_is_a_result_where_it_may_come(method: str) -> None:
    result = '{"resultType":"input_required","requestState":"s"}'
    assert judge(envelope(result=result), method=method) == result.encode()


@pytest.mark.parametrize("method", ["tools/list", "server/discover", "resources/list"])
def test_a_request_for_input_elsewhere_is_refused(method: str) -> None:
    assert fault(envelope(result='{"resultType":"input_required"}'), method=method) == "unknown_result_type"


def test_an_error_keeps_its_bytes() -> None:
    error = '{ "code":-32602, "message":"bad\\u0000 \\ud800", "data":{"n":1.0} }'
    with pytest.raises(RpcError) as caught:
        judge(envelope(error=error), http_status=400)
    assert caught.value.error == error.encode()
    assert caught.value.rpc_code == -32602
    assert caught.value.delivery is Delivery.ANSWERED
    assert caught.value.facts == {"rpcCode": -32602, "httpStatus": 400}
    assert str(caught.value).isprintable()


def test_a_code_that_is_an_integer_by_value_is_one() -> None:
    with pytest.raises(RpcError) as caught:
        judge(envelope(error='{"code":-32602.0,"message":"no"}'))
    assert caught.value.rpc_code == -32602


@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_a_refused_envelope_was_not_processed(code: int) -> None:
    with pytest.raises(RpcError) as caught:
        judge(envelope(error=f'{{"code":{code},"message":"no"}}'))
    assert caught.value.delivery is Delivery.NOT_PROCESSED


@pytest.mark.parametrize(
    ("http_status", "delivery"),
    [(400, Delivery.NOT_PROCESSED), (200, Delivery.ANSWERED), (500, Delivery.ANSWERED), (0, Delivery.ANSWERED)],
)
@pytest.mark.parametrize("code", [-32020, -32021, -32022])
def test_in_an_older_revision_these_codes_refuse_only_with_a_status_that_does(
    code: int, http_status: int, delivery: Delivery
) -> None:
    with pytest.raises(RpcError) as caught:
        judge(envelope(error=f'{{"code":{code},"message":"no"}}'), http_status=http_status, legacy=True)
    assert caught.value.delivery is delivery


@given(st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_an_excerpt_is_short_and_printable(data: bytes) -> None:
    shown = messages.excerpt(data)
    assert len(shown) <= 256
    assert shown.isprintable()


def test_an_excerpt_shows_that_it_was_cut() -> None:
    assert messages.excerpt(b"a" * 256) == "a" * 256
    assert messages.excerpt(b"a" * 257) == "a" * 255 + "…"
    assert messages.excerpt("é\n".encode() + b"\xff") == "é\\n\\xff"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (envelope(result="{}"), "answer"),
        (envelope(error='{"code":1,"message":""}'), "answer"),
        ('{"jsonrpc":"2.0","error":{}}', "answer"),
        (envelope(result="{}", jsonrpc="1"), "answer"),
        (envelope(id="8", result="{}"), "answer"),
        ('{"jsonrpc":"2.0","result":{}}', "answer"),
        ("[]", "answer"),
        ("{oops", "answer"),
        (envelope(), "answer"),
        ("[7]", "answer"),
        ("ping", "answer"),
        ("01", "answer"),
        ('{"type":"heartbeat"}', "other"),
        ('{"jsonrpc":"2.0","type":"heartbeat"}', "other"),
        ('{"id":7,"type":"heartbeat"}', "other"),
        ("{}", "other"),
        (" 7 ", "other"),
        ('"ping"', "other"),
        ("null", "other"),
        ("true", "other"),
        ('{"jsonrpc":"2.0","method":"notifications/progress","params":{}}', "notification"),
        (envelope(method='"sampling/createMessage"'), "request"),
        (envelope(id="null", method='"x"'), "request"),
    ],
)
def test_a_stream_message_is_told_by_its_members(data: str, expected: str) -> None:
    assert messages.classify_stream_message(data.encode()) == expected


HUGE = 1 << 20

TOO_DEEP = {
    "arrays": "[" * HUGE + "]" * HUGE,
    "arrays cut off": "[" * HUGE,
    "objects": '{"a":' * HUGE + "1" + "}" * HUGE,
    "behind strings that look like closers": '["]]",' * HUGE + "1" + "]" * HUGE,
    "behind strings with escapes": '["\\\\\\"]",' * HUGE + "1" + "]" * HUGE,
    "behind much that is flat": "[" + "[]," * HUGE + "[" * HUGE + "]" * HUGE + "]",
}


def seconds(work: Callable[[], object]) -> float:
    """Processor time, which others on the machine do not add to."""
    began = time.thread_time()
    work()
    return time.thread_time() - began


@pytest.mark.parametrize("value", TOO_DEEP.values(), ids=TOO_DEEP)
def test_an_answer_nested_too_deep_is_refused_at_once_and_not_asked_for_again(value: str) -> None:
    data = envelope(result=f'{{"a":{value}}}').encode()
    errors: list[MalformedAnswerError] = []

    def refused() -> None:
        with pytest.raises(MalformedAnswerError) as caught:
            judge(data)
        errors.append(caught.value)

    assert seconds(refused) < 0.5
    assert errors[0].fault == "too_deep"
    assert errors[0].fault in messages.FAULTS
    assert errors[0].delivery is Delivery.UNKNOWN
    assert not errors[0].retryable
    assert seconds(lambda: messages.classify_stream_message(data)) < 0.5
    assert messages.classify_stream_message(data) == "answer"
    assert not messages.is_error(data)
    assert messages.batch(b"[" + data + b"]") == [b"[" + data + b"]"]


@pytest.mark.parametrize(
    "value",
    [
        "[" + "[]," * HUGE + '"\\ud800"]',
        "[" + "[]," * HUGE + "oops]",
        '"' + "\\n" * HUGE + '\x01"',
        '"' + "\\ud800" * HUGE + '"',
        "[" + '{"a":[{"b":"]"}]},' * (HUGE // 4) + "1]",
        "[" + '"[","\\"",' * HUGE + "1]",
    ],
)
def test_no_answer_whatever_takes_long_to_judge(value: str) -> None:
    data = envelope(result=f'{{"a":{value}}}').encode()

    def judged() -> None:
        with contextlib.suppress(MalformedAnswerError):
            judge(data)

    assert seconds(judged) < 0.6


def test_an_answer_with_very_many_members_is_refused_without_reading_them_all() -> None:
    data = (envelope(result="{}")[:-1] + ',"a":0' * HUGE + "}").encode()
    tracemalloc.start()
    try:
        with pytest.raises(MalformedAnswerError) as caught:
            judge(data)
        assert messages.classify_stream_message(data) == "answer"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.fault == "too_wide"
    assert not caught.value.retryable
    assert peak < 3 * len(data)


def test_an_answer_may_have_some_members_that_nobody_knows() -> None:
    more = {f"x{number}": "1" for number in range(messages.MAX_MEMBERS - 3)}
    assert judge(envelope(result="{}", **more)) == b"{}"
    assert fault(envelope(result="{}", **more, y="1")) == "too_wide"


def test_a_batch_of_too_many_messages_is_not_taken_apart() -> None:
    message = envelope(result="{}").encode()
    several = b"[" + b",".join([message] * messages.MAX_BATCH) + b"]"
    assert messages.batch(several) == [message] * messages.MAX_BATCH
    one_more = several[:-1] + b"," + message + b"]"
    assert messages.batch(one_more) == [one_more]
    assert fault(one_more) == "not_an_object"
