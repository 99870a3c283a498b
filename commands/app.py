"""The command line as a whole: its commands in the order of the help, and how one of them is run."""

from __future__ import annotations

import difflib
import logging

import typer

from commands import audit, calls, codec, interrupts, runs, serving, tools
from commands.ending import Ending
from commands.errors import StartedRunError
from commands.process import prepare_streams
from openwop_mcp.config import TOOLS_COMMANDS

__all__ = ("main",)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="MCP servers as durable workflow nodes on Temporal, recorded byte for byte.",
)
app.add_typer(serving.app)
app.add_typer(calls.app)
app.add_typer(audit.app)
app.add_typer(codec.app)
app.add_typer(tools.app, name="tools")
app.add_typer(runs.app, name="runs")
app.add_typer(interrupts.app, name="interrupts")


def main(arguments: list[str]) -> int:
    """Run a command; returns the exit status."""
    prepare_streams()
    try:
        arguments = spelled_out(arguments)
        status = app(arguments, prog_name="worker.py", standalone_mode=False)
    except BrokenPipeError:
        return 1
    # All of them: the interpreter must not tear itself down with a client of Temporal in it, whatever went wrong.
    except (KeyboardInterrupt, Exception) as error:
        ending = Ending.after_start(error) if isinstance(error, StartedRunError) else Ending.of(error)
        if not ending.expected:
            logging.getLogger(__name__).exception("this is a fault of worker.py")
        ending.tell(as_json="--json" in arguments)
        return ending.status
    return status if isinstance(status, int) else 0


def spelled_out(arguments: list[str]) -> list[str]:
    """The arguments, with the command that 'tools SERVER' leaves out.

    Raises:
        typer.BadParameter: It is no server that stands there, since more follows than a server takes.
    """
    if arguments[:1] != ["tools"] or len(arguments) < 2 or arguments[1] in TOOLS_COMMANDS | {"--help"}:  # noqa: PLR2004
        return arguments
    word, *rest = arguments[1:]
    if rest and not rest[0].startswith("-") and not word.startswith("-"):
        near = difflib.get_close_matches(word, sorted(TOOLS_COMMANDS), n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"write one of {', '.join(sorted(TOOLS_COMMANDS))}"
        raise typer.BadParameter(f"no command '{word}': {hint}", param_hint="'tools'")
    return ["tools", "list", *arguments[1:]]
