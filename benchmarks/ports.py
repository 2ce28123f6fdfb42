"""``python -m benchmarks.ports``: the cost in ns of each extension port of the broker while nothing is attached to it.

Each row is the time of the expression that the broker evaluates at the port, minus that of the code without the port. The
figure is the minimum of several repetitions, to exclude other work of the machine. `broker/README.md` lists the ports.
"""

from __future__ import annotations

from timeit import repeat
from typing import Any, Final

from broker.clock import Domain, SystemClock
from broker.clock.virtual import VirtualClock
from broker.injection.points import FaultInjection
from broker.net.calls import CallInterceptors
from compiled.finder import described

TIMES: Final = 200_000
REPETITIONS: Final = 15
PORTS: Final = {
    "interceptors of requests (net.calls)": ("calls.chain is None", "pass"),
    "injection points (injection.points)": ("injection.points is None", "pass"),
    "links between nodes (injection.links)": ("injection.links.all_up", "pass"),
    "states of transactions (injection.points)": ("injection.transaction_watcher is None", "pass"),
    "the time that may be moved on (clock.virtual)": ("virtual.now_ms(domain)", "system.now_ms(domain)"),
}


def least_ns(statement: str, names: dict[str, Any]) -> float:
    """Nanoseconds of one evaluation of ``statement``: the minimum of ``REPETITIONS``."""
    return min(repeat(statement, globals=names, number=TIMES, repeat=REPETITIONS)) / TIMES * 1e9


def main() -> None:
    """Print the cost of each of the broker's extension ports, in nanoseconds."""
    names = {
        "calls": CallInterceptors(),
        "injection": FaultInjection(),
        "domain": Domain.TRANSACTIONS,
        "system": SystemClock(),
        "virtual": VirtualClock(),
    }
    print(described())
    for port, (statement, without) in PORTS.items():
        print(f"{port:46} {least_ns(statement, names) - least_ns(without, names):6.1f} ns   {statement}")


if __name__ == "__main__":
    main()
