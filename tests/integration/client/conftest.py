"""What makes a pool cheap enough to have one per test."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from openwop_mcp.client import _conversation, _http
from openwop_mcp.config import Timeouts
from tests.support.patience import PATIENCE


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


@pytest.fixture(autouse=True)
def time_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes beside a call arrives, however slow the machine is: a test that wants less time for it says so."""
    given = Timeouts(connect=PATIENCE, first_byte=PATIENCE, idle=PATIENCE, total=PATIENCE)
    monkeypatch.setattr(_http, "ASIDE", given)
