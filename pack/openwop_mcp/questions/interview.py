"""The conversation in which a person fills in a form, line by line: what is shown, what is asked again, what is sent.

Pure but for the person at its other end. Shows words of servers so that they can neither act nor pass for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from openwop_mcp import jsontext, terminal
from openwop_mcp.questions.form import (
    ANSWER,
    EMPTY,
    NONE,
    Field,
    Filled,
    Form,
    NotWantedError,
    Prompt,
    read_typed,
)
from openwop_mcp.questions.telling import described, listed, name_of, quoted

__all__ = ("Person", "interview")

BACK = ":back"
"""Typed in the middle of a form to choose again what to do about it."""

HELP = (
    f"An empty line takes what stands in [ ]. {NONE} leaves a value out, {EMPTY} is an empty text or no choice, {BACK}"
    " goes back to what to do about the question. Ctrl-C ends all of it, and nothing is sent."
)
"""What is told first."""


class Person(Protocol):
    """Who fills in a form."""

    def tell(self, text: str) -> None:
        """Show lines, in which nothing acts on a terminal."""

    def ask(self, prompt: str) -> str:
        """Show a prompt and take a line, without its end.

        Raises:
            NotWantedError: The line cannot be had as a whole.
            EOFError: There is none any more.
        """

    def load(self, name: str) -> str:
        """The text of a file.

        Raises:
            NotWantedError: It cannot be read.
        """


class _BackError(Exception):
    """Another action is to be chosen."""


def interview(form: Form, person: Person) -> bytes | None:
    """Ask a person all that a form asks, and once more whether to send it.

    Args:
        form: The form.
        person: Who fills it in.

    Returns:
        JSON text of the ``resumeValue``; None where it is not to be sent.

    Raises:
        EOFError: The person has gone.
    """
    person.tell(HELP)
    while True:
        answer = form.answer([_filled(prompt, person) for prompt in form.prompts])
        if (fault := form.fault(answer)) is not None:
            person.tell(f"\nThat would be refused: {terminal.escape(fault)}. Once more:")
            continue
        person.tell(f"\nThis would be sent:\n    {terminal.escape(answer.decode())}")
        match _one_of(("yes", "again", "no"), "send it: yes, again (ask me once more) or no? ", person):
            case "yes":
                return answer
            case "no":
                return None


def _filled(prompt: Prompt, person: Person) -> Filled:
    person.tell("")
    if prompt.key:
        person.tell(f"{terminal.escape(prompt.key)}:")
    person.tell("\n".join(quoted(prompt.text)))
    while True:
        action = _action(prompt, person)
        try:
            given = [(field.name, _value(field, person)) for field in prompt.actions[action]]
        except _BackError:
            continue
        return Filled(action, tuple((name, value) for name, value in given if value is not None))


def _action(prompt: Prompt, person: Person) -> str:
    actions = list(prompt.actions)
    if actions == [ANSWER]:
        return ANSWER
    return _one_of(actions, f"{listed(actions)}? ", person)


def _one_of(words: Sequence[str], prompt: str, person: Person) -> str:
    """The word that is typed, or of which enough is to tell it from the others."""
    while True:
        try:
            typed = person.ask(prompt).strip().lower()
        except NotWantedError:
            typed = ""
        meant = [word for word in words if word == typed] or [word for word in words if word.startswith(typed)]
        if typed and len(meant) == 1:
            return meant[0]
        person.tell(f"write {listed(words)}, or as much of one as tells it from the others")


def _value(field: Field, person: Person) -> bytes | None:
    person.tell("\n".join(described(field)))
    default = "" if field.default is None else f" [{terminal.escape(_plain(field.default))}]"
    while True:
        try:
            typed = person.ask(f"  {name_of(field)}{default}: ")
            if typed == BACK:
                raise _BackError
            if field.kind == "json" and typed.startswith("@"):
                typed = person.load(typed[1:])
            return read_typed(field, typed)
        except NotWantedError as error:
            person.tell(f"    {terminal.escape(str(error))}")


def _plain(value: bytes) -> str:
    """A value as it would be typed."""
    told = jsontext.decode(value)
    if isinstance(told, list):
        return ", ".join(str(one) for one in told)
    return told if isinstance(told, str) else {b"true": "yes", b"false": "no"}.get(value, value.decode())
