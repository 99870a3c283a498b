"""JSON text: strict checking, exact spans of members and elements, and numbers that keep their spelling.

Pure. Knows RFC 8259 and UTF-8, and nothing of what a text means.
"""

from __future__ import annotations

import decimal
import functools
import itertools
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
    "TooManyError",
    "build",
    "check",
    "check_depth",
    "decode",
    "elements",
    "encode",
    "kind",
    "member",
    "members",
    "nests",
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
_BYTE = re.compile(r"\(byte (\d+)\)$")

# What is left of a text to measure its depth by: one sign for what opens, one for what closes, and the quotes.
_SHAPE = bytes.maketrans(b"{}", b"[]")
_FILLING = bytes(byte for byte in range(256) if byte not in b'{}[]"')

_BRACKET = re.compile(rb"[\[{]")

PART = 256 * 1024
"""Bytes that are measured at a time: what a processor's cache holds."""

STEP = 256
"""Brackets between two looks at the depth: a look costs as much as some hundred brackets."""

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


class TooManyError(JsonTextError):
    """The container holds more than was asked for; the rest was neither read nor judged."""


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


_RawMembers = dict[_Name, msgspec.Raw]

_raw_value = msgspec.json.Decoder(msgspec.Raw)
_raw_elements = msgspec.json.Decoder(list[msgspec.Raw])
_raw_by_name = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raw_members = msgspec.json.Decoder(_RawMembers, dec_hook=lambda _type, text: _Name(text))

# What msgspec raises for text that is malformed, and for lone surrogates and deep nesting, which are not malformed.
_BALKED = (msgspec.DecodeError, RecursionError)


def _counting(most: int) -> Callable[[Any, str], _Name]:
    """Take so many names; more end the decoding."""
    left = itertools.repeat(None, most)

    def hook(_type: Any, text: str) -> _Name:
        for _ in left:
            return _Name(text)
        raise ValueError

    return hook


@functools.cache
def _raw_first(most: int) -> msgspec.json.Decoder[msgspec.Struct]:
    """Take arrays that long at most. A list would be built to its end before it is measured."""
    fields = [(f"at{index}", msgspec.Raw, msgspec.Raw(b"")) for index in range(most)]
    return msgspec.json.Decoder(msgspec.defstruct("First", fields, array_like=True, forbid_unknown_fields=True))


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
        if _again(_raw_value, data) is None:
            _scan(data)


def check_depth(data: bytes, levels: int) -> None:
    """Refuse what :func:`nests` deeper: past what the decoders written in C take, a megabyte costs a second.

    Raises:
        JsonTextError: if it does. Whether it is JSON is for :func:`check` to say.
    """
    if nests(data, levels):
        raise JsonTextError(f"nested deeper than {levels} levels", 0)


def nests(data: bytes, levels: int) -> bool:
    """Tell whether a text nests deeper than ``levels``, or where it stops being JSON; takes no time to speak of.

    What is no deeper never counts as deeper. It is looked at every 256 brackets, so what is deeper by less may pass.
    """
    if data.count(b"[") + data.count(b"{") <= levels:
        return False
    depth, quoted = 0, 0
    for block in _shape(data):
        parts = block.split(b'"')
        outside = b"".join(parts[quoted::2])
        quoted ^= len(parts) - 1 & 1
        depth += 2 * outside.count(b"[") - len(outside)
        if depth > levels:
            return True
    return False


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


def members(data: bytes, most: int | None = None) -> list[tuple[str, bytes]]:
    """List an object's members as they stand: order, duplicates and the exact bytes of each value.

    Values are held to JSON's grammar; that their strings are UTF-8 is for :func:`check` to say.

    Args:
        data: The object.
        most: So many members at most; what follows them is neither read nor judged.

    Raises:
        JsonTextError: if the text is not a JSON object; a :class:`TooManyError` if it has more than ``most``.
    """
    try:
        return [(name.text, bytes(value)) for name, value in _members_decoder(most).decode(data).items()]
    except _BALKED:
        return list(_slow_members(data, most))


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


def elements(data: bytes, most: int | None = None) -> list[bytes]:
    """List the exact bytes of an array's elements.

    Args:
        data: The array.
        most: So many elements at most; what follows them is neither read nor judged.

    Raises:
        JsonTextError: if the text is not a JSON array; a :class:`TooManyError` if it has more than ``most``.
    """
    decoder: msgspec.json.Decoder[Any] = _raw_elements if most is None else _raw_first(most)
    try:
        return [bytes(value) for value in _values(decoder.decode(data))]
    except _BALKED:
        return [value for _, value in _children(data, _ARRAY, _again(decoder, data, _ARRAY))]


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
    if type(value) is str:
        # Most of what is encoded, at a fifth of the cost.
        return _encode_string(value)
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


def _shape(data: bytes) -> Iterator[bytes]:
    """Yield what opens and closes in a text, and its quotes, but for those of strings without any of that."""
    start = 0
    while start < len(data):
        # Parts end in a bracket, so that no escape is torn.
        found = _BRACKET.search(data, start + PART)
        end = found.end() if found else len(data)
        # Without its escapes, a text has quotes around strings only; and without what fills them, most are empty.
        bare = data[start:end].replace(rb"\\", b"").replace(rb"\"", b"")
        shape = bare.translate(_SHAPE, _FILLING).replace(b'""', b"")
        yield from (shape[at : at + STEP] for at in range(0, len(shape), STEP))
        start = end


def _malformed(position: int) -> NoReturn:
    raise JsonTextError("not JSON: malformed or cut off", position)


def _members_decoder(most: int | None) -> msgspec.json.Decoder[Any]:
    return _raw_members if most is None else msgspec.json.Decoder(_RawMembers, dec_hook=_counting(most))


def _values(decoded: Any) -> list[msgspec.Raw]:
    """The values of a container that a decoder took apart."""
    if isinstance(decoded, dict):
        return list(decoded.values())
    if isinstance(decoded, msgspec.Struct):
        return [value for value in msgspec.structs.astuple(decoded) if len(value)]
    return decoded if isinstance(decoded, list) else [decoded]


def _again(decoder: msgspec.json.Decoder[Any], data: bytes, opener: int | None = None) -> list[int] | None:
    """Decode what msgspec refused once more, without the surrogates that it cannot take: now its word is final.

    Returns:
        The lengths of the values. None if the text is too deep for msgspec, and it knows nothing.
    """
    # Escaped backslashes go first, so that each one left begins an escape. All that is respelled keeps its length, and
    # `replace` takes a tenth of what a pattern would: whoever writes the text chooses how often.
    plain = data.replace(rb"\\", rb"\/").replace(rb"\ud", rb"\u0").replace(rb"\uD", rb"\u0")
    try:
        return [len(value) for value in _values(decoder.decode(plain))]
    except RecursionError:
        return None
    except msgspec.ValidationError:
        if opener is not None and kind(data) == _KINDS[opener]:
            raise TooManyError(f"too many members or elements in this JSON {_KINDS[opener]}", 0) from None
        check(data)
        raise JsonTextError(f"not a JSON {_KINDS[opener or _OBJECT]}", _past_space(data, 0)) from None
    except msgspec.DecodeError as error:
        _check_utf8(data)
        told = _BYTE.search(str(error))
        _malformed(min(int(told[1]), len(data)) if told else len(data))


def _scan(data: bytes) -> None:
    """Check a text of any depth without msgspec."""
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


def _children(data: bytes, opener: int, lengths: list[int] | None = None) -> Iterator[tuple[bytes, bytes]]:
    """Yield (quoted name, value) of each member or element, whose lengths may be known; an element's name is empty."""
    known = None if lengths is None else iter(lengths)
    position = _past_space(data, 0)
    if not data.startswith(b"%c" % opener, position):
        _scan(data)
        raise JsonTextError(f"not a JSON {_KINDS[opener]}", position)
    match = _ENTER[opener].match(data, position) or _malformed(position)
    while match.group(1) is None:
        position = match.end()
        end = _end(data, position) if known is None else position + next(known)
        yield match.group(2), data[position:end]
        match = _FOLLOW[opener].match(data, end) or _malformed(end)
    _refuse_rest(data, match.end())


def _slow_members(data: bytes, most: int | None = None) -> Iterator[tuple[str, bytes]]:
    for name, value in _children(data, _OBJECT, _again(_members_decoder(most), data, _OBJECT)):
        _check_utf8(name)
        yield _decoder.raw_decode(name.decode())[0] if b"\\" in name else name[1:-1].decode(), value


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


# The exact type is asked for before `isinstance`, which in a workflow's sandbox is ten calls.
_CONTAINERS = (dict, list, tuple, Mapping)


class _Frame:
    """A container that is being written, and the step in it that is under way."""

    __slots__ = ("closer", "container", "separator", "step", "steps")

    def __init__(self, container: Mapping[Any, Any] | Sequence[Any]) -> None:
        self.container = container
        self.steps: Iterator[tuple[Any, Any]]
        if type(container) is dict or isinstance(container, Mapping):
            self.steps, self.separator, self.closer = iter(container.items()), b"{", b"}"
        else:
            self.steps, self.separator, self.closer = enumerate(container), b"[", b"]"
        self.step: Any = None


def _write(value: Any, parts: list[bytes], frames: list[_Frame]) -> None:
    inside: set[int] = set()
    while True:
        writer = _WRITERS.get(type(value))
        if writer is not None:
            parts.append(writer(value))
        elif type(value) is dict or isinstance(value, _CONTAINERS):
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
            if type(frame.step) is not str and not isinstance(frame.step, str):
                raise TypeError("is named by something that is not a string")
            parts.append(frame.separator + _encode_string(frame.step) + b":")
        else:
            parts.append(frame.separator)
        frame.separator = b","


def _encode_scalar(value: Any) -> bytes:
    """Encode what is of none of the exact types."""
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
