"""`worker.py` that waits for Temporal and for catalogs as long as a test does: a busy machine takes more than seconds.

python -m tests.support.patient ARGUMENTS
"""

from __future__ import annotations

import runpy

from commands import catalogs
from openwop_mcp import catalogs as kept
from tests.support.patience import PATIENCE

if __name__ == "__main__":
    vars(catalogs).update(LOOK_PATIENCE=PATIENCE, PATIENCE=PATIENCE)
    kept.FRESH_WITHIN = PATIENCE
    runpy.run_path("worker.py", run_name="__main__")
