"""How large a value may be, by whether large ones are kept outside Temporal's history.

Owns the sizes that Temporal imposes, and how workflow code learns the ceiling of its worker: from the payload
converter, which is the one thing of a client that a workflow sees. Knows no storage and no settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.converter import PayloadConverter

__all__ = ("INLINE_BYTES", "INLINE_RESULT", "MAX_CALL_BYTES", "call_ceiling", "telling")

INLINE_BYTES = 256 * 1024
"""Bytes of a payload from which on it is kept outside history, where there is storage. Below, one more file costs more
than it saves; it is also the default of Temporal's SDKs."""

INLINE_RESULT = 1_572_864
"""Bytes of the largest result that history itself holds. Temporal refuses a payload over 2 MiB, *after* the call was
made, and counts with it what is around it."""

MAX_CALL_BYTES = 2_000_000
"""What a call may take up in history, arguments and names together. Temporal refuses an activity's input over 2 MiB by
failing the workflow task, again and again, so that a larger call has to be refused before it is scheduled."""

_QUESTION = Payload(metadata={"encoding": b"openwop-mcp/call-ceiling"})
"""No SDK and no server ever makes such a payload."""


@cache
def telling(converter: type[PayloadConverter], call_bytes: int) -> type[PayloadConverter]:
    """The same converter, which also tells :func:`call_ceiling` how large a call may be.

    Args:
        converter: A class that is made without arguments, as a ``DataConverter`` takes it.
        call_bytes: Bytes of arguments and names together.
    """

    class Telling(converter):  # type: ignore[misc, valid-type]  # the class is only known here
        def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
            if len(payloads) == 1 and payloads[0] == _QUESTION:
                return [call_bytes]
            values: list[Any] = super().from_payloads(payloads, type_hints)
            return values

    Telling.__name__ = Telling.__qualname__ = converter.__name__
    return Telling


def call_ceiling(converter: PayloadConverter) -> int:
    """Bytes that a call may have, arguments and names together: all that history holds, if nothing else is told."""
    try:
        told = converter.from_payload(_QUESTION)
    except Exception:  # noqa: BLE001 - each converter refuses an encoding that it does not know in its own way
        return MAX_CALL_BYTES
    return told if isinstance(told, int) else MAX_CALL_BYTES
