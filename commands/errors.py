"""Why a command ended otherwise than asked for. What people are told of it is the business of ``ending``."""

from __future__ import annotations

__all__ = ("CommandError", "StartedRunError", "UnansweredError")


class CommandError(Exception):
    """A command did not do what was asked for.

    Attributes:
        code: OpenWOP error code.
        details: JSON object text.
        delivery: What is known of the request, where it was a call that failed.
    """

    def __init__(
        self, message: str, *, code: str = "internal_error", details: bytes = b"{}", delivery: str | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.details = details
        self.delivery = delivery


class UnansweredError(Exception):
    """Whoever was asked at the terminal has gone; the message says what follows from it."""


class StartedRunError(Exception):
    """A command ended otherwise than asked for after it had started a run; its cause says how.

    Attributes:
        run_id: The run.
    """

    def __init__(self, run_id: str) -> None:
        super().__init__(run_id)
        self.run_id = run_id
