"""How a command that did not do what was asked for ends: its exit status, and what people and machines are told."""

from __future__ import annotations

from dataclasses import dataclass, replace

import typer
from temporalio.service import RPCError

from commands.errors import CommandError, StartedRunError, UnansweredError
from commands.printing import complain, print_json
from commands.prose import failure_prose
from openwop_mcp import jsontext
from openwop_mcp.catalogs import CatalogRefusedError
from openwop_mcp.config import SettingsError
from openwop_mcp.embedded import EmbeddedTemporalError
from openwop_mcp.encryption import EncryptionError
from openwop_mcp.errors import McpError, RpcError
from openwop_mcp.failures import refusal
from openwop_mcp.runs.definition import DefinitionError
from openwop_mcp.runs.projection import ProjectionError
from openwop_mcp.storage import LostValueError, StorageError
from workflows.client import InterruptRefusedError, RunExpiredError, RunNotFoundError
from workflows.definitions import DefinitionNotFoundError
from workflows.replay import HistoryFileError

__all__ = ("EXPECTED", "Ending", "known")

EXPECTED = (
    CatalogRefusedError,
    CommandError,
    DefinitionError,
    DefinitionNotFoundError,
    EmbeddedTemporalError,
    EncryptionError,
    HistoryFileError,
    InterruptRefusedError,
    LostValueError,
    McpError,
    ProjectionError,
    RunExpiredError,
    RunNotFoundError,
    StorageError,
)
"""What a command can end with that is no fault of this program: told in a sentence, without a traceback."""

USAGE = 2
"""Exit status where the command line or the settings must change first."""

INTERRUPTED = 130
"""Exit status that shells give to what SIGINT ended."""


def known(error: BaseException) -> tuple[bytes, str | None]:
    """What is known beside a failure's message: details (JSON object text), and of a call its delivery."""
    match error:
        case CommandError():
            return error.details, error.delivery
        case McpError():
            details = refusal(error).details
            if isinstance(error, RpcError):
                details = jsontext.build([*jsontext.members(details), ("error", error.error)])
            return details, error.delivery.value
        case _:
            return b"{}", None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a command that did not do what was asked for ends."""

    status: int
    code: str
    message: str
    details: bytes = b"{}"
    delivery: str | None = None
    expected: bool = True
    run_id: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> Ending:
        """Read it from what was raised."""
        match error:
            case SettingsError():
                return cls(USAGE, "validation_error", str(error))
            case typer.TyperException():
                context = getattr(error, "ctx", None)
                hint = f" (see '{context.command_path} --help')" if context and error.format_message() else ""
                return cls(error.exit_code, "validation_error", error.format_message() + hint)
            case RPCError():
                return cls(1, "service_unavailable", f"Temporal did not do it: {error.message}")
            case KeyboardInterrupt() | typer.Abort() | UnansweredError():
                return cls(INTERRUPTED, "cancelled", str(error) or "given up; what runs in Temporal goes on")
            case _ if isinstance(error, EXPECTED):
                return cls(1, getattr(error, "code", "internal_error"), str(error), *known(error))
            case _:
                return cls(1, "internal_error", f"{type(error).__name__}: {error}", expected=False)

    @classmethod
    def after_start(cls, error: StartedRunError) -> Ending:
        """Read it from what was raised while a run was under way that the command had started."""
        ending = replace(cls.of(error.__cause__ or error), run_id=error.run_id)
        if ending.status != INTERRUPTED:
            return ending
        return replace(
            ending,
            message=(
                f"given up waiting; the run goes on: see 'worker.py runs show {error.run_id}', or end it with"
                f" 'worker.py runs cancel {error.run_id}'"
            ),
        )

    @property
    def prose(self) -> str:
        """What people are told: of a call its code and delivery first, which is what the documents' tables go by."""
        return self.message if self.delivery is None else failure_prose(self.code, self.delivery, self.message)

    def encode(self) -> bytes:
        """JSON text of code, message and details."""
        return jsontext.build(
            [
                ("code", jsontext.encode(self.code)),
                ("message", jsontext.encode(self.message)),
                ("details", self.details),
            ]
        )

    def tell(self, *, as_json: bool) -> None:
        """Say it: as JSON on standard output where that was asked for, else on standard error."""
        if as_json:
            run = [] if self.run_id is None else [("runId", jsontext.encode(self.run_id))]
            print_json(jsontext.build([("error", self.encode()), *run]))
        elif self.message:
            complain(self.prose)
