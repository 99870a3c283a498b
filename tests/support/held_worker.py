"""`worker.py run`, held at a chosen moment of its first call so that it can be killed there.

    python -m tests.support.held_worker claim|claimed|sent|answer|stopped --config FILE

It prints a second JSON line when it has come to that moment, and goes no further. `sent` is for the server to tell. A
`stopped` one has stopped itself before the claim; continued, it goes on, and prints another line if it may not send.
"""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from activities import perform
from activities.beat import Beat, Claim, ClaimRefusedError

_claim = Beat.claim


def reached(moment: str) -> None:
    sys.stdout.write(json.dumps({"reached": moment}) + "\n")
    sys.stdout.flush()


async def held(moment: str) -> NoReturn:
    reached(moment)
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def before_the_claim(_: Beat, *, recorded: bool) -> NoReturn:
    await held("claim")


async def after_the_claim(beat: Beat, *, recorded: bool) -> NoReturn:
    await _claim(beat, recorded=recorded)
    await held("claimed")


async def stopped_before_the_claim(beat: Beat, *, recorded: bool) -> Claim:
    reached("stopped")
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        return await _claim(beat, recorded=recorded)
    except ClaimRefusedError as refused:
        reached("cancelled" if refused.cancelled else "refused")
        raise


def after_the_answer(*_: Any, **__: Any) -> None:
    reached("answer")
    time.sleep(60)


CLAIMS: Mapping[str, Callable[..., Any]] = {
    "claim": before_the_claim,
    "claimed": after_the_claim,
    "stopped": stopped_before_the_claim,
}

if __name__ == "__main__":
    if sys.argv[1] in CLAIMS:
        Beat.claim = CLAIMS[sys.argv[1]]  # type: ignore[method-assign]
    elif sys.argv[1] == "answer":
        perform._recorded = after_the_answer  # type: ignore[assignment]
    sys.argv[1:2] = ["run"]
    runpy.run_path("worker.py", run_name="__main__")
