"""A server's request for input as a question to a person, and the answer as what the server is sent.

Pure. The server's texts are shown and never followed; what it asks for, and what a person gives, goes through byte for
byte (MCP 2026-07-28, multi round-trip requests, elicitation).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from openwop_mcp import jsontext, schemas
from openwop_mcp.catalog.names import tool_id
from openwop_mcp.protocol import mrtr
from openwop_mcp.questions import addresses
from openwop_mcp.questions.formats import format_fault
from openwop_mcp.questions.question import Question, answer_members, question, refused, shown

__all__ = (
    "ACTIONS",
    "Asked",
    "Given",
    "asked",
    "check_input",
    "input_question",
    "read_input",
)

ACTIONS = ("accept", "decline", "cancel")
"""What a person can do about a request for input; the last two are answers as good as the first."""

NO_WORDS = "The server asks without a word."
"""Stands for a message that is empty: a question says something (OpenWOP v2, interrupts)."""

MAX_SECONDS = 0.5
"""Processor time after which no further content is held to its schema. With the last one it comes to a second and a
half at most: a workflow that computes for two is taken to be stuck."""

_PLAIN = frozenset({"string", "number", "true", "false"})


@dataclass(frozen=True, slots=True)
class Asked:
    """One request for input.

    Attributes:
        key: The server's key.
        mode: A form to fill in, or an address to visit.
        message: The server's words.
        schema: JSON text of what is to be filled in; only of a form.
        url: The address; only where one is to be visited.
        digest: See ``openwop_mcp.protocol.mrtr.request_digest``.
    """

    key: str
    mode: Literal["form", "url"]
    message: str
    schema: bytes | None
    url: str | None
    digest: str

    @property
    def text(self) -> str:
        """What a person is shown: the message, and the whole address with what has to be known of it."""
        if self.url is None:
            return self.message
        warning = addresses.warning(self.url)
        host = addresses.host_of(self.url)
        about = warning or f"It leads to the host {host}."
        return f"{self.message}\n\nThe server asks you to visit this address: {self.url}\n{about}"


@dataclass(frozen=True, slots=True)
class Given:
    """A person's answer to all requests of one round.

    Attributes:
        responses: JSON text of ``inputResponses``.
        declined: Digests of the requests that were declined or cancelled.
    """

    responses: bytes
    declined: tuple[str, ...]


def asked(result: bytes) -> Mapping[str, Asked]:
    """What a server asks for, by its keys; nothing where it only wants to be called again.

    Args:
        result: JSON text of a result of type ``input_required``.

    Raises:
        MalformedInputError: It asks in a way that cannot be put to a person. What is recorded was looked at before.
    """
    return {key: _asked(key, one) for key, one in mrtr.read_elicitations(result).requests.items()}


def input_question(
    result: bytes, *, server_id: str, tool: str | None, key: str, timeout_ms: int | None = None
) -> Question:
    """Put what a server asks to a person.

    Args:
        result: JSON text of a result of type ``input_required`` that asks for something.
        server_id: The server, which a person has to know.
        tool: The tool that was called; None for a resource or a prompt.
        key: Names the question in its run.
        timeout_ms: Milliseconds to wait.
    """
    requests = asked(result).values()
    questions = [
        jsontext.build(
            [
                ("id", jsontext.encode(one.key)),
                ("question", jsontext.encode(one.text)),
                *([] if one.schema is None else [("schema", one.schema)]),
            ]
        )
        for one in requests
    ]
    about = f"mcp:{server_id}" if tool is None else tool_id(server_id, tool)
    data = jsontext.build([("questions", b"[" + b",".join(questions) + b"]"), ("contextType", jsontext.encode(about))])
    return question(
        "clarification",
        key,
        data,
        schema=_resume_schema(requests),
        reason="input-required",
        timeout_ms=timeout_ms,
    )


def read_input(resume_value: bytes, result: bytes) -> Given:
    """Read an answer, whose contents :func:`check_input` has held to what was asked.

    Args:
        resume_value: JSON text ``{"<key>": {"action": …, "content"?: {…}}}``.
        result: JSON text of the result that asked.

    Raises:
        InvalidRequestError: It does not answer every request exactly once, and nothing else; the message says what to
            write and where.
    """
    requests = asked(result)
    answers = answer_members(resume_value)
    for key in answers:
        if key not in requests:
            raise refused(key, f"nothing of that name was asked: write only {_listed(requests)}")
    for key in requests:
        if key not in answers:
            raise refused(key, f"write an answer to each of {_listed(requests)}")
    read = {key: _read(requests[key], answers[key]) for key in requests}
    responses = [
        (
            key,
            jsontext.build([("action", jsontext.encode(action)), *([] if content is None else [("content", content)])]),
        )
        for key, (action, content) in read.items()
    ]
    declined = tuple(requests[key].digest for key, (action, _) in read.items() if action != "accept")
    return Given(jsontext.build(responses), declined)


def check_input(resume_value: bytes, result: bytes) -> None:
    """Tell whether an answer may be given: it is readable, and its contents are what was asked for.

    Of a schema that cannot be used, and of what there is no time for, the server judges for itself. Takes processor
    time, so that it stands apart from what a replay does again.

    Raises:
        InvalidRequestError: It may not. The message names question and field and echoes no value.
    """
    read_input(resume_value, result)
    requests = asked(result)
    ends = time.thread_time() + MAX_SECONDS
    for key, answer in answer_members(resume_value).items():
        if time.thread_time() > ends:
            return
        schema, content = requests[key].schema, answer_members(answer, key).get("content")
        if schema is None or content is None:
            continue
        verdict = schemas.check(schema, content)
        if verdict.state == "mismatch":
            where = f"{key}.content" + (verdict.path or "").replace("/", ".")
            raise refused(where, f"{verdict.reason}")
        if (fault := format_fault(schema, content)) is not None:
            raise refused(f"{key}.content.{fault[0]}", f"write {fault[1]}")


def _asked(key: str, request: mrtr.InputRequest) -> Asked:
    params = dict(jsontext.members(request.params))
    message = str(jsontext.decode(params["message"])) or NO_WORDS
    digest = mrtr.request_digest(key, request)
    if jsontext.decode(params.get("mode", b'"form"')) == "url":
        return Asked(key, "url", message, None, str(jsontext.decode(params["url"])), digest)
    return Asked(key, "form", message, params["requestedSchema"], None, digest)


def _read(request: Asked, answer: bytes) -> tuple[str, bytes | None]:
    """Action and content of one answer."""
    key = request.key
    members = answer_members(answer, key)
    for name in members:
        if name not in {"action", "content"}:
            raise refused(f"{key}.{name}", "an answer has no such member: write 'action', and 'content' with accept")
    action = jsontext.decode(members.get("action", b"null"))
    if not isinstance(action, str) or action not in ACTIONS:
        raise refused(f"{key}.action", f"write one of {', '.join(ACTIONS)}")
    content = members.get("content")
    if request.mode == "url" or action != "accept":
        if content is not None:
            raise refused(f"{key}.content", "leave it out: only a form that is accepted has content")
        return action, None
    if content is None:
        raise refused(f"{key}.content", "write what the form asks for, a JSON object: see the question's schema")
    for name, value in answer_members(content, f"{key}.content").items():
        plain = _PLAIN if jsontext.kind(value) != "array" else frozenset({"string"})
        values = jsontext.elements(value) if jsontext.kind(value) == "array" else [value]
        if not all(jsontext.kind(one) in plain for one in values):
            raise refused(f"{key}.content.{name}", "write a string, a number, true, false, or an array of strings")
    return action, content


def _listed(requests: Mapping[str, Asked]) -> str:
    return shown(", ".join(f"'{key}'" for key in requests))


def _resume_schema(requests: Collection[Asked]) -> bytes:
    properties = [(one.key, _schema_of(one)) for one in requests]
    return jsontext.build(
        [
            ("type", b'"object"'),
            ("required", jsontext.encode([one.key for one in requests])),
            ("properties", jsontext.build(properties)),
            ("additionalProperties", b"false"),
        ]
    )


def _schema_of(request: Asked) -> bytes:
    """What answers one request. The server's schema stands in it without its dialect, which only a whole can state."""
    head: list[tuple[str, bytes]] = [("type", b'"object"'), ("required", b'["action"]')]
    action = ("action", jsontext.encode({"enum": ACTIONS}))
    closed = ("additionalProperties", b"false")
    if request.schema is None:
        return jsontext.build([*head, ("properties", jsontext.build([action])), closed])
    content = jsontext.build((name, value) for name, value in jsontext.members(request.schema) if name != "$schema")
    accepted: dict[str, Any] = {"properties": {"action": {"const": "accept"}}}
    return jsontext.build(
        [
            *head,
            ("properties", jsontext.build([action, ("content", content)])),
            closed,
            ("if", jsontext.encode(accepted)),
            ("then", b'{"required":["content"]}'),
            ("else", b'{"properties":{"content":false}}'),
        ]
    )
