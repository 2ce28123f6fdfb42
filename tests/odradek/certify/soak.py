"""Long runs of the certifier with the jobs of examples/certify, with consecutive seeds, whose results are stored.

It runs all jobs, in turn. `make more` runs five of them (`test_zoo.py`, `test_command.py`), `make clients` one in Go
(`test_zoo_go.py`).

python -m tests.odradek.certify.soak --minutes 60                # each job in turn, from the seed after its last one
python -m tests.odradek.certify.soak --minutes 40 --only right-copier
python -m tests.odradek.certify.soak --only StreamsLoop --seed 7
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.clients import soak
from tests.odradek.certify.beyond import JOBS as JOBS_BEYOND
from tests.odradek.certify.beyond_jvm import JOBS as JOBS_ON_A_JVM
from tests.odradek.certify.zoo_jobs import JOBS

RESULTS = Path(__file__).with_name("soak.jsonl")


def main(arguments: list[str]) -> int:
    return soak.main(arguments, [*JOBS, *JOBS_BEYOND, *JOBS_ON_A_JVM], RESULTS, __doc__)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
