"""`python -m tests.simulation.jobs --seed N` replays one seed; `--seeds N` runs the first N."""

from __future__ import annotations

import sys

from tests.simulation.__main__ import main
from tests.simulation.jobs.run import MODULE, run_job_case

if __name__ == "__main__":
    sys.exit(main(run_job_case, MODULE))
