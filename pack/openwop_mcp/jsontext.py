"""JSON text: strict checking, exact spans of members and elements, and numbers that keep their spelling.

Pure. Knows RFC 8259 and UTF-8, and nothing of what a text means.
"""

from __future__ import annotations

import decimal
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NoReturn, Self

import msgspec

__all__ = (
    "BigNumber",
    "JsonTextError",
    "Kind",
    "Number",
    "build",
    "check",
    "decode",
    "elements",
    "encode",
    "kind",
    "member",
    "members",
    "pointer",
)

Kind = Literal["object", "array", "string", "number", "true", "false", "null"]

_KINDS: Mapping[int, Kind] = {
    ord("{"): "object",
    ord("["): "array",
    ord('"'): "string",
    ord("t"): "true",
    ord("f"): "false",
    ord("n"): "null",
    **dict.fromkeys(b"-0123456789", "number"),
}

_OBJECT = ord("{")
_ARRAY = ord("[")

_WS = r"[ \t\n\r]*+"
_STRING = r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
_NUMBER = r"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_SCALAR = rf"(?:{_STRING}|{_NUMBER}|true|false|null)"

_SPACE = re.compile(_WS.encode())
_ONE_SCALAR = re.compile(_SCALAR.encode())
# Group 1 takes part where the container ends; without it, a value follows, with its quoted name in group 2.
_ENTER = {
    _OBJECT: re.compile(rf"{{{_WS}(?:(}})|({_STRING}){_WS}:{_WS})".encode()),
    _ARRAY: re.compile(rf"\[{_WS}(\])?()".encode()),
}
# Siblings that are scalars, eaten in one step: most of a text is such runs.
_RUN = {
    _OBJECT: re.compile(rf"(?:{_WS},{_WS}{_STRING}{_WS}:{_WS}{_SCALAR})*+".encode()),
    _ARRAY: re.compile(rf"(?:{_WS},{_WS}{_SCALAR})*+".encode()),
}
_FOLLOW = {
    _OBJECT: re.compile(rf"{_WS}(?:(}})|,{_WS}({_STRING}){_WS}:{_WS})".encode()),
    _ARRAY: re.compile(rf"{_WS}(?:(\])|,{_WS}())".encode()),
}
_LEXEME = re.compile(rf"{_SCALAR}|[\[\]{{}}]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class JsonTextError(ValueError):
    """The bytes are not the JSON text that was asked for.

    Attributes:
        position: Offset in bytes of what is wrong, or of the last good value before it.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (byte {position})")
        self.position = position

    def within(self, data: bytes) -> str:
        """The message with line and column, counted from 1 and in characters, for texts that people write."""
        lines = data[: self.position].split(b"\n")
        return f"line {len(lines)}, column {len(lines[-1].decode(errors='replace')) + 1}: {self}"


class Number(float):
    """A number whose spelling is not the one Python would give the same float. Counts as a float, prints as spelled."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Take the number from its JSON spelling."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text,)


class BigNumber(decimal.Decimal):
    """A number that no float holds, or an integer with more digits than Python parses. Prints as spelled.

    An exponent past what ``decimal`` can hold is counted as the nearest one that it can; ``text`` is exact always.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> Self:
        """Take the number from its JSON spelling."""
        try:
            number = super().__new__(cls, text, _STRICT)
        except decimal.InvalidOperation:
            sign = "-" if text.startswith("-") else ""
            exponent = -_FARTHEST if "-" in text.lower().partition("e")[2] else _FARTHEST
            number = super().__new__(cls, f"{sign}1E{exponent}")
        number.text = text
        return number

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.text,)


_STRICT = decimal.Context(traps=[decimal.InvalidOperation])
"""What an application does to its own decimal context must not turn a number into NaN."""

_FARTHEST = min(decimal.MAX_EMAX, -decimal.MIN_EMIN)
"""The largest exponent that ``decimal`` takes in both directions on this machine."""


class _Name:
    """A member's name that equals only itself, so that a dict decoded with it keeps duplicate members."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


_raw_value = msgspec.json.Decoder(msgspec.Raw)
_raw_elements = msgspec.json.Decoder(list[msgspec.Raw])
_raw_by_name = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_members = msgspec.json.Decoder(dict[_Name, msgspec.Raw], dec_hook=lambda _type, text: _Name(text))

# What msgspec raises for text that is malformed, and for lone surrogates and deep nesting, which are not malformed.
_BALKED = (msgspec.DecodeError, RecursionError)


def check(data: bytes) -> None:
    """Refuse what is not exactly one JSON text in UTF-8 without a byte order mark.

    Any depth, any size of number, duplicate members and lone surrogate escapes are JSON and pass.

    Raises:
        JsonTextError: if it is not.
    """
    _check_utf8(data)
    try:
        _raw_value.decode(data)
    except _BALKED:
        _scan(data)


def kind(data: bytes) -> Kind:
    """Tell what a checked text holds, by its first byte.

    Raises:
        JsonTextError: if no JSON value starts so.
    """
    start = _past_space(data, 0)
    found = _KINDS.get(data[start]) if start < len(data) else None
    if found is None:
        raise JsonTextError("not JSON: no value starts so", start)
    return found


def members(data: bytes) -> list[tuple[str, bytes]]:
    """List an object's members as they stand: order, duplicates and the exact bytes of each value.

    Values are held to JSON's grammar; that their strings are UTF-8 is for :func:`check` to say.

    Raises:
        JsonTextError: if the text is not a JSON object.
    """
    try:
        return [(name.text, bytes(value)) for name, value in _raw_members.decode(data).items()]
    except _BALKED:
        return list(_slow_members(data))


def member(data: bytes, name: str) -> bytes | None:
    """Cut out the value of the last member of that name, None if there is none.

    Raises:
        JsonTextError: if the text is not a JSON object.
    """
    try:
        value = _raw_by_name.decode(data).get(name)
    except _BALKED:
        return dict(_slow_members(data)).get(name)
    return None if value is None else bytes(value)


def elements(data: bytes) -> list[bytes]:
    """List the exact bytes of an array's elements.

    Raises:
        JsonTextError: if the text is not a JSON array.
    """
    try:
        return [bytes(value) for value in _raw_elements.decode(data)]
    except _BALKED:
        return [value for _, value in _children(data, _ARRAY)]


def pointer(data: bytes, path: Sequence[str | int]) -> bytes | None:
    """Cut out the value at a path of names and indexes; None if nothing stands there.

    Raises:
        JsonTextError: if the text is malformed.
    """
    value: bytes | None = data
    for step in path:
        if value is None:
            break
        holds = kind(value)
        if isinstance(step, str):
            value = member(value, step) if holds == "object" else None
        else:
            items = elements(value) if holds == "array" else []
            value = items[step] if 0 <= step < len(items) else None
    return value


def build(items: Iterable[tuple[str, bytes]]) -> bytes:
    """Put an object together from names and exact values."""
    return b"{" + b",".join([_encode_string(name) + b":" + value for name, value in items]) + b"}"


def decode(data: bytes) -> Any:
    """Decode a JSON text without losing how its numbers are spelled; of duplicate members the last wins.

    Raises:
        JsonTextError: if it is not JSON.
    """
    check(data)
    text = data.decode()
    try:
        return _decoder.decode(text)
    except RecursionError:
        return _decode_deep(text)


def encode(value: Any) -> bytes:
    """Encode a Python value compactly: numbers as they were spelled, objects with bytes in ``raw`` as those bytes.

    Raises:
        TypeError: if a value or a member's name has no JSON form; the message names its path.
        ValueError: if a number is not finite or too long to print, or a container holds itself.
    """
    parts: list[bytes] = []
    frames: list[_Frame] = []
    try:
        _write(value, parts, frames)
    except (TypeError, ValueError) as error:
        path = "".join(f"[{frame.step!r}]" for frame in frames)
        raise type(error)(f"cannot encode as JSON: value{path} {error}") from None
    return b"".join(parts)


# --- spans ------------------------------------------------------------------------------------------------------------


def _check_utf8(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        raise JsonTextError("not UTF-8", error.start) from None


def _past_space(data: bytes, position: int) -> int:
    match = _SPACE.match(data, position)
    return match.end() if match else position


def _malformed(position: int) -> NoReturn:
    raise JsonTextError("not JSON: malformed or cut off", position)


def _scan(data: bytes) -> None:
    """Check a text without msgspec, whose verdict on what it refuses is not final."""
    _refuse_rest(data, _end(data, _past_space(data, 0)))


def _refuse_rest(data: bytes, position: int) -> None:
    if _past_space(data, position) != len(data):
        _malformed(position)


def _end(data: bytes, position: int) -> int:
    """Find the end of the value that starts at ``position``, with a stack of our own: depth is data, not a limit."""
    inside: list[int] = []
    while True:
        head = data[position] if position < len(data) else -1
        closed = True
        if head in _ENTER:
            match = _ENTER[head].match(data, position) or _malformed(position)
            if match.group(1) is None:
                inside.append(head)
                closed = False
        else:
            match = _ONE_SCALAR.match(data, position) or _malformed(position)
        position = match.end()
        while closed:
            if not inside:
                return position
            run = _RUN[inside[-1]].match(data, position)
            position = run.end() if run else position
            match = _FOLLOW[inside[-1]].match(data, position) or _malformed(position)
            position = match.end()
            closed = match.group(1) is not None
            if closed:
                inside.pop()


def _children(data: bytes, opener: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (quoted name, value) of each member or element; an element's name is empty."""
    position = _past_space(data, 0)
    if not data.startswith(b"%c" % opener, position):
        _scan(data)
        raise JsonTextError(f"not a JSON {_KINDS[opener]}", position)
    match = _ENTER[opener].match(data, position) or _malformed(position)
    while match.group(1) is None:
        position = match.end()
        end = _end(data, position)
        yield match.group(2), data[position:end]
        match = _FOLLOW[opener].match(data, end) or _malformed(end)
    _refuse_rest(data, match.end())


def _slow_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    for name, value in _children(data, _OBJECT):
        _check_utf8(name)
        yield _decoder.decode(name.decode()), value


# --- decoding ---------------------------------------------------------------------------------------------------------


def _real(text: str) -> float | decimal.Decimal:
    value = float(text)
    if repr(value) == text:
        return value
    if math.isinf(value) or (value == 0 and text.lower().partition("e")[0].strip("-0.")):
        return BigNumber(text)
    return Number(text)


def _integer(text: str) -> int | float | decimal.Decimal:
    if text == "-0":
        return Number(text)
    try:
        return int(text)
    except ValueError:
        # Python parses 4300 digits by default, for the time that more would take.
        return BigNumber(text)


_decoder = json.JSONDecoder(parse_float=_real, parse_int=_integer)


def _decode_deep(text: str) -> Any:
    """Decode a checked text of any depth, lexeme by lexeme."""
    root: list[Any] = []
    stack: list[Any] = [root]
    name: str | None = None
    for lexeme in _LEXEME.findall(text):
        if lexeme in ("]", "}"):
            stack.pop()
            continue
        value: Any = {} if lexeme == "{" else [] if lexeme == "[" else _decoder.decode(lexeme)
        top = stack[-1]
        if isinstance(top, list):
            top.append(value)
        elif name is None:
            name = value
            continue
        else:
            top[name] = value
            name = None
        if lexeme in ("[", "{"):
            stack.append(value)
    return root[0]


# --- encoding ---------------------------------------------------------------------------------------------------------


class _Frame:
    """A container that is being written, and the step in it that is under way."""

    __slots__ = ("closer", "container", "separator", "step", "steps")

    def __init__(self, container: Mapping[Any, Any] | Sequence[Any]) -> None:
        self.container = container
        self.steps: Iterator[tuple[Any, Any]]
        if isinstance(container, Mapping):
            self.steps, self.separator, self.closer = iter(container.items()), b"{", b"}"
        else:
            self.steps, self.separator, self.closer = enumerate(container), b"[", b"]"
        self.step: Any = None


def _write(value: Any, parts: list[bytes], frames: list[_Frame]) -> None:
    inside: set[int] = set()
    while True:
        if type(value) not in _WRITERS and isinstance(value, dict | list | tuple | Mapping):
            if id(value) in inside:
                raise ValueError("holds itself")
            inside.add(id(value))
            frames.append(_Frame(value))
        else:
            parts.append(_encode_scalar(value))
        while frames:
            frame = frames[-1]
            step = next(frame.steps, None)
            if step is not None:
                break
            parts.append((b"" if frame.step is not None else frame.separator) + frame.closer)
            inside.discard(id(frame.container))
            frames.pop()
        else:
            return
        frame.step, value = step
        if frame.closer == b"}":
            if not isinstance(frame.step, str):
                raise TypeError("is named by something that is not a string")
            parts.append(frame.separator + _encode_string(frame.step) + b":")
        else:
            parts.append(frame.separator)
        frame.separator = b","


def _encode_scalar(value: Any) -> bytes:
    writer = _WRITERS.get(type(value))
    if writer is not None:
        return writer(value)
    raw = getattr(value, "raw", None)
    if isinstance(raw, bytes):
        return raw
    for base, writer in _WRITERS.items():
        if isinstance(value, base):
            return writer(value)
    raise TypeError(f"is of type {type(value).__name__}")


def _encode_float(value: float) -> bytes:
    if not math.isfinite(value):
        raise ValueError("is not a finite number")
    return float.__repr__(value).encode()


def _encode_decimal(value: decimal.Decimal) -> bytes:
    if not value.is_finite():
        raise ValueError("is not a finite number")
    return str(value).encode()


def _encode_string(text: str) -> bytes:
    quoted = json.encoder.encode_basestring(text)
    try:
        return quoted.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", quoted).encode()


# Exact types first; an instance of a subclass (an enum, say) goes to the first base that fits.
_WRITERS: Mapping[type, Callable[[Any], bytes]] = {
    str: _encode_string,
    bool: lambda value: b"true" if value else b"false",
    type(None): lambda _: b"null",
    int: lambda value: int.__repr__(value).encode(),
    Number: lambda value: value.text.encode(),
    BigNumber: lambda value: value.text.encode(),
    float: _encode_float,
    decimal.Decimal: _encode_decimal,
}
