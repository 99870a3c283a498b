"""Ids of spans: random, but for that of a workflow's run, which whoever goes on with the run must find again."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from contextvars import ContextVar

from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

__all__ = ("RunIds", "run_span_id", "with_id")

_given: ContextVar[int | None] = ContextVar("openwop_mcp_span_id", default=None)


class RunIds(RandomIdGenerator):
    """Random ids, unless the next one is given."""

    def generate_span_id(self) -> int:
        """The id of a span."""
        return _given.get() or super().generate_span_id()


@contextlib.contextmanager
def with_id(span_id: int) -> Iterator[None]:
    """Give the id of the spans that begin in the context."""
    token = _given.set(span_id)
    try:
        yield
    finally:
        _given.reset(token)


def run_span_id(run_id: str) -> int:
    """The id of the span of a workflow's run: the same for all workers, however often they read the run anew."""
    return int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big") or 1
