"""One run: a cluster, its clients, faults, and the checks. ``python -m tests.simulation.run --seed 7`` repeats one.

Exit code 0 and the trace's checksum on standard output, or 1 with what was broken. The trace has one line for each piece of
a connection that arrived, for what each client did, for each fault, and for what the broker said in its log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, Final
from zlib import crc32

import structlog

from broker.clock.virtual import VirtualClock
from broker.cluster import Cluster
from broker.options import parse
from broker.partition import Partition
from tests.simulation.clients import ZOMBIE_PAUSE_S, Stop, copy, number_batches, read, transact
from tests.simulation.consumers import delivered, visible
from tests.simulation.faults import Chaos
from tests.simulation.ledger import Broken, Ledger, Spot, check_copies
from tests.simulation.loop import SimClock, SimLoop
from tests.simulation.wire import Wire

SOURCE, TARGET = "orders", "copies"
PARTITIONS: Final = 2
SOURCES: Final = [(SOURCE, index) for index in range(PARTITIONS)]
TARGETS: Final = [(TARGET, index) for index in range(PARTITIONS)]
GROUP: Final = "copiers"
TIME_TO_FINISH_S: Final = 900.0
TIME_TO_SETTLE_S: Final = 180.0
CLIENTS: Final = ("old", "new", "zombie", "numbered", "copier", "committed", "uncommitted")

SETTINGS: Final = {
    "num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "log.retention.ms": -1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 5_000,
}


class Trace:
    """Lines with the virtual time. ``digest`` is over all of them."""

    def __init__(self, loop: SimLoop, path: Path | None) -> None:
        self._loop = loop
        self._file = path.open("w") if path is not None else None
        self._hash = hashlib.sha256()
        self.errors: list[str] = []
        """What the broker reported as errors: no fault of a run is one of a disk, so there is nothing to report."""

    def say(self, text: str) -> None:
        line = f"{self._loop.now:.6f} {text}\n"
        self._hash.update(line.encode())
        if self._file is not None:
            self._file.write(line)

    def piece(self, line: tuple[str, int], what: str, piece: bytes) -> None:
        self.say(f"{line[0]} {what} {line[1]}: {len(piece)} {crc32(piece):08x}")

    def event(self, _: Any, name: str, event: Any) -> Any:
        """A structlog processor: what the broker says."""
        facts = " ".join(
            f"{key}={value!r}" for key, value in sorted(event.items()) if key not in UNREPEATABLE
        )
        self.say(f"broker {name}: {facts}")
        if name == "error":
            self.errors.append(f"{facts} {event.get('exc_info')!r}")
        raise structlog.DropEvent

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


UNREPEATABLE: Final = {"data_dir", "start_ms", "directory", "file", "exc_info", "took_ms", "duration_ms"}


class Simulation:
    """One seed."""

    def __init__(
        self, seed: int, seconds: float, nodes: int, directory: Path, trace: Trace, loop: SimLoop
    ) -> None:
        self.seed = seed
        self._seconds = seconds
        self._nodes = nodes
        self._directory = directory
        self._trace = trace
        self._loop = loop
        self._ledger = Ledger()
        self._stop = Stop()
        self._transaction_version = Random(f"{seed}/version").choice((0, 1, 2, 2, 2, 2))
        self._level = 2 if self._transaction_version == 2 else 1
        """What clients speak that know KIP-890."""
        loop.network.on_piece = trace.piece

    async def run(self) -> None:
        """``Broken`` if something that must always hold does not."""
        await self._start()
        chaos = Chaos(
            self._cluster, self._loop.network, Random(f"{self.seed}/faults"), CLIENTS, self._trace.say
        )
        tasks = [asyncio.ensure_future(each) for each in self._clients()]
        harm = asyncio.ensure_future(chaos.run(self._seconds))
        done, _ = await asyncio.wait([harm, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()  # a client that ended early is one that failed
        await chaos.mend()
        self._trace.say("all is mended")
        self._stop.now = True
        await self._finish(tasks)
        await asyncio.sleep(TIME_TO_SETTLE_S)
        self._check()
        await self._cluster.stop()

    async def _start(self) -> None:
        arguments = ["--port", "9092", "--nodes", str(self._nodes), "--data-dir", str(self._directory)]
        for name, value in (SETTINGS | self._drawn_settings()).items():
            arguments += ["--set", f"{name}={str(value).lower()}"]
        arguments += ["--feature", f"transaction.version={self._transaction_version}"]
        for topic in (SOURCE, TARGET):
            arguments += ["--topic", f"{topic}:{PARTITIONS}"]
        self._cluster = Cluster(
            parse(arguments, {}),
            clock=VirtualClock(SimClock(self._loop)),
            random=Random(f"{self.seed}/broker"),
            bind=self._loop.network.bind,
        )
        await self._cluster.start()

    def _drawn_settings(self) -> dict[str, Any]:
        """Of this seed: which of the broker's ways to do things."""
        chance = Random(f"{self.seed}/settings")
        # Without compaction the replicas of all logs are the same byte for byte.
        self._compacts = chance.random() < 0.5
        settings: dict[str, Any] = {
            "default.replication.factor": self._nodes,
            "min.insync.replicas": min(2, self._nodes),
            "log.cleaner.enable": self._compacts,
            "odradek.commit.order": chance.choice(["markers-first", "markers-first", "kafka"]),
        }
        if chance.random() < 0.25:
            settings["log.flush.interval.messages"] = chance.choice([1, 3])
        return settings

    def _wire(self, name: str) -> Wire:
        ports = [runtime.listeners[0].port for runtime in self._cluster.nodes.values()]
        random = Random(f"{self.seed}/client/{name}")
        now_ms = SimClock(self._loop).now_ms
        return Wire(name, self._loop.network, ports, random, self._trace.say, now_ms)

    def _clients(self) -> Iterable[Any]:
        ledger, stop, chance = self._ledger, self._stop, Random(f"{self.seed}/clients")
        yield transact(self._wire("old"), SOURCES, ledger, stop, "old", 1)
        yield transact(self._wire("new"), SOURCES, ledger, stop, "new", self._level)
        yield transact(self._wire("zombie"), SOURCES, ledger, stop, "new", self._level, ZOMBIE_PAUSE_S)
        yield number_batches(self._wire("numbered"), SOURCES, ledger, stop)
        yield copy(self._wire("copier"), SOURCES, TARGET, GROUP, stop, chance.choice((1, self._level)))
        for spot in (*SOURCES, *TARGETS):
            for name in ("committed", "uncommitted"):
                isolation = f"read_{name}"
                view = ledger.view(name, spot, isolation)
                yield read(self._wire(name), spot, isolation, view, stop)

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        _, late = await asyncio.wait(tasks, timeout=TIME_TO_FINISH_S)
        for task in tasks:
            if task.done():
                task.result()
        if late:
            raise Broken(f"{len(late)} clients came to no end in a cluster that is whole")

    # ---- the end

    def _check(self) -> None:
        committed = {spot: self._content(spot, read_committed=True) for spot in (*SOURCES, *TARGETS)}
        everything = {spot: self._content(spot, read_committed=False) for spot in (*SOURCES, *TARGETS)}
        self._check_nothing_hangs()
        self._check_replicas()
        ledger = self._ledger
        ledger.check_works({spot: committed[spot] for spot in SOURCES})
        ledger.check_views(committed, everything)
        ledger.check_markers({spot: self._markers(spot) for spot in (*SOURCES, *TARGETS)})
        for source, target in zip(SOURCES, TARGETS, strict=True):
            copies = [value for _, value in committed[target]]
            check_copies(source, self._committed_offset(source), committed[source], copies)
        self._trace.say(
            f"checked {len(ledger.works)} pieces of work, "
            f"{sum(map(len, committed.values()))} records, {sum(map(len, everything.values()))} with aborted ones"
        )

    def _leader(self, spot: Spot) -> Partition:
        topic = self._cluster.metadata.topics[spot[0]]
        node = self._cluster.running(topic.partitions[spot[1]].leader)
        partition = node.replicas.get(*spot) if node is not None else None
        if partition is None:
            raise Broken(f"nobody leads {spot} though all nodes run")
        return partition

    def _content(self, spot: Spot, *, read_committed: bool) -> list[tuple[int, bytes]]:
        partition, position = self._leader(spot), 0
        found: list[tuple[int, bytes]] = []
        while True:
            result = partition.read(position, 1 << 20, read_committed=read_committed, whole_first_batch=True)
            more, after = visible(result.records, list(result.aborted or ()), position)
            found += more
            if after == position:
                return found
            position = after

    def _markers(self, spot: Spot) -> dict[int, int]:
        """Of each offset of a transaction the offset of its marker."""
        found: dict[int, int] = {}
        open_offsets: dict[int, list[int]] = {}
        for batch in self._leader(spot).log.batches():
            if batch.is_control:
                found.update(dict.fromkeys(open_offsets.pop(batch.producer_id, ()), batch.base_offset))
            elif batch.is_transactional:
                offsets = range(batch.base_offset, batch.next_offset)
                open_offsets.setdefault(batch.producer_id, []).extend(offsets)
        return found

    def _committed_offset(self, spot: Spot) -> int:
        offsets = []
        for node in self._cluster.running_nodes():
            for shard in node.groups.memory().values():
                committed: Any = shard["committed"]
                offsets += [
                    each.offset
                    for of_group in committed.values()
                    for at, each in of_group.items()
                    if at == spot
                ]
        return max(offsets, default=0)

    def _partitions(self) -> Iterable[Spot]:
        for name, topic in sorted(self._cluster.metadata.topics.items()):
            for state in topic.partitions:
                yield name, state.index

    def _check_nothing_hangs(self) -> None:
        for spot in self._partitions():
            partition = self._leader(spot)
            ends = (partition.last_stable_offset, partition.high_watermark, partition.log_end_offset)
            if len(set(ends)) != 1:
                raise Broken(f"{spot}: LSO, high watermark and end are {ends} though nobody writes any more")
        for node in self._cluster.running_nodes():
            for home in node.transactions.memory().values():
                for txn in home.values():
                    if txn.partitions:
                        raise Broken(f"{txn.transactional_id} hangs in {txn.state.name}: {txn.partitions}")

    def _check_replicas(self) -> None:
        for spot in self._partitions():
            leader = self._leader(spot)
            # Each replica compacts for itself; what it keeps is the same all the same.
            look = _latest if leader.log.config.compact and self._compacts else _bytes
            expected = look(leader, leader.high_watermark)
            for node in self._cluster.running_nodes():
                replica = node.replicas.get(*spot)
                if replica is not None and look(replica, leader.high_watermark) != expected:
                    raise Broken(f"{spot}: node {node.node_id} has something else than its leader")
            self._trace.say(f"{spot} is {len(expected)} {crc32(repr(expected).encode()):08x}")


def _pieces(partition: Partition, end: int) -> Iterable[tuple[int, bytes, list[tuple[int, int]]]]:
    """What a replica has up to an offset: (offset, whole batches, aborted transactions)."""
    offset = partition.log_start_offset
    while offset < end:
        span = partition.log.read(offset, end, 1 << 20, whole_first_batch=True)
        if span is None:
            return
        data = span.bytes()
        aborted = partition.log.aborted_transactions(offset, span)
        yield offset, data, [(entry.producer_id, entry.first_offset) for entry in aborted]
        _, offset = delivered(data, [], offset)


def _bytes(partition: Partition, end: int) -> bytes:
    return b"".join(data for _, data, _ in _pieces(partition, end))


def _latest(partition: Partition, end: int) -> dict[bytes | None, bytes]:
    """What each key stands for, in a log that may have been compacted."""
    found: dict[bytes | None, bytes] = {}
    for offset, data, aborted in _pieces(partition, end):
        for _, record in delivered(data, aborted, offset)[0]:
            found.pop(record.key, None)
            if record.value is not None:
                found[record.key] = record.value
    return dict(sorted(found.items(), key=lambda pair: pair[0] or b""))


def simulate(seed: int, seconds: float, nodes: int, trace_path: Path | None) -> str:
    """The digest of the trace; ``Broken`` (or whatever else failed) names what went wrong."""
    loop = SimLoop(seed)
    trace = Trace(loop, trace_path)
    structlog.configure(processors=[trace.event], cache_logger_on_first_use=False)
    failures: list[Any] = []
    loop.set_exception_handler(lambda _, context: failures.append(context))
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="sim-", dir=memory if memory.is_dir() else None) as directory,
        contextlib.closing(trace),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        simulation = Simulation(seed, seconds, nodes, Path(directory) / "data", trace, loop)
        try:
            runner.run(simulation.run())
        except BaseException as error:
            trace.say(f"failed: {error!r}")
            raise
        if failures:
            raise Broken(f"{failures[0].get('message')}: {failures[0].get('exception')!r}")
        if trace.errors:
            raise Broken(f"the broker reports {trace.errors[0]}")
        return trace.digest


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=600.0, help="of virtual time, while things go wrong")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--trace", type=Path, help="where the trace goes")
    options = parser.parse_args(arguments)
    try:
        print(simulate(options.seed, options.seconds, options.nodes, options.trace))
    except Broken as broken:
        print(f"seed {options.seed}: {broken}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
