"""The program: the command line of ``commands``, and how the process that ran one of them ends.

Standard output carries what was asked for, standard error everything else, and the exit status is 0 only if what was
asked for happened.
"""

from __future__ import annotations

import os
import sys

from commands.app import main
from commands.process import written

if __name__ == "__main__":
    exit_status = written(main(sys.argv[1:]))
    # A client process of the SDK sometimes crashes or hangs while the interpreter is torn down; everything is written.
    os._exit(exit_status)
