"""How the client under test says how it ended: one line of JSON, the last of its standard output.

An exit status cannot say it: a client that a signal ended has none, which the suite takes for 0, and a refusal has the
same one whatever was refused.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ("Report",)


@dataclass(frozen=True, slots=True)
class Report:
    """Completed, or what ended it: a cause in one word, and what the error said."""

    completed: bool
    cause: str = ""
    message: str = ""

    def __str__(self) -> str:
        return "completed" if self.completed else f"{self.cause}: {self.message}"

    def line(self) -> str:
        return json.dumps({"report": asdict(self)})

    @classmethod
    def last_of(cls, output: str) -> Report | None:
        """The report that an output ends with, if it does."""
        lines = output.strip().splitlines()
        try:
            return cls(**json.loads(lines[-1])["report"])
        except (IndexError, KeyError, TypeError, ValueError):
            return None
