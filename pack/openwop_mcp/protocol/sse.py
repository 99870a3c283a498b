"""Event streams as a Streamable HTTP server sends them: bytes in, the data of each message out.

Follows the event-stream format of the HTML standard in what MCP uses of it. Knows nothing of JSON, and leaves UTF-8 to
whoever reads a message.
"""

from __future__ import annotations

__all__ = ("EventStreamDecoder", "EventTooLargeError")

MAX_RETRY_DIGITS = 9
"""Digits of a retry that are read: more is over a week, and no reader waits for that."""

_BOM = b"\xef\xbb\xbf"


class EventTooLargeError(ValueError):
    """An event, or a line, is longer than the limit allows.

    Attributes:
        limit: The limit in bytes.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(f"an event of the stream is over {limit} bytes")
        self.limit = limit


class EventStreamDecoder:
    """Cuts a stream into messages; the same for any way in which the bytes arrive.

    Args:
        max_event_bytes: Bytes that the lines of one event may have together, and any other line alone.

    Attributes:
        last_event_id: Id of the last event, also of one without data; None until there is one.
        retry: Milliseconds that the server wants a reader to wait before it comes again, if it said so.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._limit = max_event_bytes
        self._line: list[bytes] = []
        self._line_bytes = 0
        self._at_start = True
        self._after_cr = False
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._type = b""
        self._id: bytes | None = None
        self.last_event_id: bytes | None = None
        self.retry: int | None = None

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take what arrived and return the data of the messages that it completes.

        Events of a type other than ``message``, events without data and comments are passed over.

        Raises:
            EventTooLargeError: if an event is over the limit; the stream cannot be read on.
        """
        if self._after_cr and chunk:
            self._after_cr = False
            chunk = chunk.removeprefix(b"\n")
        if not chunk:
            return []
        # On bytes this splits at LF, CR and CRLF only, which is what an event stream does.
        lines = chunk.splitlines()
        rest = lines.pop() if chunk[-1] not in b"\r\n" else b""
        self._after_cr = chunk.endswith(b"\r")
        messages: list[bytes] = []
        for piece in lines:
            line = piece
            if self._line:
                self._line.append(piece)
                line = b"".join(self._line)
                self._line, self._line_bytes = [], 0
            message = self._end_line(line)
            if message:
                messages.append(message)
        if rest:
            self._line.append(rest)
            self._line_bytes += len(rest)
            self._hold(self._line_bytes)
        return messages

    @property
    def held(self) -> int:
        """Bytes of an event that is not complete yet."""
        return self._data_bytes + self._line_bytes

    def close(self) -> None:
        """Forget an event that the end of the stream left incomplete."""
        self._line, self._line_bytes = [], 0
        self._data, self._data_bytes, self._type = [], 0, b""

    def _hold(self, more: int) -> None:
        if self._data_bytes + more > self._limit:
            raise EventTooLargeError(self._limit)

    def _end_line(self, line: bytes) -> bytes:
        """Take a whole line; return the data of the message that it ends, if it does."""
        self._hold(len(line))
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            return self._end_event()
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
            self._data_bytes += len(line)
        elif name == b"event":
            self._type = value.removeprefix(b" ")
        elif name == b"id" and b"\0" not in value:
            self._id = value.removeprefix(b" ")
        elif name == b"retry" and (given := value.removeprefix(b" ")).isdigit():
            self.retry = int(given[:MAX_RETRY_DIGITS])
        return b""

    def _end_event(self) -> bytes:
        data, kind = self._data, self._type
        self._data, self._data_bytes, self._type = [], 0, b""
        self.last_event_id = self._id
        return b"\n".join(data) if kind in (b"", b"message") else b""
