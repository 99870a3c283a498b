"""MCP servers, called from workflow code: OpenWOP v2, host services, ``mcp``.

Each function schedules one activity and gives back exactly the bytes that the server sent. A further attempt, where one
is safe, is scheduled here after a durable timer, so that every attempt stands in the workflow's history.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Literal, TypedDict, Unpack

from temporalio import workflow
from temporalio.common import RawValue

with workflow.unsafe.imports_passed_through():
    # Names are taken from modules, never modules from the package: the package itself is executed anew in the sandbox,
    # and so would be each module that is fetched through it.
    from openwop_mcp.calls import (
        ACTIVITY_NAMES,
        DEFAULT_TASK_QUEUE,
        LOG_LEVELS,
        MAX_DEPTH,
        MAX_KEY,
        MAX_NAME,
        MAX_URI,
        NO_ARGUMENTS,
        CallRequest,
        LogLevel,
        class_queue,
        completion,
        recorded,
    )
    from openwop_mcp.ceilings import MAX_CALL_BYTES, call_ceiling
    from openwop_mcp.ctx.asking import LONGEST, PATIENCE, Asked, InputRequest, OnInput, Questions, is_patience
    from openwop_mcp.ctx.attempts import ONE_ATTEMPT, EndedError, attempted
    from openwop_mcp.effects.decide import RetryPolicy
    from openwop_mcp.effects.delivery import Delivery
    from openwop_mcp.errors import InvalidRequestError, McpError, ResultTooLargeError
    from openwop_mcp.failures import McpCallError, json_payload, refusal
    from openwop_mcp.jsontext import check, check_depth, encode
    from openwop_mcp.verbatim import Verbatim

__all__ = (
    "Asked",
    "AskingOptions",
    "CallOptions",
    "InputRequest",
    "OnInput",
    "ServerHealth",
    "call_tool",
    "class_queue",
    "complete",
    "get_prompt",
    "list_prompts",
    "list_resource_templates",
    "list_resources",
    "list_tools",
    "read_resource",
    "server_health",
)

HEARTBEAT_TIMEOUT = timedelta(seconds=10)
"""After this long without a beat (there is one a second) a worker counts as lost. Ten beats may be missed: a loaded
machine or a restarting Temporal must not leave an effect in doubt."""

SHORTEST_HEARTBEAT = timedelta(seconds=2)
"""Attempts beat once a second: below this a worker that is only busy looks lost."""

LONGEST_HEARTBEAT = timedelta(days=1)
"""For so long the loss of a worker would stay unnoticed; nobody means more."""

ATTEMPT_TIMEOUT = timedelta(hours=2)
"""Backstop for one attempt. The limits that matter are the server's ``timeouts``, of at most an hour, in the worker."""

MAX_QUEUE = 1_000
"""Characters of a task queue's name, as Temporal takes them."""

MISUSE = "openwop-mcp.misuse-refused"
"""Patch: before it what :func:`_check_types` refuses went on, and may stand in histories of calls that went well."""

Arguments = Mapping[str, Any] | bytes | Verbatim


@dataclass(frozen=True, slots=True)
class ServerHealth:
    """What ``serverHealth`` says of a server.

    Attributes:
        state: Whether it can be reached at a revision that this client speaks.
        discover: The server's DiscoverResult, if one was received.
        record: The whole answer as history holds it.
    """

    state: Literal["reachable", "unreachable", "incompatible"]
    discover: Verbatim | None
    record: Verbatim


class CallOptions(TypedDict, total=False):
    """What every call takes besides.

    Attributes:
        timeout: Total time for one attempt, above 0, where it is to be less than the server's ``timeouts.total``.
        retry: Limits of further attempts in place of the server's. They never make a repeat safe.
        log_level: From which level on the worker logs what the server says while it works on this call, in place of the
            server's setting. A server of a revision before 2026-07-28 knows only the setting.
        task_queue: Queue of the worker that has the pack, or the :func:`class_queue` of a server's class. With
            ``McpPlugin`` the workflow's own is used by itself.
        heartbeat_timeout: How long a worker may be silent before it counts as lost, from 2 seconds to a day.
    """

    timeout: timedelta | None
    retry: RetryPolicy | None
    log_level: LogLevel | None
    task_queue: str
    heartbeat_timeout: timedelta


class AskingOptions(CallOptions, total=False):
    """What calls take besides of which a server may ask something before it gives a result.

    The call then waits until it has an answer, as it does where a person has to approve it.

    Attributes:
        on_input: Answers in a person's place: awaited with what is asked, and again in every replay, so that it keeps
            the rules of workflow code. It may call activities and wait. What it raises fails the call.
        input_timeout: How long a person is waited for, for each question.
    """

    on_input: OnInput | None
    input_timeout: timedelta | None


async def call_tool(
    server_id: str,
    name: str,
    arguments: Arguments | None = None,
    *,
    idempotency_key: str | None = None,
    **options: Unpack[AskingOptions],
) -> Verbatim:
    """Call a tool (``tools/call``).

    Args:
        server_id: The server, by its id in the worker's settings.
        name: The tool.
        arguments: A mapping, or the JSON text of an object, which is sent byte for byte.
        idempotency_key: A key of your own for this effect, 1 to 512 characters: calls that share it are one effect.
        options: See :class:`AskingOptions`.

    Returns:
        The server's ``CallToolResult``, unaltered, also where ``is_error`` is true.

    Raises:
        McpCallError: There is no result. ``code`` and ``delivery`` say why and what is known of the effect.
    """
    if idempotency_key is not None and not (isinstance(idempotency_key, str) and 0 < len(idempotency_key) <= MAX_KEY):
        told = f"idempotency_key: give a text of 1 to {MAX_KEY} characters, or None"
        raise _refused(InvalidRequestError(told, path="idempotency_key"))
    request = CallRequest("callTool", server_id, name=name, idempotency_key=idempotency_key, suspends=True)
    return await _call(request, _text(arguments), **options)


async def list_tools(server_id: str, cursor: str | None = None, **options: Unpack[CallOptions]) -> Verbatim:
    """Read one page of a server's tools (``tools/list``), unaltered. Pages are never merged.

    Args:
        server_id: The server, by its id in the worker's settings.
        cursor: The ``nextCursor`` of the page before; any string is forwarded, the empty one included.
        options: See :class:`CallOptions`.

    Raises:
        McpCallError: There is no page.
    """
    return await _call(CallRequest("listTools", server_id, cursor=cursor), None, **options)


async def list_resources(server_id: str, cursor: str | None = None, **options: Unpack[CallOptions]) -> Verbatim:
    """Read one page of a server's resources (``resources/list``); arguments and errors as in :func:`list_tools`."""
    return await _call(CallRequest("listResources", server_id, cursor=cursor), None, **options)


async def list_resource_templates(
    server_id: str, cursor: str | None = None, **options: Unpack[CallOptions]
) -> Verbatim:
    """Read one page of a server's resource templates (``resources/templates/list``); see :func:`list_tools`."""
    return await _call(CallRequest("listResourceTemplates", server_id, cursor=cursor), None, **options)


async def read_resource(server_id: str, uri: str, **options: Unpack[AskingOptions]) -> Verbatim:
    """Read a resource (``resources/read``), unaltered.

    Args:
        server_id: The server, by its id in the worker's settings.
        uri: The resource.
        options: See :class:`AskingOptions`.

    Raises:
        McpCallError: There is no result.
    """
    return await _call(CallRequest("readResource", server_id, uri=uri, suspends=True), None, **options)


async def list_prompts(server_id: str, cursor: str | None = None, **options: Unpack[CallOptions]) -> Verbatim:
    """Read one page of a server's prompts (``prompts/list``); arguments and errors as in :func:`list_tools`."""
    return await _call(CallRequest("listPrompts", server_id, cursor=cursor), None, **options)


async def get_prompt(
    server_id: str,
    name: str,
    arguments: Mapping[str, str] | bytes | Verbatim | None = None,
    **options: Unpack[AskingOptions],
) -> Verbatim:
    """Get a prompt (``prompts/get``), unaltered.

    Args:
        server_id: The server, by its id in the worker's settings.
        name: The prompt.
        arguments: A mapping of strings, or the JSON text of an object, which is sent byte for byte.
        options: See :class:`AskingOptions`.

    Raises:
        McpCallError: There is no result.
    """
    return await _call(CallRequest("getPrompt", server_id, name=name, suspends=True), _text(arguments), **options)


async def complete(
    server_id: str,
    ref: Mapping[str, str] | bytes | Verbatim,
    argument: Mapping[str, str] | bytes | Verbatim,
    *,
    context: Arguments | None = None,
    **options: Unpack[CallOptions],
) -> Verbatim:
    """Ask for values that complete an argument of a prompt or resource template (``completion/complete``), unaltered.

    Args:
        server_id: The server, by its id in the worker's settings.
        ref: ``{"type": "ref/prompt", "name": …}`` or ``{"type": "ref/resource", "uri": …}``, as a mapping or as the
            JSON text of one, which is sent byte for byte; so are the two after it.
        argument: ``{"name": …, "value": …}``: the argument, and what there is of its value.
        context: ``{"arguments": {…}}``: the arguments that are already decided.
        options: See :class:`CallOptions`.

    Raises:
        McpCallError: There is no result.
    """
    try:
        asked = completion(_text(ref, "ref"), _text(argument, "argument"), _text(context, "context"))
    except InvalidRequestError as error:
        raise _refused(error) from None
    return await _call(CallRequest("complete", server_id), asked, **options)


async def server_health(server_id: str, **options: Unpack[CallOptions]) -> ServerHealth:
    """Ask whether a server can be reached (``server/discover``, not older than its ``ttlMs``).

    Args:
        server_id: The server, by its id in the worker's settings.
        options: See :class:`CallOptions`.

    Raises:
        McpCallError: Only if the question could not be asked, such as for an unknown server id.
    """
    answer = await _call(CallRequest("serverHealth", server_id), None, **options)
    return ServerHealth(answer.value["state"], answer.span("discover"), answer)


async def _call(
    asked: CallRequest,
    arguments: bytes | None,
    *,
    timeout: timedelta | None = None,
    retry: RetryPolicy | None = None,
    log_level: LogLevel | None = None,
    task_queue: str = DEFAULT_TASK_QUEUE,
    heartbeat_timeout: timedelta = HEARTBEAT_TIMEOUT,
    on_input: OnInput | None = None,
    input_timeout: timedelta | None = None,
) -> Verbatim:
    _check_types(asked, retry, task_queue, on_input)
    _check_short("name", asked.name, MAX_NAME)
    _check_short("uri", asked.uri, MAX_URI)
    _check_times(timeout, heartbeat_timeout)
    if not is_patience(input_timeout):
        told = f"input_timeout: give a timedelta {PATIENCE}, or None"
        raise _refused(InvalidRequestError(told, path="input_timeout"))
    seconds = None if timeout is None else timeout.total_seconds()
    level, origin = _level(log_level), workflow.info().original_execution_run_id
    request = replace(asked, timeout=seconds, retry=retry, log_level=level, origin=origin)
    text = _sized(request, arguments)

    # Activities here have no summary: each payload of a command is visited eleven times by the SDK, every time through
    # the sandbox, which for a summary comes to a tenth of a call's CPU. The activity's type and input say the same.
    async def schedule(attempt: CallRequest) -> RawValue:
        answer: RawValue = await workflow.execute_activity(
            ACTIVITY_NAMES[attempt.method],
            args=[
                RawValue(json_payload(text if attempt is request else _again(attempt, arguments))),
                RawValue(json_payload(NO_ARGUMENTS if arguments is None else arguments)),
            ],
            result_type=RawValue,
            task_queue=task_queue,
            start_to_close_timeout=ATTEMPT_TIMEOUT,
            heartbeat_timeout=heartbeat_timeout,
            retry_policy=ONE_ATTEMPT,
            cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        )
        return answer

    questions = Questions(
        len(text) + len(arguments or b""), arguments, request.idempotency_key, on_input, input_timeout
    )
    try:
        return recorded((await attempted(request, schedule, questions)).payload)
    except EndedError as ended:
        raise McpCallError.of(ended.failure, ended.decision) from ended.__cause__


def _level(log_level: LogLevel | None) -> LogLevel | None:
    if log_level is not None and not (isinstance(log_level, str) and log_level in LOG_LEVELS):
        raise _refused(InvalidRequestError(f"log_level: give one of {', '.join(sorted(LOG_LEVELS))}", path="log_level"))
    return log_level


def _check_types(asked: CallRequest, retry: object, task_queue: object, on_input: object) -> None:
    """Refuse what no type checker has seen: found out later, it would fail the workflow task for ever."""
    texts = {"name": asked.name, "uri": asked.uri, "cursor": asked.cursor}
    wrong = [(option, "give a text") for option, given in texts.items() if not isinstance(given, str | None)]
    if not isinstance(asked.server_id, str):
        wrong.append(("server_id", "give a text"))
    if retry is not None and not _is_policy(retry):
        told = "give an openwop_mcp.RetryPolicy (Temporal has another of that name), or None: 'attempts' is a whole"
        wrong.append(
            ("retry", f"{told} number from 1, 'max_wait' and 'total' are seconds from 0 to {LONGEST.days} days")
        )
    if not (task_queue is None or (isinstance(task_queue, str) and len(task_queue) <= MAX_QUEUE)):
        wrong.append(("task_queue", f"give a text of at most {MAX_QUEUE} characters"))
    if not (on_input is None or callable(on_input)):
        wrong.append(("on_input", "give an async function, or None"))
    if wrong and workflow.patched(MISUSE):
        option, told = wrong[0]
        raise _refused(InvalidRequestError(f"{option}: {told}", path=option))


def _is_policy(retry: object) -> bool:
    return (
        isinstance(retry, RetryPolicy)
        and type(retry.attempts) is int
        and retry.attempts >= 1
        and all(
            type(seconds) in {int, float} and 0 <= seconds <= LONGEST.total_seconds()
            for seconds in (retry.max_wait, retry.total)
        )
    )


def _check_short(option: str, text: str | None, most: int) -> None:
    if isinstance(text, str) and len(text) > most:
        raise _refused(InvalidRequestError(f"{option}: give a text of at most {most} characters", path=option))


def _check_times(timeout: timedelta | None, heartbeat_timeout: timedelta) -> None:
    """What Temporal refuses would fail the workflow task, and the next one like it, for ever."""
    if timeout is not None and not (isinstance(timeout, timedelta) and timeout > timedelta(0)):
        raise _refused(InvalidRequestError("timeout: give a timedelta above 0, or None", path="timeout"))
    known = isinstance(heartbeat_timeout, timedelta)
    if not (known and SHORTEST_HEARTBEAT <= heartbeat_timeout <= LONGEST_HEARTBEAT):
        told = "heartbeat_timeout: give a timedelta from 2 seconds to 1 day"
        raise _refused(InvalidRequestError(told, path="heartbeat_timeout"))


def _text(given: Arguments | None, path: str = "arguments") -> bytes | None:
    """The JSON text of what was given; a fault fails the workflow, as a workflow task would be tried for ever."""
    if given is None:
        return None
    try:
        text = given if isinstance(given, bytes) else encode(given)
        check_depth(text, MAX_DEPTH)
        check(text)
    except (TypeError, ValueError) as error:
        raise _refused(InvalidRequestError(f"{path}: {error}", path=path)) from None
    return text


def _sized(request: CallRequest, arguments: bytes | None) -> bytes:
    """The JSON text of a request that can be carried."""
    try:
        text = request.encode()
    except (TypeError, ValueError) as error:
        raise _refused(InvalidRequestError(f"the call {error}")) from None
    size = len(text) + len(arguments or b"")
    # Most calls are small, and those that ask are few: what a worker carries is not asked of it for every one.
    if size > MAX_CALL_BYTES and size > (ceiling := call_ceiling(workflow.payload_converter())):
        setting = "storage.driver" if ceiling == MAX_CALL_BYTES else "limits.call_bytes"
        raise _refused(
            ResultTooLargeError(
                f"a call of {size} bytes, arguments and names together, is over the {ceiling} bytes that can be carried"
                f" (setting {setting})",
                delivery=Delivery.NOT_SENT,
                limit=ceiling,
                setting=setting,
                size=size,
            )
        )
    return text


def _again(attempt: CallRequest, arguments: bytes | None) -> bytes:
    """The JSON text of a later attempt; one that carries what a server keeps between its rounds may be too large."""
    return attempt.encode() if attempt.input is None else _sized(attempt, arguments)


def _refused(error: McpError) -> McpCallError:
    return McpCallError.of(refusal(error))
