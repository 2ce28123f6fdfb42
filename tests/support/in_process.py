"""A broker in the test's own process, with an event loop in a thread: for tests that use its clock or fault rules directly.

    with InProcess(tmp_path, "--topic", "orders:1") as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        broker.advance("7d")
        rule = broker.stage("EndTxn transactional_id=orders nth=1 -> lose-answer")
        broker.reached(rule)

A test that only needs a broker uses `tests.support.broker`, where the broker is a process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Self, TypeVar

from broker.clock.durations import parse_duration_ms
from broker.clock.virtual import VirtualClock, parse_domains
from broker.cluster import Cluster
from lab.control.wiring import acls_of
from lab.faults import ActiveRule, Faults, parse_rule
from server.options import parse
from tests.support.deadlines import HANG_S

T = TypeVar("T")


class InProcess:
    """Context manager for the broker. Use `cluster` only in the broker's event loop, by ``run`` or ``call``."""

    def __init__(self, path: Path, *arguments: str, settings: dict[str, Any] | None = None) -> None:
        assigned = [f"--set={name}={value}" for name, value in (settings or {}).items()]
        port = [] if "listeners" in (settings or {}) else ["--port", "0"]
        self._settings = parse([*port, "--data-dir", str(path / "data"), *assigned, *arguments], {})
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker")

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.run(self.cluster.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(HANG_S)
            self._loop.close()

    async def _start(self) -> None:
        self.clock = VirtualClock()
        self.cluster = Cluster(self._settings, self.clock)
        await self.cluster.start()
        self.faults = Faults(
            self.cluster.injection,
            self.cluster.calls,
            self.clock,
            kill_node=self.cluster.kill_node,
            running=self.cluster.running,
            nodes=lambda: {
                node_id: [each.name for each in node.listeners]
                for node_id, node in self.cluster.nodes.items()
            },
            acls=acls_of(self.cluster),
        )

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(HANG_S)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.cluster.first.listeners[0].port}"

    def advance(self, duration: str, only: Iterable[str] = ()) -> None:
        """Advance the clock, in the domains ``only`` or in all; return when all timers that are due have fired."""
        self.run(self.clock.advance(parse_duration_ms(duration), parse_domains(only)))

    def stage(self, rule: str) -> ActiveRule:
        """Add a fault rule."""
        return self.call(lambda: self.faults.add(parse_rule(rule)))

    def reached(self, rule: ActiveRule, hits: int = 1) -> None:
        """Wait until a rule has had this many hits."""
        self.run(self.faults.reached(rule.id, hits, int(HANG_S * 1000 / 2)))

    def release(self, rule: ActiveRule, count: int | None = None) -> int:
        return self.call(lambda: self.faults.release(rule.id, count))

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the broker's event loop and return its result."""

        async def on_loop() -> T:
            return function()

        return self.run(on_loop())
