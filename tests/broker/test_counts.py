"""The number of Python calls that each request makes. This number does not depend on the machine, so the path of a request
cannot grow unnoticed.

A failing upper bound means that a request does more than before. If that is intended, raise the bound in a commit that says
why. A bound far above the measured number must be lowered.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from protocol.core import compiled
from tests.support.deadlines import HANG_S

# (Python calls, calls of built-ins) with the compiled core, the same without it, and system calls on files.
BOUNDS = {
    "produce-small": ((13, 14), (59, 75), 1),
    "produce-idempotent": ((13, 14), (61, 79), 1),
    "commit": ((41, 20), (296, 276), 5),
    "transaction": ((112, 78), (609, 590), 10),
    "transaction-v1": ((141, 96), (719, 711), 10),
    "init": ((17, 14), (86, 86), 2.1),
    "produce-large": ((39, 40), (114, 133), 1),
    "fetch-large": ((31, 38), (89, 111), 0),
}
# Stack frames from the handler to the last write of a log (`python -m benchmarks.depth --frames EndTxn` lists them).
DEPTHS = {
    "AddOffsetsToTxn v0": 12,
    "AddPartitionsToTxn v0": 14,
    "EndTxn v1": 14,
    "EndTxn v5": 14,
    "InitProducerId v4": 12,
    "Produce v9": 10,
    "Produce v10": 10,
    "Produce v12": 10,
    "TxnOffsetCommit v3": 15,
    "TxnOffsetCommit v5": 15,
}
DEPTH_SLACK = 2
CORES = [pytest.param(True, id="pure"), *([] if compiled is None else [pytest.param(False, id="compiled")])]
LARGE_BYTES = 1 << 20


def said_by(module: str, *, pure: bool) -> Any:
    ran = subprocess.run(
        [sys.executable, "-m", module, "--json"],
        env={**os.environ, "ODRADEK_PURE": str(int(pure))},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    return json.loads(ran.stdout.splitlines()[-1])


@cache
def counts(*, pure: bool) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = said_by("benchmarks.counts", pure=pure)
    return found


@pytest.mark.parametrize("kind", sorted(BOUNDS))
@pytest.mark.parametrize("pure", CORES)
def test_a_request_makes_no_more_calls_than_before(kind, pure):
    found = counts(pure=pure)[kind]
    with_core, without, file_calls = BOUNDS[kind]
    calls, builtins = without if pure else with_core
    assert found["calls"] <= calls
    assert found["builtins"] <= builtins
    assert found["calls"] > 0.9 * calls, "the bound is too high and must be lowered"
    assert found["file_calls"] <= file_calls
    assert found["socket_writes"] == 1


@pytest.mark.parametrize("kind", ["produce-large", "fetch-large"])
@pytest.mark.parametrize("pure", CORES)
def test_a_large_request_is_in_memory_once(kind, pure):
    assert counts(pure=pure)[kind]["peak_bytes"] <= 1.1 * LARGE_BYTES


def test_a_request_is_no_deeper_in_calls_than_before_when_it_writes_last():
    """No request has more stack frames at its last write to a log than recorded in ``DEPTHS``. A coroutine of the
    coordinator awaits its steps one after the other, so its stack is only as deep as its deepest step needs."""
    found = said_by("benchmarks.depth", pure=True)
    assert {name: depth for name, depth in found.items() if depth > DEPTHS[name]} == {}
    to_be_moved_down = {name: found[name] for name in DEPTHS if found[name] < DEPTHS[name] - DEPTH_SLACK}
    assert to_be_moved_down == {}
