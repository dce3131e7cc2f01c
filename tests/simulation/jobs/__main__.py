"""`python -m tests.simulation.jobs --seed N` replays one seed; `--seeds N` runs the first N."""

from __future__ import annotations

import sys

from tests.simulation.__main__ import main
from tests.simulation.run import JOBS

if __name__ == "__main__":
    sys.exit(main(JOBS))
