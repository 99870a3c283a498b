"""An interrupt in words, for people: what it asks, since when and for how long, and what can be answered.

Pure. Words of servers stand in lines of their own, which say so, and nothing in them acts on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from openwop_mcp import jsontext, terminal
from openwop_mcp.questions.form import ANSWER, Field, NoFormError, Prompt, by_place, form_of

__all__ = ("described", "ends_at", "in_brief", "in_full", "listed", "name_of", "quoted")

UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"), (1, "s"))
"""In what a time is told: the largest of which there are two."""


def in_brief(payload: bytes, asked_at: str, now: float) -> Iterator[str]:
    """What somebody has to know to see whether a question is for them, in lines.

    Args:
        payload: JSON text of the ``InterruptPayload`` (OpenWOP v2, interrupts).
        asked_at: Since when it is asked, RFC 3339; empty where that is not known.
        now: Seconds since 1970.
    """
    yield _standing(payload, asked_at, now)
    data = _object(jsontext.member(payload, "data"))
    about = _object(data.get("artifactData"))
    for value in (data.get("title"), data.get("description"), about.get("idempotencyKey"), about.get("arguments")):
        if value is not None:
            yield from quoted(_plain(value))
    if jsontext.member(payload, "kind") != b'"approval"':
        yield from _asked(payload)


def in_full(payload: bytes, asked_at: str, now: float) -> Iterator[str]:
    """All that a question says, and what it takes, in lines. See :func:`in_brief`."""
    yield _standing(payload, asked_at, now)
    data = _object(jsontext.member(payload, "data"))
    for name, told in (("contextType", "asked by"), ("approversList", "approversList")):
        if name in data:
            yield f"{told} {terminal.escape(_plain(data[name]))}"
    try:
        for prompt in form_of(payload).prompts:
            yield from shown(prompt)
    except NoFormError as error:
        yield terminal.escape(str(error))
    if (schema := jsontext.member(payload, "resumeSchema")) is not None:
        yield f"an answer holds to {terminal.escape(schema.decode())}"


def ends_at(payload: bytes, asked_at: str) -> float | None:
    """Seconds since 1970 after which nobody is waited for any more; None for as long as it takes."""
    timeout = jsontext.member(payload, "timeoutMs")
    if timeout is None or not asked_at:
        return None
    return datetime.fromisoformat(asked_at).timestamp() + float(jsontext.decode(timeout)) / 1000


def shown(prompt: Prompt) -> Iterator[str]:
    """A prompt in lines: what is asked, what can be done about it, and the fields, each with what it takes."""
    if prompt.key:
        yield f"{terminal.escape(prompt.key)}:"
    yield from quoted(prompt.text)
    if list(prompt.actions) != [ANSWER]:
        yield f"  {listed(list(prompt.actions))}"
    for fields in prompt.actions.values():
        for field in fields:
            yield from described(field, default=True)


def quoted(text: str) -> Iterator[str]:
    """Somebody else's words in lines, each of which says that it is."""
    for line in text.split("\n"):
        yield f"  | {terminal.escape(line)}"


def described(field: Field, *, default: bool = False) -> Iterator[str]:
    """A field in lines: its name, what it takes, and what there is to choose from.

    Args:
        field: The field.
        default: Whether to tell its default too, which else stands where it is asked for.
    """
    title = f" {terminal.escape(field.title)}" if field.title and field.title != field.name else ""
    needed = "" if field.required else ", optional"
    filled = f", default {terminal.escape(field.default.decode())}" if default and field.default is not None else ""
    yield f"  {name_of(field)}:{title} ({terminal.escape(field.wanted)}{needed}{filled})"
    if field.description:
        yield from quoted(field.description)
    for place, choice in enumerate(field.choices, 1):
        number = f"{place}  " if by_place(field.choices) else ""
        told = "" if choice.title == choice.value else f"  ({terminal.escape(choice.title)})"
        yield f"    {number}{terminal.escape(choice.value)}{told}"


def name_of(field: Field) -> str:
    """A field's name, as it is shown."""
    return terminal.escape(field.name) or ANSWER


def listed(words: Sequence[str]) -> str:
    """Words one after the other, of which one is to be chosen."""
    *rest, last = words
    return f"{', '.join(rest)} or {last}" if rest else last


def _standing(payload: bytes, asked_at: str, now: float) -> str:
    kind = str(jsontext.decode(jsontext.member(payload, "kind") or b'"interrupt"'))
    since = f", asked {_span(now - datetime.fromisoformat(asked_at).timestamp())} ago" if asked_at else ""
    until = ends_at(payload, asked_at)
    return f"{terminal.escape(kind)}{since}" + ("" if until is None else f", expires in {_span(until - now)}")


def _span(seconds: float) -> str:
    size, unit = next((one for one in UNITS if seconds >= 2 * one[0]), UNITS[-1])
    return f"{max(seconds, 0) // size:.0f} {unit}"


def _asked(payload: bytes) -> Iterator[str]:
    try:
        prompts = form_of(payload).prompts
    except NoFormError as error:
        yield terminal.escape(str(error))
        return
    for prompt in prompts:
        if prompt.key:
            yield f"{terminal.escape(prompt.key)}:"
        yield from quoted(prompt.text)


def _plain(value: bytes) -> str:
    told: Any = jsontext.decode(value) if jsontext.kind(value) == "string" else None
    return value.decode() if told is None else str(told)


def _object(text: bytes | None) -> dict[str, bytes]:
    """The members of an object; none of what is masked."""
    return dict(jsontext.members(text)) if text is not None and jsontext.kind(text) == "object" else {}
