"""A question as something to fill in: its schemas as prompts, and what a person types as JSON values.

Pure: reads no terminal and no file. What is typed is nowhere repeated in what is said about it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from openwop_mcp import jsontext, schemas
from openwop_mcp.questions.elicitation import ACTIONS
from openwop_mcp.questions.formats import FORMATS

__all__ = (
    "ANSWER",
    "EMPTY",
    "NONE",
    "Choice",
    "Field",
    "Filled",
    "Form",
    "NoFormError",
    "NotWantedError",
    "Prompt",
    "by_place",
    "fields_of",
    "form_of",
    "read_typed",
)

NONE = ":none"
"""Typed to leave a field out that has a default, which an empty line would take."""

EMPTY = ":empty"
"""Typed for a text of no characters, or for none of several choices."""

ANSWER = "answer"
"""The one thing to do about a question that can only be answered. It is not sent."""

HIDDEN = "what it asks is not shown, as it may hold what is sensitive"
"""Why what is masked cannot be asked."""

MASKED = "[REDACTED]"
"""What stands in place of a question that is not shown (OpenWOP v2, masking)."""

Kind = Literal["text", "number", "integer", "boolean", "choice", "choices", "json"]


class NoFormError(Exception):
    """A question cannot be asked piece by piece; the message says why."""


class NotWantedError(Exception):
    """What was typed is not what is asked for; the message says what is, and repeats nothing of it."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values, and how it is called."""

    value: str
    title: str


@dataclass(frozen=True, slots=True)
class Field:
    """One value that is asked for.

    Attributes:
        name: Its name in what is sent; empty where it is the whole.
        schema: JSON text of the schema that it has to hold to.
        kind: How it is typed.
        wanted: What can be written, for people.
        required: Whether it has to be there.
        title: How it is called, in the words of who asks.
        description: What they say of it.
        default: JSON text of what an empty line stands for.
        choices: What there is to choose from.
        format: One of :data:`~openwop_mcp.questions.formats.FORMATS`; empty for any text.
    """

    name: str
    schema: bytes
    kind: Kind
    wanted: str
    required: bool = True
    title: str = ""
    description: str = ""
    default: bytes | None = None
    choices: tuple[Choice, ...] = ()
    format: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing that is asked.

    Attributes:
        key: Its name in what is sent; empty where it is the only one.
        text: What is asked, in the words of who asks: several lines, of any content.
        actions: What can be done about it, and what has to be given with that.
        is_form: Whether a server asks for content, which an accepted form has also where it has no fields.
    """

    key: str
    text: str
    actions: Mapping[str, tuple[Field, ...]]
    is_form: bool = False


@dataclass(frozen=True, slots=True)
class Filled:
    """What a person said to a prompt.

    Attributes:
        action: One of its actions.
        values: JSON texts of the fields that were filled in.
    """

    action: str
    values: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Form:
    """All that a question asks.

    Attributes:
        prompts: What is asked, in order.
        schema: JSON text of the schema of the answer as a whole; None where there is none.
        assemble: Makes the answer of what was said to each prompt.
    """

    prompts: tuple[Prompt, ...]
    schema: bytes | None
    assemble: Callable[[Sequence[tuple[Prompt, Filled]]], bytes]

    def answer(self, filled: Sequence[Filled]) -> bytes:
        """JSON text of the ``resumeValue``.

        Args:
            filled: One for each prompt.
        """
        return self.assemble(tuple(zip(self.prompts, filled, strict=True)))

    def fault(self, answer: bytes) -> str | None:
        """Why an answer would be refused, as far as its schema says so; None where it would not."""
        verdict = schemas.check(self.schema, answer) if self.schema is not None else None
        if verdict is None or verdict.state != "mismatch":
            return None
        return f"{(verdict.path or '').strip('/').replace('/', '.') or 'the answer'} {verdict.reason}"


def form_of(payload: bytes) -> Form:
    """What an interrupt asks, to be filled in.

    Args:
        payload: JSON text of an ``InterruptPayload`` (OpenWOP v2, interrupts).

    Raises:
        NoFormError: It cannot be.
    """
    asked = _members(payload)
    data, schema = _members(asked.get("data", b"")), asked.get("resumeSchema")
    match _text(asked.get("kind", b"")):
        case "approval" if "actions" not in data:
            raise NoFormError(HIDDEN)
        case "approval":
            return Form((_approval(data),), schema, _as_approval)
        case "clarification":
            return _clarification(data, schema)
        case "external-event":
            told = f"the event {_text(data.get('eventType', b''))}\nof {data.get('correlation', b'{}').decode()}"
            # Who answers by hand says that it has happened; what else it brought may be unknown.
            return Form((_value(told, schema or b"{}", data.get("correlation")),), schema, _as_value)
        case "custom":
            told = f"{_text(data.get('customKind', b''))}\n{data.get('payload', b'').decode()}"
            return Form((_value(told, schema or b"{}"),), schema, _as_value)
    raise NoFormError("it is of a kind that is not known here")


def fields_of(schema: bytes) -> tuple[Field, ...]:
    """The fields of a form: one for each property of a flat schema, in its order.

    Args:
        schema: JSON text of the schema of an object, from anywhere.
    """
    given = _members(schema)
    required = jsontext.decode(given.get("required", b"[]"))
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    return tuple(
        _field(name, one, required=name in needed) for name, one in _members(given.get("properties", b"")).items()
    )


def read_typed(field: Field, typed: str) -> bytes | None:
    """Read what was typed.

    Args:
        field: What it is to be.
        typed: A line without its end.

    Returns:
        JSON text of the value, numbers as they were spelled; None where the field is left out.

    Raises:
        NotWantedError: It is not what is asked for.
    """
    if typed in {"", NONE}:
        value = field.default if typed == "" else None
        if value is None and field.required:
            raise NotWantedError(f"this has to be answered: write {field.wanted}")
        return value
    # JSON may have line feeds in it, and says by itself what else it cannot hold.
    barred = {"Cs"} if field.kind == "json" else {"Cc", "Cs"}
    if any(unicodedata.category(character) in barred for character in typed):
        raise NotWantedError("it holds control characters, as arrow keys make them: write the line anew")
    value = _EMPTIES.get(field.kind) if typed == EMPTY else _READERS[field.kind](field, typed)
    if value is None:
        raise NotWantedError(f"write {field.wanted}")
    verdict = schemas.check(field.schema, value)
    if verdict.state == "mismatch":
        raise NotWantedError(f"write {field.wanted}; this {verdict.reason}")
    return value


def by_place(choices: Sequence[Choice]) -> bool:
    """Whether a number means a place: not where it could be a value."""
    return not any(one.value.strip().isdecimal() for one in choices)


# --- what is asked ----------------------------------------------------------------------------------------------------


def _members(text: bytes) -> dict[str, bytes]:
    """The members of an object; none of what is no object, as a server may have written anything."""
    return dict(jsontext.members(text)) if text and jsontext.kind(text) == "object" else {}


def _text(text: bytes) -> str:
    value = jsontext.decode(text) if text else ""
    return value if isinstance(value, str) else ""


def _approval(data: Mapping[str, bytes]) -> Prompt:
    about = [f"{name}: {value.decode()}" for name, value in _members(data.get("artifactData", b"")).items()]
    if not about and "artifactData" in data:
        about = [data["artifactData"].decode()]
    told = [_text(data.get("title", b"")), _text(data.get("description", b"")), *about]
    actions = [str(action) for action in jsontext.decode(data.get("actions", b"[]"))]
    return Prompt("", "\n".join(part for part in told if part), {action: _WITH.get(action, ()) for action in actions})


def _clarification(data: Mapping[str, bytes], schema: bytes | None) -> Form:
    text = data.get("questions", b"")
    if not text or jsontext.kind(text) != "array":
        raise NoFormError(HIDDEN)
    questions = [_members(one) for one in jsontext.elements(text)]
    if any(_text(one.get("question", b"")) == MASKED for one in questions):
        # Nothing else of it says then who asks, and so how it is answered.
        raise NoFormError(HIDDEN)
    if _is_server(schema, questions):
        return Form(tuple(_request(one) for one in questions), schema, _as_input)
    return Form(tuple(_question(one) for one in questions), schema, _as_answers)


def _is_server(schema: bytes | None, questions: Sequence[Mapping[str, bytes]]) -> bool:
    """Whether a server asks, each of whose questions can be declined; an author's have to be answered."""
    answers = _members(_members(schema or b"").get("properties", b""))
    told = [answers.get(_text(one.get("id", b"")), b"") for one in questions]
    declinable = jsontext.encode({"enum": ACTIONS})
    return all(_members(_members(one).get("properties", b"")).get("action") == declinable for one in told)


def _request(one: Mapping[str, bytes]) -> Prompt:
    schema = one.get("schema")
    fields = () if schema is None else fields_of(schema)
    actions = {action: fields if action == "accept" else () for action in ACTIONS}
    return Prompt(_text(one["id"]), _text(one["question"]), actions, is_form=schema is not None)


def _question(one: Mapping[str, bytes]) -> Prompt:
    field = _field("", one.get("schema", b'{"type":"string"}'), required=True)
    return Prompt(_text(one["id"]), _text(one["question"]), {ANSWER: (field,)})


def _value(told: str, schema: bytes, default: bytes | None = None) -> Prompt:
    fields = fields_of(schema) if default is None else ()
    return Prompt("", told, {ANSWER: fields or (_field("", schema, required=True, default=default),)})


# --- how it is answered -----------------------------------------------------------------------------------------------

_Said = Sequence[tuple[Prompt, Filled]]


def _as_input(said: _Said) -> bytes:
    """The answer to a server: for each of its requests what was done, and the content of what was accepted."""
    answers = []
    for prompt, filled in said:
        with_content = filled.action == "accept" and prompt.is_form
        content = [("content", jsontext.build(filled.values))] if with_content else []
        answers.append((prompt.key, jsontext.build([("action", jsontext.encode(filled.action)), *content])))
    return jsontext.build(answers)


def _as_answers(said: _Said) -> bytes:
    answers = jsontext.build((prompt.key, value) for prompt, filled in said for _, value in filled.values)
    return jsontext.build([("answers", answers)])


def _as_approval(said: _Said) -> bytes:
    [(_, filled)] = said
    given = dict(filled.values)
    if filled.action == "refine" and given:
        given = {"refineFeedback": jsontext.build([("scope", b'"whole"'), *given.items()])}
    return jsontext.build([("action", jsontext.encode(filled.action)), *given.items()])


def _as_value(said: _Said) -> bytes:
    [(_, filled)] = said
    whole = dict(filled.values).get("")
    return jsontext.build(filled.values) if whole is None else whole


# --- fields -----------------------------------------------------------------------------------------------------------


def _field(name: str, schema: bytes, *, required: bool, default: bytes | None = None) -> Field:
    given = jsontext.decode(schema)
    told: Mapping[str, Any] = given if isinstance(given, dict) else {}
    items = told.get("items")
    choices = _choices(items if told.get("type") == "array" and isinstance(items, dict) else told)
    kind = _kind(told, choices)
    if default is None and "default" in told:
        default = jsontext.member(schema, "default")
    if default is not None and not _is_default(schema, default):
        default = None
    form = told.get("format") if kind == "text" else None
    named = form if isinstance(form, str) and form in FORMATS else ""
    return Field(
        name=name,
        schema=schema,
        kind=kind,
        wanted=_wanted(kind, told, named, choices),
        required=required,
        title=str(told.get("title", "")),
        description=str(told.get("description", "")),
        default=default,
        choices=choices if kind in {"choice", "choices"} else (),
        format=named,
    )


def _is_default(schema: bytes, default: bytes) -> bool:
    """Whether an empty line may stand for it. A form has thousands of fields; none may take long to find that out."""
    verdict = schemas.check_at_once(schema, default)
    return verdict is not None and verdict.state != "mismatch"


def _kind(told: Mapping[str, Any], choices: Sequence[Choice]) -> Kind:
    kind = told.get("type")
    if choices and kind == "array":
        # Those with commas in them cannot be told apart by these; where places do not count either, nothing is left.
        return "choices" if by_place(choices) or not any("," in one.value for one in choices) else "json"
    if choices:
        return "choice"
    if kind == "string" and "enum" not in told:
        return "text"
    return kind if kind in ("number", "integer", "boolean") and "enum" not in told else "json"


def _choices(told: Mapping[str, Any]) -> tuple[Choice, ...]:
    """The values of an enumeration of texts, in each of the ways in which MCP writes one; none of any other schema."""
    values = told.get("enum")
    if isinstance(values, list) and all(isinstance(one, str) for one in values):
        named = told.get("enumNames")
        titles = named if isinstance(named, list) and len(named) == len(values) else values
        return tuple(Choice(value, str(title)) for value, title in zip(values, titles, strict=True))
    options = told.get("oneOf", told.get("anyOf"))
    if isinstance(options, list) and all(
        isinstance(one, dict) and isinstance(one.get("const"), str) for one in options
    ):
        return tuple(Choice(one["const"], str(one.get("title", one["const"]))) for one in options)
    return ()


def _wanted(kind: Kind, told: Mapping[str, Any], form: str, choices: Sequence[Choice]) -> str:
    match kind:
        case "text":
            size = _range(told.get("minLength"), told.get("maxLength"))
            return (FORMATS[form].wanted if form else "a text") + (f" of {size} characters" if size else "")
        case "number" | "integer":
            size = _range(told.get("minimum"), told.get("maximum"))
            return _WANTED[kind] + (f", {size}" if size else "")
        case "choices":
            size = _range(told.get("minItems"), told.get("maxItems"))
            return f"{size or 'any'} of these, with commas between"
        case "choice" if by_place(choices):
            return f"one of these, or 1 to {len(choices)}"
        case _:
            return _WANTED[kind]


def _range(least: object, most: object) -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f"{least} or more"
    return f"at most {most}" if least is None else f"{least} to {most}"


_WANTED: Mapping[Kind, str] = {
    "number": "a number",
    "integer": "a whole number",
    "boolean": "yes or no",
    "choice": "one of these",
    "json": "JSON, or @FILE to read a file",
}


_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"-?(0|[1-9]\d*)", re.ASCII)
_TRUTH = {"yes": b"true", "y": b"true", "true": b"true", "no": b"false", "n": b"false", "false": b"false"}


def _read_text(field: Field, typed: str) -> bytes | None:
    return jsontext.encode(typed) if not field.format or FORMATS[field.format].fits(typed) else None


def _read_choice(field: Field, typed: str) -> bytes | None:
    value = _chosen(field.choices, typed)
    return None if value is None else jsontext.encode(value)


def _read_choices(field: Field, typed: str) -> bytes | None:
    values = [_chosen(field.choices, one) for one in typed.split(",")]
    return None if None in values else jsontext.encode(list(dict.fromkeys(values)))


def _chosen(choices: Sequence[Choice], typed: str) -> str | None:
    """The value that is meant by its place, counted from 1, or as it stands."""
    for value in (typed, typed.strip()):
        if any(one.value == value for one in choices):
            return value
    place = int(typed) if by_place(choices) and _INTEGER.fullmatch(typed.strip()) else 0
    return choices[place - 1].value if 0 < place <= len(choices) else None


def _read_json(_: Field, typed: str) -> bytes | None:
    text = typed.strip().encode()
    try:
        jsontext.check(text)
    except jsontext.JsonTextError:
        return None
    return text


def _spelled(pattern: re.Pattern[str]) -> Callable[[Field, str], bytes | None]:
    return lambda _, typed: typed.strip().encode() if pattern.fullmatch(typed.strip()) else None


_READERS: Mapping[Kind, Callable[[Field, str], bytes | None]] = {
    "text": _read_text,
    "number": _spelled(_NUMBER),
    "integer": _spelled(_INTEGER),
    "boolean": lambda _, typed: _TRUTH.get(typed.strip().lower()),
    "choice": _read_choice,
    "choices": _read_choices,
    "json": _read_json,
}

_EMPTIES: Mapping[Kind, bytes] = {"text": b'""', "choices": b"[]"}

_WITH: Mapping[str, tuple[Field, ...]] = {
    "edit-accept": (_field("editedArtifactData", b"{}", required=True),),
    "refine": (_field("text", b'{"type":"string","title":"what is to change"}', required=False),),
}
"""What is given with an action of an approval."""
