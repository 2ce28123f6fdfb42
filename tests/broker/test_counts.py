"""What a request costs in calls, whatever the machine: the path of a request does not grow by accident.

A bound that is missed says that a request does more than before. Where that is meant, the bound moves, in a commit that says
why. A bound far above the figure is moved down.
"""

from __future__ import annotations

import pytest

from benchmarks.counts import count

# (calls of Python functions, calls of built-in functions, system calls on files, writes to the socket)
BOUNDS = {
    "produce-small": (61, 75, 1, 1),
    "produce-idempotent": (63, 79, 1, 1),
    "commit": (347, 320, 5, 1),
    "transaction": (703, 640, 10, 1),
    "produce-large": (104, 132, 1, 1),
    "fetch-large": (104, 115, 0, 1),
}


@pytest.mark.parametrize("kind", sorted(BOUNDS))
def test_a_request_makes_no_more_calls_than_before(kind):
    found = count(kind)
    calls, builtins, file_calls, socket_writes = BOUNDS[kind]
    assert found.calls <= calls
    assert found.builtins <= builtins
    assert (found.file_calls, found.socket_writes) == (file_calls, socket_writes)
    assert found.calls > 0.9 * calls, "the bound is to be moved down"


@pytest.mark.parametrize(("kind", "copies"), [("produce-large", 1.1), ("fetch-large", 1.1)])
def test_a_large_request_is_in_memory_once(kind, copies):
    assert count(kind).peak_bytes <= copies * (1 << 20)
