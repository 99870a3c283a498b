"""Which data converters care for whom a payload is, and the runners of those that do not."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverter,
    DefaultPayloadConverter,
    JSONPlainPayloadConverter,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
)
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from activities.contexts import _unasked, context_free, takes_context
from openwop_mcp.config import Settings
from openwop_mcp.encryption import Encryption, HiddenFailureConverter
from openwop_mcp.storage import data_converter

PLAIN = DataConverter.default

ENCRYPTED = dataclasses.replace(
    PLAIN, payload_codec=Encryption({"a": bytes(32)}), failure_converter_class=HiddenFailureConverter
)


class Codec(PayloadCodec):
    async def encode(self, payloads: Any) -> Any:
        return payloads

    async def decode(self, payloads: Any) -> Any:
        return payloads


class Aware(WithSerializationContext):
    def with_context(self, context: SerializationContext) -> Self:
        del context
        return self


class AwareCodec(Aware, Codec):
    pass


class AwareFailures(Aware, DefaultFailureConverter):
    pass


class AwareJson(Aware, JSONPlainPayloadConverter):
    pass


class AwarePart(CompositePayloadConverter):
    def __init__(self) -> None:
        super().__init__(AwareJson())


class AwareWhole(DefaultPayloadConverter):
    def with_context(self, context: SerializationContext) -> Self:
        del context
        return self


class AwareInside(DefaultPayloadConverter):
    def get_converters_with_context(self, context: SerializationContext) -> Any:
        return super().get_converters_with_context(context)


@pytest.mark.parametrize(
    "converter",
    [
        PLAIN,
        pydantic_data_converter,
        dataclasses.replace(PLAIN, payload_codec=Codec()),
        data_converter(Settings()),
        ENCRYPTED,
    ],
    ids=["the SDK's", "pydantic's", "with a codec", "with storage", "with encryption"],
)
def test_a_converter_that_treats_all_payloads_alike_takes_no_context(converter):
    assert not takes_context(converter)
    assert type(context_free(UnsandboxedWorkflowRunner(), converter)) is not UnsandboxedWorkflowRunner


@pytest.mark.parametrize(
    "converter",
    [
        dataclasses.replace(PLAIN, payload_codec=AwareCodec()),
        dataclasses.replace(PLAIN, failure_converter_class=AwareFailures),
        dataclasses.replace(PLAIN, payload_converter_class=AwarePart),
        dataclasses.replace(PLAIN, payload_converter_class=AwareWhole),
        dataclasses.replace(PLAIN, payload_converter_class=AwareInside),
    ],
    ids=["codec", "failures", "one encoding", "all payloads", "all encodings"],
)
def test_where_a_part_may_take_a_context_the_runner_stays_what_it_is(converter):
    runner = UnsandboxedWorkflowRunner()
    assert takes_context(converter)
    assert context_free(runner, converter) is runner


def test_a_runner_of_an_authors_own_stays_what_it_is():
    class Own(SandboxedWorkflowRunner):
        pass

    runner = Own()
    assert context_free(runner, PLAIN) is runner


def test_a_sandbox_keeps_its_restrictions_and_can_be_given_others():
    restrictions = SandboxRestrictions.default.with_passthrough_modules("mine")
    made = cast("SandboxedWorkflowRunner", context_free(SandboxedWorkflowRunner(restrictions), PLAIN))
    assert made.restrictions is restrictions
    other = dataclasses.replace(made, restrictions=restrictions.with_passthrough_modules("yours"))
    assert type(other) is type(made)
    assert "yours" in other.restrictions.passthrough_modules


def test_a_workflow_is_asked_for_all_but_contexts():
    behind = SimpleNamespace(get_info=lambda: "its info", something_new=lambda: "what a later SDK asks for")
    workflow = cast("Any", _unasked(cast("WorkflowInstance", behind)))
    assert workflow.get_serialization_context(None) is None
    assert workflow.get_info() == "its info"
    assert workflow.something_new() == "what a later SDK asks for"
