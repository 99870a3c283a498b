"""Keeps credentials out of errors: a server that echoes what it was called with must not put it into a history.

Knows the spellings in which an echo comes back: as it is, with JSON or percent escapes, in Base64. Leaves results be.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any

from openwop_mcp import jsontext
from openwop_mcp.errors import McpError, RpcError

__all__ = ("Redactor",)

MARK = "[credential]"
"""Stands where a credential was."""

MAX_SECRETS = 32
"""Credentials looked for at once: those of a server's settings and a day's tokens, one an hour."""

CUT = "…"
"""How an excerpt ends that was cut off, perhaps in the middle of a credential."""

START = 4
"""Characters of a credential that give it away at the end of an excerpt that was cut."""

BEARER = "Bearer "
"""No part of the credential: it stands in prose too."""

_JSON_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"')


class Redactor:
    """Replaces the given header values wherever an error could carry them.

    Args:
        values: Header values that are, or hold, credentials.
    """

    def __init__(self, values: Iterable[str]) -> None:
        self._secrets: list[str] = []
        self._whole: re.Pattern[str] | None = None
        self._start: re.Pattern[str] | None = None
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Look for one more credential from now on, besides those that it may have replaced: they can come back too."""
        secret = value.removeprefix(BEARER)
        if secret in self._secrets:
            return
        self._secrets = [*self._secrets[-MAX_SECRETS + 1 :], secret]
        self._whole = _any(spelling for secret in self._secrets for spelling in _spellings(secret, None))
        self._start = _any(spelling for secret in self._secrets for spelling in _spellings(secret, START))

    def clean(self, error: McpError) -> None:
        """Take the credentials out of an error's message, facts and JSON-RPC error, and of those that led to it."""
        if self._whole is None:
            return
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, McpError):
                self._clean(cause)
            cause = cause.__cause__ or cause.__context__

    def _clean(self, error: McpError) -> None:
        error.message = self.text(error.message)
        error.args = (error.message,)
        error.facts = {key: self._value(value) for key, value in error.facts.items()}
        if isinstance(error, RpcError):
            # Inside strings only, so that it stays JSON and otherwise the server's bytes.
            error.error = _JSON_STRING.sub(self._literal, error.error)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        return [self._value(item) for item in value] if isinstance(value, list) else value

    def _literal(self, found: re.Match[bytes]) -> bytes:
        text = jsontext.decode(found.group())
        clean = self.text(text)
        return found.group() if clean == text else jsontext.encode(clean)

    def text(self, text: str) -> str:
        """A text without the credentials."""
        if self._whole is None or self._start is None:
            return text
        text = self._whole.sub(MARK, text)
        if text.endswith(CUT) and (begun := self._start.search(text)) is not None:
            return text[: begun.start()] + MARK + CUT
        return text


def _any(spellings: Iterable[str]) -> re.Pattern[str] | None:
    joined = "|".join(spellings)
    return re.compile(joined, re.IGNORECASE) if joined else None


def _spellings(secret: str, characters: int | None) -> list[str]:
    """Patterns for the first characters of a credential, or all of it, in each of its spellings."""
    plain = "".join(_character(character) for character in secret[:characters])
    return [plain, *(re.escape(text[:characters]) for text in _base64(secret.encode()))]


def _character(character: str) -> str:
    # Escapes of escapes come from JSON inside JSON; bounded, so that a run of backslashes costs no quadratic time.
    code = f"{ord(character):02x}"
    return rf"(?:\\{{0,4}}{re.escape(character)}|\\{{1,4}}u00{code}|%{code})"


def _base64(secret: bytes) -> set[str]:
    """What stays the same of a text's Base64 wherever in a longer text it stands: one form per alignment."""
    forms: set[str] = set()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + secret).decode()
        whole = encoded[(before * 8 + 5) // 6 : (before + len(secret)) * 8 // 6]
        forms |= {whole, whole.replace("+", "-").replace("/", "_")}
    return forms
