"""docs/reference/commands.md, from the command line itself."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer.main

from commands.app import app
from tests.support.tables import cell, table

HEAD = """\
# All commands

Written by `make reference` from the code. Each is `python worker.py COMMAND`, with its options before or after its
arguments, and has a `--help`. Standard output carries what was asked for, standard error everything else. The exit
status is 0 only if what was asked for happened; [errors.md](errors.md#the-exit-status-of-a-command) has the others.
With `--json` a failure is one JSON value too: `{"error": {"code", "message", "details"}}`. `worker.py tools SERVER` is
short for `worker.py tools list SERVER`. No command lists runs: the host does (`GET /runs`), and so does
`temporal workflow list`.
"""


def commands() -> dict[str, Any]:
    """Each command by how it is written, in the order of the help."""

    def found(group: Any, before: str) -> Iterator[tuple[str, Any]]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from found(command, f"{before}{name} ")
            else:
                yield f"{before}{name}", command

    return dict(found(typer.main.get_command(app), ""))


def _kind(annotation: Any) -> str:
    """What stands for a value that has no name of its own."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return _kind(next(one for one in get_args(annotation) if one is not types.NoneType))
    if get_origin(annotation) is Literal:
        return "|".join(get_args(annotation))
    return {int: "NUMBER", Path: "FILE"}.get(annotation, "TEXT")


def _value(option: Any) -> str:
    return option.metavar or _kind(option.type_descriptor.annotation)


def _argument(argument: Any) -> str:
    return argument.metavar or argument.name.upper()


def _usage(name: str, command: Any) -> str:
    words = [
        _argument(one) if one.required else f"[{_argument(one)}]"
        for one in command.params
        if one.param_type_name == "argument"
    ]
    return " ".join(["worker.py", name, *words, "[OPTIONS]"])


def _rows(command: Any) -> Iterator[tuple[str, str]]:
    for one in command.params:
        if one.param_type_name == "argument":
            yield f"`{cell(_argument(one))}`", cell(one.help or "")
        else:
            spelled = ", ".join(one.opts) + ("" if getattr(one, "is_flag", False) else f" {_value(one)}")
            yield f"`{cell(spelled)}`", cell(one.help or "")


def page() -> str:
    """The page as it has to be."""
    parts = [HEAD]
    for name, command in commands().items():
        parts.append(f"## `{name}`\n\n    {_usage(name, command)}\n\n{cell(command.help)}\n")
        if rows := list(_rows(command)):
            parts.append(table(("argument or option", ""), rows))
    return "\n".join(parts)
