"""Requests made up from an OpenAPI document, in a process of their own.

    python -m tests.support.fuzz FILE

The fuzzer loads its modules in several threads when it comes to need them. pytest would rewrite these, as it does every
package that brings a plugin, and two threads that parse at once can end in a SystemError of Python 3.11.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import StopReason, events, from_schema

from host.errors import REGISTRY
from tests.support.cli import ROOT, python

__all__ = ("Fuzzed", "fuzz")

EXAMPLES = 30
"""Requests that are made up for an operation, and as many for what is wrong with one."""

REFUSED_FROM = 400


@dataclass
class Fuzzed:
    """What came of it.

    Attributes:
        answers: Each operation and each status that it was answered with.
        faults: What was not as the document or the contract says.
    """

    answers: set[tuple[str, int]] = field(default_factory=set)
    faults: list[str] = field(default_factory=list)

    def statuses(self, operation: str) -> set[int]:
        """The statuses that an operation was answered with."""
        return {status for label, status in self.answers if label == operation}


async def fuzz(address: str, document: dict[str, Any], scratch: Path, **config: Any) -> Fuzzed:
    """Make requests up and send them.

    Args:
        address: Of the host.
        document: What it says of itself.
        scratch: A folder for what the other process is told.
        config: Of the fuzzer, beside what holds for all.
    """
    file = scratch / "fuzz.json"
    file.write_text(json.dumps([address, document, config]), encoding="utf-8")
    done = await python("-m", "tests.support.fuzz", str(file), cwd=ROOT)
    assert done.status == 0, done.err
    answers, faults = done.json
    return Fuzzed({(label, status) for label, status in answers}, faults)


def _fuzzed(address: str, document: dict[str, Any], config: dict[str, Any]) -> Fuzzed:
    into = Fuzzed()

    @schemathesis.check
    def keeps_to_the_contract(
        _context: schemathesis.CheckContext, response: schemathesis.Response, case: schemathesis.Case[Any]
    ) -> None:
        into.answers.add((case.operation.label, response.status_code))
        assert response.headers.get("openwop-version") == ["2.0"], "no contract is named"
        assert b"Traceback" not in response.content
        if response.status_code >= REFUSED_FROM and response.request.method != "HEAD":
            told = json.loads(response.content)
            assert {"error", "message"} <= set(told) <= {"error", "message", "details"}, told
            assert REGISTRY[told["error"]].status == response.status_code, told

    settings = SchemathesisConfig.from_dict(
        {
            "seed": 5,
            "request-timeout": 30,
            "suppress-health-check": ["all"],
            # A parameter that is none of the host's is nothing to refuse.
            "generation": {
                "deterministic": True,
                "max-examples": EXAMPLES,
                "database": "none",
                "allow-extra-parameters": False,
            },
            # A body can fit its schema and not its workflow; and for a method that a path has not, OpenWOP has no code.
            "checks": {"positive_data_acceptance": {"enabled": False}, "unsupported_method": {"enabled": False}},
            **config,
        }
    )
    schema = schemathesis.openapi.from_dict(document, config=settings)
    schema.config.update(base_url=address)
    for event in from_schema(schema).execute():
        match event:
            case events.ScenarioFinished():
                for checks in event.recorder.checks.values():
                    found = (check.failure_info for check in checks if check.failure_info is not None)
                    into.faults += [f"{one.failure}\n{one.code_sample}" for one in found]
            case events.NonFatalError():
                into.faults.append(f"{event.label}: {event.value!r}")
            case events.FatalError():
                raise event.exception
            case events.EngineFinished():
                assert event.stop_reason is StopReason.COMPLETED
    return into


if __name__ == "__main__":
    told = _fuzzed(*json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    sys.stdout.write(json.dumps([sorted(told.answers), told.faults]))
