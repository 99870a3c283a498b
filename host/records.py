"""Requests with an ``Idempotency-Key``: each is carried out once, and its answer kept for whoever sends it again.

What is kept lies in Temporal (see the records beside the workflows), so that any host gives it; a key is kept nowhere.
Knows no operation: it is given the act, and what the request was.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Self

from fastapi import Request
from temporalio.client import Client
from temporalio.service import RPCError

from openwop_mcp import jsontext

from . import openapi
from .errors import REGISTRY, HostError
from .ids import BoundId
from .siblings import records
from .web import Answer, header

__all__ = ("HEADER", "PARAMETER", "REPLAYED", "Keyed", "Records")

logger = logging.getLogger(__name__)

HEADER = "Idempotency-Key"
"""The header that a key comes in."""

REPLAYED = "OpenWOP-Idempotent-Replay"
"""The header that marks an answer which was given before."""

LAPSES = timedelta(seconds=30)
"""How long a request may be under way. Whoever comes later takes its host for dead and carries it out."""

ACT_WITHIN = 25.0
"""Seconds that an act is given: well before its record lapses, so that two hosts never act at once."""

PATIENCE = 5.0
"""Seconds that a request waits for the answer to one like it that is under way: most are answered within one."""

AT_ONCE = timedelta(seconds=1)
"""When the record of a refusal lapses, which holds the answer from the beginning: as soon as Temporal can."""

_KEY = re.compile(r"[A-Za-z0-9._~-]{22,128}")

PARAMETER = openapi.parameter(
    HEADER,
    "header",
    {"type": "string", "pattern": f"^{_KEY.pattern}$"},
    "A random text of the client's, such as a UUID: with the same one the same request is carried out once.",
)
"""What the OpenAPI document says of it."""

_NOT_KEPT = frozenset({"idempotency_key_invalid", "validation_error"})
_NOT_KEPT_STATUS = frozenset({401, 403, 429})
"""Refusals that say what has to change before the same key can do anything (OpenWOP v2, idempotency)."""

_FAULTS_FROM = 500

_VOID = b"{}"
"""Ending of the record of an act that may be tried again."""


@dataclass(frozen=True, slots=True)
class Keyed:
    """A request with a key.

    Attributes:
        tenant: Whose it is.
        identity: Digest of tenant, operation and key: 43 characters that an id may have. It names what is kept.
        request: Digest of what was asked for: the same key with another one is refused.
    """

    tenant: str
    identity: str
    request: str

    @classmethod
    def of(
        cls, key: str | None, *, tenant: str, operation: str, body: bytes, target: str = "", dedup: str | None = None
    ) -> Self | None:
        """Read the key of a request; None if it has none.

        The body counts by its bytes, not by what they mean: two spellings of a number are two requests, since a number
        goes on as it was spelled. Who repeats a request repeats its bytes.

        Args:
            key: The header.
            tenant: The caller's tenant.
            operation: The operation's id.
            body: The body.
            target: The id in the path.
            dedup: The header ``OpenWOP-Dedup``.

        Raises:
            HostError: ``idempotency_key_invalid``.
        """
        if key is None:
            return None
        if _KEY.fullmatch(key) is None:
            raise HostError(
                "idempotency_key_invalid", f"{HEADER}: write 22 to 128 of A-Z a-z 0-9 . _ ~ -, as a random UUID has"
            )
        named = jsontext.encode(["openwop-mcp/idempotency-key/1", tenant, operation, key])
        asked = hashlib.sha256(jsontext.encode([operation, target, dedup]) + body).hexdigest()
        identity = base64.urlsafe_b64encode(hashlib.sha256(named).digest()).rstrip(b"=").decode()
        return cls(tenant, identity, asked)

    @property
    def run_id(self) -> BoundId:
        """The id of the run that the request creates: there is one at most, and it is the record of its request."""
        return BoundId(self.tenant, self.identity)

    @property
    def content(self) -> bytes:
        """What a record of the request is made with: JSON text."""
        return jsontext.encode({"request": self.request})

    def record_id(self, number: int) -> str:
        """The name of a record of the request; the next one is for where the one before has no answer to be kept."""
        return f"http:{self.run_id}#{number}" if number else f"http:{self.run_id}"


class Records:
    """What was answered to requests with a key.

    Args:
        client: Connected to the namespace of the runs.
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    async def answered(
        self,
        request: Request,
        operation: str,
        body: bytes,
        act: Callable[[str | None], Awaitable[Answer]],
        *,
        target: str = "",
    ) -> Answer:
        """Carry a request of an authenticated caller out, or give the answer that it had before.

        Args:
            request: The request.
            operation: What it asks for.
            body: What was sent.
            act: Carries it out; is told a name of the request, None if it has no key.
            target: What it is about.

        Raises:
            HostError: As :meth:`once`, and ``idempotency_key_invalid``.
        """
        tenant = request.state.principal.tenant
        keyed = Keyed.of(header(request, HEADER), tenant=tenant, operation=operation, body=body, target=target)
        name = None if keyed is None else keyed.identity
        return await self.once(keyed, lambda: act(name))

    async def once(self, keyed: Keyed | None, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """Carry a request out, or give the answer that it had before.

        Args:
            keyed: The request; None if it has no key.
            act: Carries it out.

        Raises:
            HostError: What ``act`` raised, ``idempotency_key_mismatch`` or ``idempotency_in_flight``.
        """
        if keyed is None:
            return await act()
        for number in count():
            record_id = keyed.record_id(number)
            made = await records.make(self._client, record_id, records.ANSWER, keyed.content, lapses=LAPSES)
            if made is not None:
                return await self._act(record_id, made, act)
            if (earlier := await self._earlier(record_id, keyed)) is not None:
                return earlier
        raise AssertionError("unreachable")

    async def earlier(self, keyed: Keyed, created: Answer) -> Answer | None:
        """What was answered to a request for a run before: that it is created, or a refusal. None if it is new.

        Args:
            keyed: The request.
            created: The answer where the run is there.

        Raises:
            HostError: ``idempotency_key_mismatch``.
        """
        return await self._earlier(str(keyed.run_id), keyed, created)

    async def refused(self, keyed: Keyed, refusal: HostError) -> None:
        """Keep the refusal of a request for a run, in the place of the run, unless it may be asked for again.

        Where another host made the run meanwhile, nothing is kept.
        """
        if _is_final(refusal):
            content = jsontext.build([*jsontext.members(keyed.content), ("answer", _encode(Answer.of(refusal)))])
            await records.make(self._client, str(keyed.run_id), records.ANSWER, content, lapses=AT_ONCE)

    async def _act(self, record_id: str, made: str, act: Callable[[], Awaitable[Answer]]) -> Answer:
        refusal: HostError | None = None
        try:
            async with asyncio.timeout(ACT_WITHIN):
                answer = await act()
        except HostError as error:
            refusal, answer = error, Answer.of(error)
        except TimeoutError:
            await self._close(record_id, made, _VOID, "given up")
            raise HostError("service_unavailable", "it took too long: try again", retry_after=1) from None
        except Exception:
            await self._close(record_id, made, _VOID, "failed")
            raise
        final = refusal is None or _is_final(refusal)
        await self._close(record_id, made, _encode(answer) if final else _VOID, "answered" if final else "not done")
        if refusal is not None:
            raise refusal
        return answer

    async def _close(self, record_id: str, made: str, ending: bytes, why: str) -> None:
        """Close a record. What was done is done, so that the caller hears of it even where Temporal does not."""
        try:
            await records.close(self._client, record_id, made, ending, why=why)
        except RPCError as error:
            logger.warning("the answer to a request with a key was not kept: %s", error.message)

    async def _earlier(self, record_id: str, keyed: Keyed, created: Answer | None = None) -> Answer | None:
        record = await records.find(self._client, record_id)
        if record is None:
            return None
        told = dict(jsontext.members(record.content)) if record.content else {}
        if told.get("request") != jsontext.encode(keyed.request):
            raise HostError(
                "idempotency_key_mismatch", f"{HEADER}: this key came with another request before: use a new one"
            )
        if record.kind != records.ANSWER:
            return None if created is None else _replayed(created)
        kept = told.get("answer") or await records.ending(self._client, record, wait=PATIENCE)
        if kept is None and record.is_open:
            raise HostError(
                "idempotency_in_flight", "the same request is under way: ask again for its answer", retry_after=1
            )
        return None if kept in {None, _VOID} else _replayed(_decode(kept))


def _replayed(answer: Answer) -> Answer:
    """The answer, marked as one that was given before."""
    return replace(answer, headers={**answer.headers, REPLAYED: "true"})


def _is_final(refusal: HostError) -> bool:
    """Whether a refusal is kept. One that says when to come again is not: it invites the very same request."""
    return not (
        REGISTRY[refusal.code].retriable
        or refusal.retry_after is not None
        or refusal.code in _NOT_KEPT
        or refusal.status in _NOT_KEPT_STATUS
        or refusal.status >= _FAULTS_FROM
    )


def _encode(answer: Answer) -> bytes:
    """JSON text of an answer, its body in it byte for byte."""
    return jsontext.build(
        [
            ("status", jsontext.encode(answer.status)),
            ("headers", jsontext.encode(answer.headers)),
            ("body", answer.body),
        ]
    )


def _decode(text: bytes) -> Answer:
    members: Mapping[str, bytes] = dict(jsontext.members(text))
    return Answer(jsontext.decode(members["status"]), members["body"], jsontext.decode(members["headers"]))
