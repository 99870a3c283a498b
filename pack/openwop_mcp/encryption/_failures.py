"""Failures without words: message and stack go where a codec encrypts them. The type stays, since Temporal needs it."""

from __future__ import annotations

from temporalio.api.failure.v1 import Failure
from temporalio.converter import DefaultFailureConverterWithEncodedAttributes, PayloadConverter

__all__ = ("HiddenFailureConverter",)

HIDDEN = "Encoded failure"
"""What stands in place of a message, as the SDK has it."""


class HiddenFailureConverter(DefaultFailureConverterWithEncodedAttributes):
    """The SDK's converter with encoded attributes, also for the causes of a failure that came from elsewhere.

    The SDK passes those on as they are, so that one from a history which was not encrypted would keep its words.
    """

    def to_failure(self, exception: BaseException, payload_converter: PayloadConverter, failure: Failure) -> None:
        """See base class."""
        super().to_failure(exception, payload_converter, failure)
        cause = failure
        while cause.HasField("cause"):
            cause = cause.cause
            if not cause.HasField("encoded_attributes") and (cause.message or cause.stack_trace):
                words = {"message": cause.message, "stack_trace": cause.stack_trace}
                cause.encoded_attributes.CopyFrom(payload_converter.to_payloads([words])[0])
                cause.message, cause.stack_trace = HIDDEN, ""
