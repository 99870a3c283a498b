"""What failures say: hidden in Temporal, whole for who reads them, also where they came from elsewhere."""

from __future__ import annotations

import pytest
from temporalio.api.failure.v1 import Failure
from temporalio.common import RawValue
from temporalio.converter import DataConverter
from temporalio.exceptions import ApplicationError

from openwop_mcp import failures
from openwop_mcp.effects.decide import RetryPolicy
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.encryption import Encryption, HiddenFailureConverter
from openwop_mcp.errors import RpcError

CONVERTER = DataConverter(payload_codec=Encryption({"a": b"k" * 32}), failure_converter_class=HiddenFailureConverter)
WORD = "confidential"
RPC = b'{"code":-32000,"message":"confidential","data":1e400}'


async def recorded(error: BaseException) -> Failure:
    failure = Failure()
    await CONVERTER.encode_failure(error, failure)
    return failure


def raised(cause: Exception) -> ApplicationError:
    with pytest.raises(ApplicationError) as caught:
        raise ApplicationError(
            f"{WORD} message", RawValue(failures.json_payload(b'"confidential"')), type="T"
        ) from cause
    return caught.value


async def test_message_and_stack_of_a_failure_and_of_its_causes_are_hidden_and_the_type_is_not():
    failure = await recorded(raised(ValueError(f"{WORD} cause")))
    text = failure.SerializeToString()
    assert WORD.encode() not in text
    assert b"test_failures.py" not in text
    assert failure.application_failure_info.type == "T"
    assert failure.cause.application_failure_info.type == "ValueError"
    read = await CONVERTER.decode_failure(failure)
    assert isinstance(read, ApplicationError)
    assert (read.message, read.type) == (f"{WORD} message", "T")
    assert str(read.__cause__) == f"ValueError: {WORD} cause"


async def test_a_failure_of_ours_keeps_its_message_its_facts_and_the_bytes_of_an_error():
    given = RpcError(WORD, rpc_code=-32000, error=RPC, http_status=200, not_processed=False)
    error = failures.write(given, repeat_safe=False, policy=RetryPolicy(), serverId="fake")
    failure = await recorded(error)
    assert WORD.encode() not in failure.SerializeToString()
    await CONVERTER.payload_codec.decode_failure(failure)
    read = failures.read(failure)
    assert read.message == error.message
    assert read.happened.delivery is Delivery.ANSWERED
    assert RPC in read.details


async def test_a_cause_from_a_history_that_was_not_encrypted_does_not_stay_readable():
    old = Failure(message="outer")
    old.activity_failure_info.activity_id = "a"
    old.cause.message, old.cause.stack_trace = WORD, f"{WORD} stack"
    old.cause.application_failure_info.type = "T"
    error = await DataConverter.default.decode_failure(old)
    failure = await recorded(error)
    assert WORD.encode() not in failure.SerializeToString()
    read = await CONVERTER.decode_failure(failure)
    assert str(read.__cause__) == f"T: {WORD}"


async def test_a_failure_is_uncovered_as_if_it_had_not_been_hidden():
    plain, hidden = Failure(), await recorded(ApplicationError(WORD, type="T"))
    await DataConverter.default.encode_failure(ApplicationError(WORD, type="T"), plain)
    await CONVERTER.payload_codec.decode_failure(hidden)
    failures.uncover(hidden)
    assert hidden == plain


def test_attributes_of_another_converter_are_left_alone():
    failure = Failure(message="seen")
    failure.encoded_attributes.data = b"\xff"
    assert failures.said(failure) == "seen"


async def test_a_call_whose_worker_could_not_open_it_was_not_sent_and_may_be_tried_again():
    [sealed] = await Encryption({"b": b"x" * 32}).encode([failures.json_payload(b"{}")])
    try:
        try:
            await CONVERTER.decode([sealed])
        except Exception as why:
            # As the SDK puts it where an activity's arguments cannot be had.
            raise ApplicationError("Failed decoding arguments") from why
    except ApplicationError as error:
        failure = await recorded(error)
    read = failures.read(failure)
    assert (read.happened.delivery, read.happened.retryable, read.happened.repeat_safe) == (
        Delivery.NOT_SENT,
        True,
        True,
    )
    await CONVERTER.payload_codec.decode_failure(failure)
    assert "'b'" in failures.read(failure).message
