"""`worker.py run`, held at a chosen moment of its first call so that it can be killed there.

    python -m tests.support.held_worker claim|answer --config FILE

It prints a second JSON line when it has come to that moment, and goes no further.
"""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
import time
from typing import Any, NoReturn

from activities.beat import Beat
from activities.perform import Calls


def reached(moment: str) -> None:
    sys.stdout.write(json.dumps({"reached": moment}) + "\n")
    sys.stdout.flush()


async def before_the_claim(_: Beat) -> NoReturn:
    reached("claim")
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


def after_the_answer(*_: Any) -> None:
    reached("answer")
    time.sleep(60)


if __name__ == "__main__":
    if sys.argv[1] == "claim":
        Beat.claim = before_the_claim  # type: ignore[method-assign]
    else:
        Calls._fits = after_the_answer  # type: ignore[method-assign]
    sys.argv[1:2] = ["run"]
    runpy.run_path("worker.py", run_name="__main__")
