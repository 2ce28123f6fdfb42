"""Random runs of a whole cluster in virtual time: no invariant is violated, and a seed reproduces its run.

    ODRADEK_SEEDS=50 pytest tests/simulation            # 50 seeds of ten virtual minutes each
    python -m tests.simulation.run --seed 7 --trace f   # one seed, with a trace

A run that fails prints its seed and keeps its trace in ``build/simulation``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACES = ROOT / "build" / "simulation"
SEEDS = int(os.environ.get("ODRADEK_SEEDS", "0"))
TEN_MINUTES_S = 600


def start(seed: int, *, seconds: float, nodes: int, trace: Path, hash_seed: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.simulation.run", f"--seed={seed}", f"--seconds={seconds}"]
    return subprocess.Popen(
        [*command, f"--nodes={nodes}", f"--trace={trace}"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check(seed: int, *, seconds: float, nodes: int) -> None:
    TRACES.mkdir(parents=True, exist_ok=True)
    trace = TRACES / f"seed-{seed}-nodes-{nodes}.trace"
    run = start(seed, seconds=seconds, nodes=nodes, trace=trace)
    said, _ = run.communicate()
    if run.returncode:
        pytest.fail(f"seed {seed} with {nodes} nodes failed; its trace is {trace}\n{said}", pytrace=False)
    trace.unlink()


@pytest.mark.parametrize(
    "seed", [5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(300, 320))]
)
def test_the_same_seed_gives_the_same_run_byte_for_byte(seed: int, tmp_path: Path):
    """The run does not depend on the hash seed, that is, on the order of sets of strings."""
    traces = [tmp_path / name for name in ("one", "two")]
    runs = [
        start(seed, seconds=80, nodes=3, trace=trace, hash_seed=hash_seed)
        for hash_seed, trace in enumerate(traces, 1)
    ]
    said = [run.communicate()[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], said
    one, two = (trace.read_bytes() for trace in traces)
    assert one == two
    assert one.count(b"fault:") >= 10


def test_other_seeds_give_other_runs(tmp_path: Path):
    runs = [start(seed, seconds=5, nodes=1, trace=tmp_path / f"{seed}") for seed in (1, 2)]
    digests = {run.communicate()[0] for run in runs}
    assert len(digests) == 2


@pytest.mark.parametrize(("seed", "nodes"), [(1, 1), (1, 3), pytest.param(2, 3, marks=pytest.mark.more)])
def test_nothing_is_lost_duplicated_or_torn(seed: int, nodes: int):
    check(seed, seconds=TEN_MINUTES_S / 4, nodes=nodes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + max(SEEDS, 20)))
def test_ten_minutes_of_each_of_many_seeds(seed: int):
    check(seed, seconds=TEN_MINUTES_S, nodes=3 if seed % 4 else 1)
