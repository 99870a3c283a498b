"""Options and arguments that commands of several rooms take. What their values lead to is up to the command."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ("AsJson", "Config", "Recorded", "Run", "unprojected")

Config = Annotated[str | None, typer.Option("--config", metavar="FILE", help="Settings; default openwop-mcp.toml.")]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON value, also on failure.")]


def unprojected(run: str | None) -> str | None:
    """A run id, also where it is given as paths of the host have it, with ~2F for its slash."""
    if run is None or "~2F" not in run:
        return run
    # Here for the same reason as in `running_worker`.
    from host.errors import HostError
    from host.ids import BoundId

    try:
        return str(BoundId.from_segment(run, name="RUN"))
    except HostError:
        # Workflows of one's own have any id.
        return run


Run = Annotated[str, typer.Argument(metavar="RUN", help="A run id, as 'runs start' prints it.", callback=unprojected)]


Recorded = Annotated[
    str,
    typer.Argument(
        metavar="RUN|FILE",
        help="A run id, or a history that 'runs export' wrote, for which no Temporal is asked.",
        callback=unprojected,
    ),
]
