"""docs/reference/errors.md, from the classes of errors and the host's registry of codes."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from commands.ending import INTERRUPTED, USAGE
from host import errors as refusals
from openwop_mcp import ctx, errors
from openwop_mcp.effects.delivery import Delivery
from openwop_mcp.failures import McpCallError
from tests.support.tables import cell, table

HOST = Path(refusals.__file__).parent
HEAD = """\
# All errors

Written by `make reference` from the code. An error has a *code* of OpenWOP's, a message that says what to do, and
*details* for programs: `error.facts` in Python, `error.details` in a run's events and with `--json`.

## A call that has no result

*Delivery* is what is known of the request; [effects.md](../effects.md) says what it means for another attempt. Where no
revision can be agreed upon, or no token had, for a call that is under way, the delivery is that of the call.
"""
RUNS = {
    "approval_rejected": "A person did not approve, or nobody did in time: no call was sent, a gate stays closed.",
    "interrupt_expired": "Nobody answered a question in time. A server that asked is not called again.",
    "recursion_limit_exceeded": "The run was to start more nodes than it may: `configurable.run.recursionLimit`.",
    "run_timeout": "The run took longer than it may: `settings.timeout` of the graph, `configurable.run.runTimeoutMs`.",
    "storage_limit_exceeded": "What the run has to take along is larger than Temporal takes: set `[storage]` up.",
    "validation_error": "Inputs do not fit the graph's variables, or the type of a node; `details.path` says where.",
    "internal_error": "The graph has come to a `core.fail` node, or there is a fault in here: the worker's log has it.",
    "run_cancelled": "Somebody cancelled it. What was under way and unanswered is `escaped` in the ledger.",
}
"""What ends a node or a run beside a call. Each of them is a code of the registry, and stands in the code."""

SECTION = re.compile(
    r"^(?P<name>Delivery|Again|To do): (?P<text>.*?)(?=^(?:Again|To do): |^$|\Z)", re.MULTILINE | re.DOTALL
)


def kinds() -> list[type[errors.McpError]]:
    """Each cause, those that are causes of another one after it."""
    found: list[type[errors.McpError]] = []

    def add(kind: type[errors.McpError]) -> None:
        for below in kind.__subclasses__():
            if below.__module__ == errors.__name__:
                found.append(below)
                add(below)

    add(errors.McpError)
    return found


def sections(kind: type[errors.McpError]) -> dict[str, str]:
    """What an error's docstring says under ``Delivery``, ``Again`` and ``To do``, without the last full stop."""
    return {found["name"]: found["text"].strip() for found in SECTION.finditer(inspect.getdoc(kind) or "")}


def first(thing: object) -> str:
    """The first paragraph of a docstring."""
    return (inspect.getdoc(thing) or "").split("\n\n")[0]


def _calls() -> Iterator[tuple[str, ...]]:
    for kind in kinds():
        told = sections(kind)
        delivery = ", ".join(f"`{word}`" for word in told["Delivery"].rstrip(".").split(", "))
        again = told["Again"].rstrip(".")
        yield f"`{kind.code}`", f"`{kind.__name__}`", cell(first(kind)), delivery, cell(again), cell(told["To do"])


def _deliveries() -> Iterator[tuple[str, str]]:
    [body] = ast.parse(inspect.getsource(Delivery)).body
    assert isinstance(body, ast.ClassDef)
    for word, below in zip(body.body, body.body[1:], strict=False):
        match word, below:
            case ast.Assign(value=ast.Constant(value=str(name))), ast.Expr(value=ast.Constant(value=str(text))):
                yield f"`{name}`", cell(text)


def host_codes() -> list[str]:
    """The registered codes that the host's own code names."""
    named: set[str] = set()
    for file in HOST.rglob("*.py"):
        if file.name != "errors.py":
            tree = ast.parse(file.read_text(encoding="utf-8"))
            named |= {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    # It has a function of its own beside the registry.
    codes = (named | {"unauthenticated"}) & set(refusals.REGISTRY)
    return sorted(codes, key=lambda code: (refusals.REGISTRY[code].status, code))


def _refused() -> Iterator[tuple[str, ...]]:
    for code in host_codes():
        status, retriable = refusals.REGISTRY[code]
        member = refusals.REQUIRED_DETAILS.get(code, "field" if code == "validation_error" else None)
        later = "after `Retry-After`" if code in refusals.NEEDS_RETRY_AFTER else "may succeed" if retriable else ""
        yield str(status), f"`{code}`", f"`details.{member}`" if member else "", later


def page() -> str:
    """The page as it has to be."""
    asked = [McpCallError, ctx.InterruptError, *ctx.InterruptError.__subclasses__()]
    statuses = [
        ("0", "what was asked for happened"),
        ("1", "it did not: a failed call, `isError: true`, an unknown run, a divergence, a changed byte"),
        (str(USAGE), "the command line or the settings must change first; nothing was done"),
        (str(INTERRUPTED), "Ctrl-C, or nobody is there any more who was asked; what runs in Temporal goes on"),
    ]
    return "\n".join(
        [
            HEAD,
            table(("code", "class", "when", "delivery", "another attempt", "what to do"), _calls()),
            table(("delivery", "what is known"), _deliveries()),
            "## A node, or a run, that fails otherwise\n",
            table(("code", "when, and what to do"), [(f"`{code}`", text) for code, text in RUNS.items()]),
            "## In a workflow in Python\n",
            table(("class", "when"), [(f"`{kind.__name__}`", cell(first(kind))) for kind in asked]),
            "## A request that the host refuses\n",
            "[host.md](../host.md#when-it-is-refused) says what to do about each.\n",
            table(("status", "code", "says where", "the same request again"), _refused()),
            "## The exit status of a command\n",
            table(("status", "when"), statuses),
        ]
    )
