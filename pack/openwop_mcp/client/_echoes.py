"""What becomes of an answer that holds a credential of its server: it goes on without it, or not at all.

Owns that rule. Knows not how a credential is found, and nothing of what is done with an answer.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import Literal

from openwop_mcp import jsontext
from openwop_mcp.client._beside import beside
from openwop_mcp.errors import EchoedCredentialError
from openwop_mcp.protocol import messages, mrtr
from openwop_mcp.redaction import MAX_CLEANED, Redacted, Redactor, TooManyEchoesError

__all__ = ("Echoes",)

logger = logging.getLogger(__name__)


class Echoes:
    """Keeps the credentials of one server out of its answers.

    Args:
        redactor: Knows them.
        then: Whether an answer goes on without one, or fails.
        name: The server's id in the settings.
    """

    def __init__(self, redactor: Redactor, then: Literal["redact", "fail"], name: str) -> None:
        self._redactor = redactor
        self._then = then
        self._name = name
        self._told = False

    async def left_out(self, method: str, result: bytes) -> Redacted | None:
        """What may be kept of an answer; None where that is all of it.

        Args:
            method: What was asked.
            result: JSON text of the result.

        Raises:
            EchoedCredentialError: Nothing of it may be.
        """
        if self._then == "fail" and await beside(result, self._redactor.has_number):
            raise self._refused(result, hashlib.sha256(result).hexdigest())
        try:
            left = await beside(result, self._redactor.json)
        except TooManyEchoesError:
            sha256 = hashlib.sha256(result).hexdigest()
            raise EchoedCredentialError("it is little else", size=len(result), sha256=sha256) from None
        if left is None:
            return None
        if self._then == "fail":
            raise self._refused(result, left.sha256)
        if list(_needed(method, result)) != list(_needed(method, left.data)):
            raise EchoedCredentialError(
                "it stands in what has to go back to the server as it came (a requestState, a cursor, a question's key,"
                " schema or URL)",
                size=len(result),
                sha256=left.sha256,
            )
        if not self._told:
            self._told = True
            logger.warning(
                "server %s sends a credential back that it is called with (in an answer to %s): what is recorded is"
                " without it, and says so; this is said once",
                self._name,
                method,
            )
        return left

    def told(self, params: bytes) -> bytes:
        """What may be told of a notification's params, which are JSON text; nothing where they are over 64 KiB.

        They are searched at once, and that something has changed needs no more.
        """
        if len(params) > MAX_CLEANED:
            return b"{}"
        try:
            left = self._redactor.json(params)
        except TooManyEchoesError:
            return b"{}"
        return params if left is None else left.data

    def _refused(self, result: bytes, sha256: str) -> EchoedCredentialError:
        setting = f"servers.{self._name}.echoed_credentials"
        return EchoedCredentialError(
            f'the setting {setting} is "fail"', size=len(result), sha256=sha256, setting=setting
        )


def _needed(method: str, result: bytes) -> Iterator[object]:
    """What of an answer is good for nothing in other bytes, since a later request carries it."""
    if method.endswith("/list"):
        yield jsontext.member(result, "nextCursor")
    if method not in messages.INPUT_METHODS or not messages.is_input_required(result):
        return
    try:
        asked = mrtr.read(result)
    except mrtr.MalformedInputError:
        # It cannot be answered anyway.
        return
    yield asked.state
    for key, one in asked.requests.items():
        yield key, one.method, [member for member in jsontext.members(one.params) if member[0] != "message"]
