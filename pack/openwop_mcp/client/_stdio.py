"""One MCP server as a process of this machine, over its standard input and output.

Owns the process, the one writer to it, and which message on its output belongs to which request. Judges no answer,
knows no era, and reads of a message only what says whose it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import logging
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

from openwop_mcp import jsontext
from openwop_mcp.client._deadline import Deadline
from openwop_mcp.client._redact import Redactor
from openwop_mcp.client._wire import Incoming, OnMessage, Outgoing, SizeLimits, StaleTermsError, Terms
from openwop_mcp.config import MIN_SECRET, SettingsError, Timeouts
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.errors import (
    ConnectError,
    ConnectionLostError,
    InterruptedCallError,
    McpError,
    ResultTooLargeError,
    TimeLimitError,
)
from openwop_mcp.protocol.messages import EXCERPT_BYTES, MAX_EXCERPT, excerpt

__all__ = ("INHERITED", "INHERITED_PREFIXES", "StdioWire")

logger = logging.getLogger(__name__)

INHERITED: Final = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TZDIR",
        "TMPDIR",
        "TEMP",
        "TMP",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    }
)
"""Variables of the worker that its servers get: where programs, files and certificates are, who runs them, language and
time. None of them holds a secret; the address of a proxy can, so an operator who needs one gives it to the server."""

INHERITED_PREFIXES: Final = ("LC_", "XDG_")
"""Families of such variables: the parts of a locale, and where a user's files are."""

LAST_WORDS = 0.5
"""Seconds for what is still in the pipes, and for the exit status, after the first sign that a process is ending. More
would only help where a grandchild holds the pipes, which it may do for ever."""

PATIENCE = 2.0
"""Seconds that a server is given after its input was closed, and again after SIGTERM, and after SIGKILL for the kernel.
The worker must be gone ten seconds after its own SIGTERM."""

QUICK = 10.0
"""Seconds: a process that ended sooner and answered nothing never worked. Slow starters take a few seconds."""

FIRST_REST = 0.5
"""Seconds before the restart after one quick end; doubled with each further one."""

LONGEST_REST = 30.0
"""Seconds that a restart is put off at most, so that a server is soon back once its fault is mended."""

NOTIFY = 2.0
"""Seconds that a notification waits for a server that does not read; calls have limits of their own."""

HEAD_BYTES = 4096
"""Bytes kept of a line that is too long: its id mostly stands before its result."""

TAIL_BYTES = 256
"""Bytes kept of its end, where some servers write the id."""

LOGGED_LINES = 100
"""Lines of standard error that are logged in a second: enough for a stack trace, too few to fill a disk."""

LAST_LINES = 3
"""Lines of standard error that an error repeats, as far as they fit an excerpt."""

BATCHING: Final = "2025-03-26"
"""The one revision whose servers may put several messages into an array."""

SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
"""``_meta`` key that names the request whose subscription a notification is for (MCP 2026-07-28, subscriptions)."""

STDIN, STDOUT, STDERR = 0, 1, 2
"""File descriptors, by what the server calls them."""

_BOM = b"\xef\xbb\xbf"
_LINE_BREAKS = bytes.maketrans(b"\r\n", b"  ")

_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"\s*'
_ID = rb'"id"\s*:\s*"?(\d{1,18})"?\s*'
_VERDICT = rb'"(?:result|error)"\s*:'

# Spellings of a response's envelope, for lines that cannot be read as a whole.
_ID_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _ID + rb",\s*(?:" + _VERSION + rb",\s*)?" + _VERDICT)
_VERDICT_FIRST = re.compile(rb"\s*\{\s*(?:" + _VERSION + rb",\s*)?" + _VERDICT)
# What stands right before the brace that ends the text is the envelope's own, however much is nested before it.
_ID_LAST = re.compile(rb"[,{]\s*" + _ID + rb"(?:,\s*" + _VERSION + rb")?\}\s*\Z")


class _Cut:
    """A line over the limit, of which only the ends were kept."""

    __slots__ = ("head", "size", "tail")

    def __init__(self, head: bytes, tail: bytes, size: int) -> None:
        self.head, self.tail, self.size = head, tail, size


class _Lines:
    """Cuts a stream into lines without their ends, the same for any way in which the bytes arrive.

    Args:
        limit: Bytes that a line may have; of a longer one no more than the ends are held.
    """

    __slots__ = ("_at_start", "_head", "_held", "_limit", "_size", "_tail")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._size = 0
        self._head = self._tail = b""
        self._at_start = True

    def feed(self, chunk: bytes) -> list[bytes | _Cut]:
        """Take what arrived and return the lines that it completes."""
        *ended, rest = chunk.split(b"\n")
        lines = [self._end(piece) for piece in ended]
        if rest:
            self._hold(rest)
        return lines

    def close(self) -> bytes:
        """Return the line that the end of the stream left without its own, if it is whole."""
        line = self._end(b"")
        return line if isinstance(line, bytes) else b""

    def _hold(self, piece: bytes) -> None:
        before, self._size = self._size, self._size + len(piece)
        if self._size <= self._limit:
            self._held += piece
            return
        if before <= self._limit:
            self._head = bytes(self._held[:HEAD_BYTES])
            self._tail = bytes(self._held[-TAIL_BYTES:])
            self._held = bytearray()
        self._head += piece[: HEAD_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-TAIL_BYTES:])[-TAIL_BYTES:]

    def _end(self, piece: bytes) -> bytes | _Cut:
        line: bytes | _Cut = piece
        if self._size or len(piece) > self._limit:
            self._hold(piece)
            line = _Cut(self._head, self._tail, self._size) if self._size > self._limit else bytes(self._held)
            self._held, self._size = bytearray(), 0
        if self._at_start:
            self._at_start = False
            if isinstance(line, bytes):
                line = line.removeprefix(_BOM)
            else:
                line.head = line.head.removeprefix(_BOM)
        return line.removesuffix(b"\r") if isinstance(line, bytes) else line


def _response_id(head: bytes, tail: bytes) -> int | None:
    """The id of a response of which only the ends are at hand, or which is no JSON; None if it shows none."""
    found = _ID_FIRST.match(head)
    if found is None and _VERDICT_FIRST.match(head) is not None:
        found = _ID_LAST.search(tail)
    return None if found is None else int(found[1])


def _integer(value: bytes | None) -> int | None:
    """An id that is an integer, or a string that holds one."""
    digits = b"" if value is None else value.strip(b'"')
    return int(digits) if digits.isdigit() and len(digits) <= len(str(2**63)) else None


def _exact(value: bytes | None) -> int | None:
    """A token or an id that must come back as the integer that it was."""
    return None if value is None or value.startswith(b'"') else _integer(value)


class _Stderr:
    """What a server writes to standard error, line by line in the worker's log, and its last words for errors."""

    def __init__(self, server_id: str, redactor: Redactor) -> None:
        self._logger = logging.getLogger(f"openwop_mcp.server.{server_id}")
        self._redactor = redactor
        self._lines = _Lines(EXCERPT_BYTES)
        self._last: deque[bytes] = deque(maxlen=LAST_LINES)
        self._logged = self._dropped = 0
        self._second: asyncio.TimerHandle | None = None

    def feed(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            self._line(line.head if isinstance(line, _Cut) else line)

    def close(self) -> None:
        self._line(self._lines.close())
        if self._second is not None:
            self._second.cancel()
            self._next_second()

    def last(self) -> str:
        """The last lines, as many as fit an excerpt; the last of all first of all."""
        told: list[bytes] = []
        room = MAX_EXCERPT
        for line in reversed(self._last):
            room -= len(line) + 3
            if told and room < 0:
                break
            told.insert(0, line)
        return self.shown(b" | ".join(told))

    def shown(self, data: bytes) -> str:
        """An excerpt without the credentials that the server was given."""
        bearer = ConnectError(excerpt(data))
        self._redactor.clean(bearer)
        return bearer.message

    def _line(self, line: bytes) -> None:
        line = line.strip()
        if not line:
            return
        self._last.append(line)
        if self._logged >= LOGGED_LINES:
            self._dropped += 1
            return
        self._logged += 1
        if self._second is None:
            self._second = asyncio.get_running_loop().call_later(1, self._next_second)
        if self._logger.isEnabledFor(logging.INFO):
            self._logger.info("%s", self.shown(line))

    def _next_second(self) -> None:
        if self._dropped:
            self._logger.info("%d more lines came within the second and were dropped", self._dropped)
        self._logged = self._dropped = 0
        self._second = None


class _Flight:
    """A request on its way: who waits for its answer, and who hears what comes before."""

    __slots__ = ("_context", "_on_message", "deadline", "future", "method", "request_id", "revision")

    def __init__(self, out: Outgoing, deadline: Deadline, on_message: OnMessage | None) -> None:
        self.request_id = out.request_id
        self.method = out.method
        self.revision = out.terms.revision
        self.deadline = deadline
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._on_message = on_message
        # Messages arrive in the context of whoever started the process; who hears them has one of its own.
        self._context = None if on_message is None else contextvars.copy_context()

    @property
    def answered(self) -> bool:
        return self.future.done() and not self.future.cancelled()

    def settle(self, message: bytes) -> None:
        if not self.future.done():
            self.future.set_result(message)

    def fail(self, error: Exception) -> None:
        if not self.future.done():
            self.future.set_exception(error)

    def hear(self, message: bytes) -> None:
        self.deadline.alive()
        if self._on_message is not None and self._context is not None:
            self._context.run(self._on_message, message)


class _Pipe(asyncio.Protocol):
    """One of the three pipes of a process."""

    def __init__(self, process: _Process, fd: int) -> None:
        self._process = process
        self._fd = fd

    def data_received(self, data: bytes) -> None:
        self._process.received(self._fd, data)

    def pause_writing(self) -> None:
        self._process.writable.clear()

    def resume_writing(self) -> None:
        self._process.writable.set()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._process.pipe_lost(self._fd)


class _Process:
    """One life of the server's process.

    The event loops' own subprocesses differ: uvloop's have sockets for pipes and hold each of them twice, so that a
    server that closes one is not noticed. What both do alike is read and write pipes.

    Attributes:
        generation: Which life it is.
        accepting: Whether requests may be written; never again once they may not.
        answered: Whether it ever answered.
        started: Loop time at which it was started.
        ended: Done when it has gone and nothing of it is held any more.
        writable: Set unless the server leaves too much unread.
    """

    def __init__(self, wire: StdioWire, generation: int, redactor: Redactor) -> None:
        self._loop = asyncio.get_running_loop()
        self._wire = wire
        self._name = wire.server_id
        self._sizes = wire.sizes
        self.generation = generation
        self.accepting = True
        self.answered = False
        self.started = self._loop.time()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._out = _Lines(wire.sizes.event_bytes)
        self._err = _Stderr(wire.server_id, redactor)
        self._flights: dict[int, _Flight] = {}
        self._ids: range | None = None
        self._turn = asyncio.Lock()
        self.writable = asyncio.Event()
        self.writable.set()
        self._noisy = False
        self._stopping = False
        self._closed_pipe: int | None = None
        self._dropped = False
        self._last_words: asyncio.TimerHandle | None = None
        self._status: int | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._pipes: dict[int, asyncio.BaseTransport] = {}
        self._open = {STDIN, STDOUT, STDERR}

    @property
    def pid(self) -> int:
        """Its id, and that of its group and session."""
        assert self._popen is not None
        return self._popen.pid

    # --- requests -----------------------------------------------------------------------------------------------------

    async def exchange(self, out: Outgoing, limits: Timeouts, on_message: OnMessage | None) -> Incoming:
        flight: _Flight | None = None
        try:
            async with Deadline(limits) as deadline:
                await self._may_write()
                flight = _Flight(out, deadline, on_message)
                self._launch(flight, out.body)
                deadline.sending()
                return Incoming(await flight.future)
        except TimeLimitError as error:
            if flight is not None:
                if flight.answered:
                    return Incoming(flight.future.result())
                self._give_up(flight, f"the {error.limit} limit ran out")
            raise
        except asyncio.CancelledError:
            if flight is not None:
                self._give_up(flight, "it is no longer wanted")
            raise
        finally:
            self._flights.pop(out.request_id, None)

    async def notify(self, message: bytes) -> None:
        async with asyncio.timeout(NOTIFY):
            await self._may_write()
        self._write(message)

    async def _may_write(self) -> None:
        """Wait while the server does not read. What follows without a pause is written as one piece.

        Raises:
            StaleTermsError: The process is ending.
        """
        if not self.writable.is_set() or self._turn.locked():
            async with self._turn:
                await self.writable.wait()
        if not self.accepting:
            raise StaleTermsError

    def _launch(self, flight: _Flight, body: bytes) -> None:
        number = flight.request_id
        known = self._ids
        self._ids = range(min(number, known.start), max(number + 1, known.stop)) if known else range(number, number + 1)
        self._flights[number] = flight
        self._write(body)

    def _write(self, message: bytes) -> None:
        if b"\n" in message or b"\r" in message:
            # In JSON they stand between tokens only, where a space says the same.
            message = message.translate(_LINE_BREAKS)
        self._input.write(message + b"\n")

    def _give_up(self, flight: _Flight, reason: str) -> None:
        if flight.answered:
            # Whoever would have waited for a failure is gone; asyncio complains of one that nobody looked at.
            flight.future.exception()
        elif self.accepting and flight.method != "initialize":
            params = jsontext.encode({"requestId": flight.request_id, "reason": reason})
            self._write(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":%b}' % params)

    # --- messages -----------------------------------------------------------------------------------------------------

    def _line(self, line: bytes | _Cut) -> None:
        if isinstance(line, _Cut):
            self._too_large(line)
        elif line and not line.isspace():
            try:
                found = dict(jsontext.members(line))
            except jsontext.JsonTextError:
                self._no_object(line)
            else:
                self._message(found, line, line)

    def _message(self, found: Mapping[str, bytes], message: bytes, line: bytes) -> None:
        method = found.get("method")
        if method is None:
            if "result" in found or "error" in found or {"jsonrpc", "id"} <= found.keys():
                self._response(found, message, line)
            else:
                self._noise(line)
        elif "jsonrpc" not in found:
            self._noise(line)
        elif "id" in found:
            self._unmatched(message)
        else:
            try:
                self._notification(method, found.get("params", b"{}"), message)
            except jsontext.JsonTextError:
                self._noise(line)

    def _flight(self, request_id: int | None) -> _Flight | None:
        return None if request_id is None else self._flights.get(request_id)

    def _response(self, found: Mapping[str, bytes], message: bytes, line: bytes) -> None:
        number = found.get("id")
        flight = self._flight(_integer(number))
        if flight is None and "jsonrpc" in found:
            flight = self._only(number, is_error="error" in found)
        if flight is not None:
            self.answered = True
            flight.settle(message if flight.revision == BATCHING else line)
        elif "jsonrpc" not in found:
            self._noise(line)
        else:
            logger.debug("server '%s' answered what no request waits for: %s", self._name, excerpt(number or b"no id"))

    def _only(self, number: bytes | None, *, is_error: bool) -> _Flight | None:
        """The one request in flight, for a response with an id that was never sent or, in an error, none.

        It was meant for it, or for nothing; whoever judges answers names the fault. An id that was sent is a late one.
        """
        if len(self._flights) != 1 or self._ids is None:
            return None
        nameless = number is None or number == b"null"
        sent = _exact(number)
        if (nameless and not is_error) or (sent is not None and sent in self._ids):
            return None
        return next(iter(self._flights.values()))

    def _notification(self, name: bytes, params: bytes, message: bytes) -> None:
        method = jsontext.decode(name) if jsontext.kind(name) == "string" else None
        if method is None or jsontext.kind(params) != "object":
            self._noise(message)
            return
        if method == "notifications/progress":
            flight = self._flight(_exact(jsontext.member(params, "progressToken")))
            if flight is not None:
                self._hear(flight, message)
            return
        if method == "notifications/cancelled":
            flight = self._flight(_exact(jsontext.member(params, "requestId")))
            # Only a subscription may be ended so from the server's side.
            if flight is not None and flight.method == "subscriptions/listen":
                flight.fail(ConnectionLostError(f"server '{self._name}' ended the subscription: listen again"))
                return
        subscription = jsontext.pointer(params, ("_meta", SUBSCRIPTION))
        flight = self._flight(_exact(subscription))
        if flight is not None:
            self._hear(flight, message)
        else:
            self._unmatched(message)

    def _hear(self, flight: _Flight, message: bytes) -> None:
        try:
            flight.hear(message)
        except Exception as error:  # noqa: BLE001 - it is the caller's and goes to the caller
            self._give_up(flight, "its messages cannot be taken")
            flight.fail(error)

    def _unmatched(self, message: bytes) -> None:
        hears = self._wire.on_unmatched
        if hears is None:
            return
        try:
            hears(message)
        except Exception:
            logger.exception("a message of server '%s' could not be taken", self._name)

    def _no_object(self, line: bytes) -> None:
        """Take a line that is no JSON object: messages in an array, a response that is no JSON, or noise."""
        try:
            parts = [dict(jsontext.members(part)) for part in jsontext.elements(line)]
        except jsontext.JsonTextError:
            flight = self._flight(_response_id(line[:HEAD_BYTES], line[-TAIL_BYTES:]))
            if flight is not None:
                self.answered = True
                flight.settle(line)
            else:
                self._noise(line)
            return
        for found, part in zip(parts, jsontext.elements(line), strict=True):
            self._message(found, part, line)

    def _too_large(self, line: _Cut) -> None:
        limit, setting = self._sizes.event_bytes, "limits.event_bytes"
        text = f"larger than {limit} bytes and was not read (setting {setting})"
        number = _response_id(line.head, line.tail)
        if number is not None:
            flight = self._flight(number)
            self.answered = True
            if flight is not None:
                flight.fail(
                    ResultTooLargeError(
                        f"the answer is {text}; the server has acted",
                        delivery=Delivery.ANSWERED,
                        limit=limit,
                        setting=setting,
                        size=line.size,
                    )
                )
            return
        shown = self._err.shown(line.head)
        logger.warning("a line of server '%s' is %s; it begins: %s", self._name, text, shown)
        for flight in self._flights.values():
            flight.fail(
                ResultTooLargeError(
                    f"a line that may hold the answer is {text}; the server may have acted",
                    delivery=Delivery.UNKNOWN,
                    limit=limit,
                    setting=setting,
                    size=line.size,
                )
            )

    def _noise(self, line: bytes) -> None:
        if not self._noisy:
            self._noisy = True
            logger.warning(
                "server '%s' writes to its standard output what is no message of MCP; it is passed over, and this is"
                " said once: %s",
                self._name,
                self._err.shown(line),
            )

    # --- the process --------------------------------------------------------------------------------------------------

    async def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it.

        Raises:
            OSError: It cannot be started.
            ValueError: The command holds what no command can.
        """
        self._popen = popen = subprocess.Popen(  # noqa: ASYNC220, S603 - takes a millisecond; the operator's command
            command,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        assert popen.stdin is not None
        assert popen.stdout is not None
        assert popen.stderr is not None
        ends = [
            (STDOUT, self._loop.connect_read_pipe, popen.stdout),
            (STDERR, self._loop.connect_read_pipe, popen.stderr),
            (STDIN, self._loop.connect_write_pipe, popen.stdin),
        ]
        try:
            while ends:
                fd, connect, file = ends.pop(0)
                self._pipes[fd], _ = await connect(functools.partial(_Pipe, self, fd), file)
        except BaseException:
            self._stopping = True
            self._signal(signal.SIGKILL)
            # The one under way was closed by the loop; to close it again could hit a descriptor of somebody else.
            for transport in self._pipes.values():
                transport.close()
            for _, _, file in ends:
                file.close()
            popen.wait()
            raise
        threading.Thread(target=self._wait, args=(popen,), name=f"wait for {self._name}", daemon=True).start()

    def _wait(self, popen: subprocess.Popen[bytes]) -> None:
        """In a thread: wait for the end of the process, as asyncio does where nothing better is to be had."""
        status = popen.wait()
        # A loop that is closed needs no news.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._exited, status)

    def received(self, fd: int, data: bytes) -> None:
        """Take what the server wrote."""
        if fd == STDERR:
            self._err.feed(data)
            return
        for line in self._out.feed(data):
            self._line(line)

    def pipe_lost(self, fd: int) -> None:
        """Take note that a pipe is closed, by whichever side."""
        self._open.discard(fd)
        if fd == STDOUT:
            rest = self._out.close()
            with contextlib.suppress(jsontext.JsonTextError):
                # A whole object is a message although its line was not ended; a piece of one is none.
                self._message(dict(jsontext.members(rest)), rest, rest)
        if fd != STDERR:
            if self._closed_pipe is None:
                self._closed_pipe = fd
            self._ending()
        self._finish()

    def _exited(self, status: int) -> None:
        self._status = status
        self._abort_input()
        self._ending()
        self._finish()

    def _finish(self) -> None:
        """See whether all pipes are closed and the exit status is known: then it is over."""
        if self._open or self._status is None or self.ended.done():
            return
        self._give_way()
        self._fail_all()
        # Who is left in the group has no pipe to the worker any more.
        self._signal(signal.SIGKILL)
        self._err.close()
        if self._last_words is not None:
            self._last_words.cancel()
        self.ended.set_result(None)
        self._wire.process_ended(self)

    async def stop(self) -> None:
        """End the process as MCP wants it: close its input, then SIGTERM, then SIGKILL, to all of its group."""
        if self.ended.done():
            return
        self._stopping = True
        self._give_way()
        self._fail_all(
            lambda: InterruptedCallError(
                f"the worker stopped server '{self._name}' before it answered; the request may have taken effect",
                cancelled=False,
                delivery=Delivery.UNKNOWN,
            )
        )
        try:
            self._input.close()
            if not await self._ends():
                self._signal(signal.SIGTERM)
                await self._ends()
        finally:
            if not self.ended.done():
                self._drop()
        if not await self._ends():
            logger.warning("server '%s' does not go: SIGKILL has not ended it yet", self._name)

    def failure(self) -> str:
        """How it ended, in words, with what it last wrote to standard error."""
        status = self._status
        if status is not None and not self._dropped:
            how = f"exited with status {status}" if status >= 0 else f"was ended by {_signal_name(-status)}"
        else:
            how = f"closed its standard {'input' if self._closed_pipe == STDIN else 'output'}"
        last = self._err.last()
        return f"{how}; its last words: {last}" if last else how

    def _ending(self) -> None:
        """Take a first sign of the end: no more requests, and what was still said is heard."""
        self._give_way()
        if self._last_words is None and not self._stopping:
            self._last_words = self._loop.call_later(LAST_WORDS, self._drop)

    def _give_way(self) -> None:
        self.accepting = False
        self.writable.set()

    def _drop(self) -> None:
        """Let go of a process that is of no use, whatever of it is left."""
        self._dropped = self._dropped or self._status is None
        self._fail_all()
        self._signal(signal.SIGKILL)
        self._abort_input()
        for fd in (STDOUT, STDERR):
            self._pipes[fd].close()

    def _abort_input(self) -> None:
        pipe = self._input
        # A pipe of asyncio that is closing and has nothing left to write must not be aborted.
        if not pipe.is_closing() or pipe.get_write_buffer_size():
            pipe.abort()

    def _fail_all(self, error: Callable[[], McpError] | None = None) -> None:
        for flight in self._flights.values():
            flight.fail(error() if error is not None else self._lost())

    def _lost(self) -> McpError:
        return ConnectionLostError(
            f"the process of server '{self._name}' {self.failure()} (before it answered; the request may have taken"
            " effect)"
        )

    async def _ends(self) -> bool:
        done, _ = await asyncio.wait([self.ended], timeout=PATIENCE)
        return bool(done)

    def _signal(self, number: signal.Signals) -> None:
        # EPERM is what macOS says of a group in which only zombies are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    @property
    def _input(self) -> asyncio.WriteTransport:
        return cast("asyncio.WriteTransport", self._pipes[STDIN])


class StdioWire:
    """One server over standard input and output; its process is started when it is needed and again when it died.

    Implements :class:`openwop_mcp.client._wire.Wire` (MCP 2026-07-28, stdio). The process gets a session of its own, so
    that signals of the worker's terminal do not reach it, and no shell.

    Args:
        server_id: The server's id in the settings; names its logger, ``openwop_mcp.server.<server_id>``.
        command: Program and arguments.
        environment: Variables beside :data:`INHERITED`, or what reads them anew for each process. Values of at least
            eight characters count as credentials: no log and no error repeats them.
        sizes: ``event_bytes`` bounds a message.

    Attributes:
        on_unmatched: Takes messages with a method that belong to no request in flight: changes of lists, log messages,
            and what an older server asks of its client.
    """

    http: Final = False
    context: Final = 0

    def __init__(
        self,
        server_id: str,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]] | Mapping[str, str],
        *,
        sizes: SizeLimits,
    ) -> None:
        self.server_id = server_id
        self.sizes = sizes
        self.on_unmatched: OnMessage | None = None
        self._command = tuple(command)
        self._environment = environment
        self._process: _Process | None = None
        self._generation = 0
        self._starting: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._quick_ends = 0
        self._rest_until = 0.0
        self._last_end = ""

    @property
    def origin(self) -> str:
        """What the server is known by. Not its command line, which can hold a secret."""
        return f"stdio:{self.server_id}"

    async def open(self, limits: Timeouts) -> int:
        """See to it that there is a process; says which one, counted from 1.

        Raises:
            ConnectError: It cannot be started, or ends at once each time it is.
            InterruptedCallError: The wire is closed.
            TimeLimitError: The ``connect`` limit ran out.
        """
        process = self._process
        if process is not None and process.accepting and self._closing is None:
            return process.generation
        until = asyncio.get_running_loop().time() + min(limits.connect, limits.total)
        async with Deadline(limits):
            while True:
                if self._closing is not None:
                    raise self._closed()
                process = self._process
                if process is None:
                    await self._rest(until)
                    await self._start()
                elif process.accepting:
                    return process.generation
                else:
                    await asyncio.shield(process.ended)

    async def exchange(self, out: Outgoing, *, limits: Timeouts, on_message: OnMessage | None = None) -> Incoming:
        """Send a request and wait for its answer; to give it up tells the server so.

        Raises:
            StaleTermsError: The terms were agreed with another process. Nothing was sent.
            ConnectionLostError: The process ended; the request may have taken effect.
            InterruptedCallError: The wire was closed.
            ResultTooLargeError: The answer is over ``limits.event_bytes``.
            TimeLimitError: A limit ran out. ``connect`` bounds the wait for a server that does not read, with nothing
                sent; ``first_byte`` ends with the first message about the request.
        """
        return await self._agreed(out.terms).exchange(out, limits, on_message)

    async def notify(self, message: bytes, terms: Terms) -> None:
        """Write a message that no answer comes to, if the process of the terms still takes it."""
        try:
            await self._agreed(terms).notify(message)
        except (StaleTermsError, TimeoutError) as error:
            logger.debug("server '%s' was not told: %r", self.server_id, error)

    async def end(self, terms: Terms) -> None:
        """Do nothing: the session of a process ends with it."""

    async def close(self) -> None:
        """End the process, in at most three times two seconds. Requests in flight fail."""
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close(), context=contextvars.Context())
        await asyncio.shield(self._closing)

    def process_ended(self, process: _Process) -> None:
        """Take note of the end of a process; one that ended at once puts off the next."""
        if process is not self._process:
            # It ended before its start was over, which then takes note of it.
            return
        self._process = None
        now = asyncio.get_running_loop().time()
        self._last_end = process.failure()
        quick = not process.answered and now - process.started < QUICK
        self._quick_ends = self._quick_ends + 1 if quick else 0
        if quick:
            self._rest_until = now + min(LONGEST_REST, FIRST_REST * 2.0 ** min(self._quick_ends - 1, 16))
        if self._closing is None:
            logger.warning("the process of server '%s' %s", self.server_id, self._last_end)

    # --- start and end ------------------------------------------------------------------------------------------------

    def _agreed(self, terms: Terms) -> _Process:
        process = self._process
        if process is None or process.generation != terms.generation or not process.accepting:
            raise StaleTermsError
        return process

    async def _rest(self, until: float) -> None:
        if not self._quick_ends:
            return
        rest = self._rest_until - asyncio.get_running_loop().time()
        if self._rest_until >= until:
            raise ConnectError(
                f"the process of server '{self.server_id}' ends each time at once: it {self._last_end}. It is not"
                f" started again for {rest:.1f} s: run its command by hand, and mend it or the setting"
                f" servers.{self.server_id}.command"
            )
        await asyncio.sleep(max(0.0, rest))

    async def _start(self) -> None:
        """Start a process, all who want one the same; it is started even if they all stop waiting."""
        if self._closing is not None or self._process is not None:
            return
        if self._starting is None:
            # A context of its own: the process outlives the call that happened to need it first.
            context = contextvars.Context()
            self._starting = asyncio.get_running_loop().create_task(self._spawn(), context=context)
            self._starting.add_done_callback(self._started)
        await asyncio.shield(self._starting)

    def _started(self, task: asyncio.Task[None]) -> None:
        self._starting = None
        if not task.cancelled():
            # A failure that perhaps nobody waits for any more; asyncio complains of one that nobody looked at.
            task.exception()

    async def _spawn(self) -> None:
        given = self._given()
        redactor = Redactor(value for value in given.values() if len(value) >= MIN_SECRET)
        process = _Process(self, self._generation + 1, redactor)
        try:
            await process.start(self._command, _inherited(os.environ) | given)
        except (OSError, ValueError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
            raise ConnectError(
                f"the program '{excerpt(os.fsencode(self._command[0]))}' of server '{self.server_id}' cannot be"
                f" started ({reason}): install it where the worker's PATH finds it, or correct the setting"
                f" servers.{self.server_id}.command"
            ) from None
        self._generation = process.generation
        self._process = process
        logger.info("server '%s' runs as process %d", self.server_id, process.pid)
        if process.ended.done():
            self.process_ended(process)

    def _given(self) -> dict[str, str]:
        try:
            return dict(self._environment() if callable(self._environment) else self._environment)
        except SettingsError as error:
            raise ConnectError(f"the environment of server '{self.server_id}' cannot be had: {error}") from None

    async def _close(self) -> None:
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._process is not None:
            await self._process.stop()

    def _closed(self) -> InterruptedCallError:
        return InterruptedCallError(
            f"the worker has stopped server '{self.server_id}'", cancelled=False, delivery=Delivery.NOT_SENT
        )


def _inherited(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name in INHERITED or name.startswith(INHERITED_PREFIXES)}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
