"""What makes a pool cheap enough to have one per test."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest


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
