"""What makes a pool cheap enough to have one per test."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from openwop_mcp.client import _conversation


@pytest.fixture(scope="session", autouse=True)
def one_tls_context() -> Iterator[None]:
    """Loading the certificate store takes longer than a test does."""
    make = httpx.create_ssl_context
    context = make()

    def once(**options: Any) -> ssl.SSLContext:
        return make(**options) if options else context

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx, "create_ssl_context", once)
        yield


@pytest.fixture(autouse=True)
def first_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of which each byte is given here are for request 1."""
    monkeypatch.setattr(_conversation, "FIRST_IDS", 1)
