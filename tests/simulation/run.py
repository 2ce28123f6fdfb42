"""One run: a cluster, its clients, faults and checks. ``python -m tests.simulation.run --seed 7`` repeats a run.

The program prints the trace's checksum, or ends with exit code 1 and prints the violation. The trace has one line for
each delivered piece of a connection, each action of a client, each fault, and each line of the broker's log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest.mock import patch
from zlib import crc32

import structlog

from broker.clock.virtual import VirtualClock
from broker.cluster import Cluster
from broker.replicas import log_manager
from server.options import parse
from storage.files import use_system
from tests.simulation import rare, reaches
from tests.simulation.clients import ZOMBIE_PAUSE_S, Stop, copy, number_batches, read, transact
from tests.simulation.control import ControlRun
from tests.simulation.disks import SimDisk
from tests.simulation.ending import Ending
from tests.simulation.faults import Chaos
from tests.simulation.followers import DRAFTS, DRAFTS_SETTINGS, draft, read_from_any
from tests.simulation.groups import SETTINGS as GROUP_SETTINGS
from tests.simulation.groups import ConsumerMember, commit_in_epochs, copy_together
from tests.simulation.ledger import Broken, Ledger
from tests.simulation.logins import known_nonces
from tests.simulation.loop import SimClock, SimLoop
from tests.simulation.offsets import Member, OffsetsLedger, mark
from tests.simulation.reach import Stage
from tests.simulation.shares import NOT_IN_QUEUE
from tests.simulation.watch import Watch, truncate_and_check
from tests.simulation.watermarks import Watermarks, watching
from tests.simulation.wire import Facts, Wire

SOURCE, TARGET, CREW_TARGET = "orders", "copies", "crew-copies"
PARTITIONS: Final = 2
SOURCES: Final = [(SOURCE, index) for index in range(PARTITIONS)]
TARGETS: Final = [(TARGET, index) for index in range(PARTITIONS)]
CREW_TARGETS: Final = [(CREW_TARGET, index) for index in range(PARTITIONS)]
DRAFTED: Final = [(DRAFTS, index) for index in range(PARTITIONS)]
GROUP, CREW, CHOIR = "copiers", "crew", "choir"
MARKED_GROUPS: Final = ("marked-1", "marked-2", "marked-3")
TEAM: Final = "team"
TEAM_SPOTS: Final = [(SOURCE, index) for index in range(4)]
MARKED_SPOTS: Final = [(topic, index) for topic in (SOURCE, TARGET) for index in range(PARTITIONS)]
EPOCHS_MAX: Final = (32_767, 32_767, 32_767, 20)
TIME_TO_FINISH_S: Final = 900.0
TIME_TO_SETTLE_S: Final = 180.0
TIME_TO_RECOVER_S: Final = 30.0
CLIENTS: Final = (
    *("old", "new", "zombie", "numbered", "copier", "committed", "uncommitted"),
    *("marker", "member-1", "member-2"),
    *("crew-1", "crew-2", "crew-3", "choir-1", "choir-2"),
    *("drafter", "wanderer", "wanderer-of-drafts"),
)

SETTINGS: Final = {
    "num.partitions": PARTITIONS,
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 3,
    "log.retention.ms": -1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 5_000,
    **GROUP_SETTINGS,
}


class Trace:
    """Lines with the virtual time. ``digest`` is a hash of all lines."""

    def __init__(self, loop: SimLoop, path: Path | None) -> None:
        self._loop = loop
        self._file = path.open("w") if path is not None else None
        self._hash = hashlib.sha256()
        self.reached = rare.watch()
        self.listeners: list[Callable[[Mapping[str, Any]], object]] = []
        """Called with each line of the broker's log."""
        self.errors: list[str] = []
        """Errors in the broker's log, except those of injected disk faults."""
        self.directory: str | None = None
        """Directory of the run. It is replaced in the trace's lines, because each run has another directory."""

    def say(self, text: str) -> None:
        line = f"{self._loop.now:.6f} {text}\n"
        self._hash.update(line.encode())
        if text.startswith("fault:"):
            self.reached.fault(text)
        if self._file is not None:
            self._file.write(line)

    def piece(self, line: tuple[str, int], what: str, piece: bytes) -> None:
        self.say(f"{line[0]} {what} {line[1]}: {len(piece)} {crc32(piece):08x}")

    def event(self, _: Any, name: str, event: Any) -> Any:
        """A structlog processor that adds the broker's log lines to the trace."""
        facts = " ".join(
            f"{key}={value!r}" for key, value in sorted(event.items()) if key not in UNREPEATABLE
        )
        if self.directory is not None:
            facts = facts.replace(self.directory, "")
        self.say(f"broker {name}: {facts}")
        self.reached.log_line(event)
        for listener in self.listeners:
            listener(event)
        if name == "error" and "Input/output error" not in facts and event["event"] != NOT_IN_QUEUE:
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
    """The run of one seed."""

    def __init__(
        self,
        seed: int,
        seconds: float,
        nodes: int,
        directory: Path,
        trace: Trace,
        loop: SimLoop,
        disk: SimDisk,
        watermarks: Watermarks,
        reach: list[str] | None = None,
    ) -> None:
        self.seed = seed
        self._watermarks = watermarks
        self._seconds = seconds
        self._nodes = nodes
        self._directory = directory
        self._trace = trace
        self._loop = loop
        self._ledger = Ledger()
        self._offsets = OffsetsLedger()
        self._sung = OffsetsLedger()
        self._disk = disk
        self._stop = Stop()
        self._reaches = reaches.drawn(seed, nodes, reach)
        self._transaction_version = Random(f"{seed}/version").choice((0, 1, 2, 2, 2, 2))
        self._level = 2 if self._transaction_version == 2 else 1
        """Transaction version of clients that support KIP-890."""
        loop.network.on_piece = trace.piece

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        with contextlib.ExitStack() as contexts:
            for reach in self._reaches:
                contexts.enter_context(reach.watching())
            yield

    async def run(self) -> None:
        """Run the simulation. Raises ``Broken`` if the broker violates a guarantee."""
        await self._start()
        chaos = Chaos(
            self._cluster,
            self._loop.network,
            Random(f"{self.seed}/faults"),
            [*CLIENTS, *(name for reach in self._reaches for name in reach.clients)],
            self._trace.say,
            self._disk,
        )
        looking = Watch(self._cluster, self._watermarks)
        looking.more += [reach.look for reach in self._reaches]
        self._trace.listeners += [looking.heard, *(reach.heard for reach in self._reaches)]
        watch = asyncio.ensure_future(looking.run())
        tasks = [asyncio.ensure_future(each) for each in self._clients()]
        harm = asyncio.ensure_future(chaos.run(self._seconds))
        done, _ = await asyncio.wait([harm, watch, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()  # a client that ended early has failed
        await chaos.mend()
        self._trace.say("all is mended")
        self._stop.now = True
        await self._finish(tasks)
        await asyncio.sleep(TIME_TO_SETTLE_S)
        watch.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watch
        self._check()
        await self._recover()
        self._check()
        await self._cluster.stop()

    async def _recover(self) -> None:
        """Kill all nodes at once and start them again from their files."""
        self._trace.say("all nodes are killed")
        for node_id in self._cluster.nodes:
            self._cluster.kill_node(node_id)
        for node_id in self._cluster.nodes:
            await self._cluster.start_node(node_id)
        await asyncio.sleep(TIME_TO_RECOVER_S)

    def _check(self) -> None:
        ending = Ending(self._cluster, self._trace.say, compacts=self._compacts)
        ending.check(
            self._ledger,
            self._offsets,
            SOURCES,
            copied=[(GROUP, TARGETS), (CREW, CREW_TARGETS)],
            members=[(TEAM, self._offsets), (CHOIR, self._sung)],
        )
        for reach in self._reaches:
            reach.check()

    async def _start(self) -> None:
        arguments = ["--nodes", str(self._nodes), "--data-dir", str(self._directory)]
        listeners = [
            "PLAINTEXT://127.0.0.1:9092",
            *(each for reach in self._reaches for each in reach.listeners),
        ]
        settings = SETTINGS | self._drawn_settings() | {"listeners": ",".join(listeners)}
        for name, value in settings.items():
            arguments += ["--set", f"{name}={value if isinstance(value, str) else str(value).lower()}"]
        arguments += ["--feature", f"transaction.version={self._transaction_version}"]
        of_topics = f"internal.segment.bytes={self._segment_bytes},compression.type={self._compression}"
        for topic in (SOURCE, TARGET, CREW_TARGET):
            arguments += ["--topic", f"{topic}:{PARTITIONS}:{of_topics}"]
        if self._nodes > 1:
            arguments += ["--topic", f"{DRAFTS}:{PARTITIONS}:{DRAFTS_SETTINGS}"]
        for reach in self._reaches:
            arguments += reach.arguments(of_topics)
        self._cluster = Cluster(
            parse(arguments, {}),
            clock=VirtualClock(SimClock(self._loop)),
            random=Random(f"{self.seed}/broker"),
            bind=self._loop.network.bind,
        )
        await self._cluster.start()
        now_ms = SimClock(self._loop).now_ms
        for reach in self._reaches:
            reach.begin(
                Stage(
                    self._cluster,
                    self._stop,
                    self._wire,
                    self._trace.say,
                    now_ms,
                    self._trace.reached.client,
                )
            )

    def _drawn_settings(self) -> dict[str, Any]:
        """Draw broker settings from the seed."""
        rng = Random(f"{self.seed}/settings")
        # Without compaction the replicas of all logs are equal byte for byte.
        self._compacts = rng.random() < 0.5
        settings: dict[str, Any] = {
            "default.replication.factor": self._nodes,
            "min.insync.replicas": min(2, self._nodes),
            "log.cleaner.enable": self._compacts,
            "odradek.commit.order": rng.choice(["markers-first", "markers-first", "kafka"]),
        }
        if rng.random() < 0.25:
            settings["log.flush.interval.messages"] = rng.choice([1, 3])
        # Small values, so that rolls and retention happen within minutes.
        self._segment_bytes = rng.choice([1 << 30, 20_000, 3_000])
        # Recompression reads all records first, in several slices for large batches.
        self._compression = rng.choice(["producer", "gzip"])
        settings |= {
            "log.roll.ms": rng.choice([604_800_000, 20_000, 3_000]),
            "log.index.interval.bytes": rng.choice([4_096, 200]),
            "log.cleaner.min.cleanable.ratio": 0.1,
            "replica.lag.time.max.ms": rng.choice([30_000, 3_000]),
            "group.consumer.assignment.interval.ms": rng.choice([1_000, 0]),
        }
        return settings

    def _wire(self, name: str) -> Wire:
        ports = [runtime.listeners[0].port for runtime in self._cluster.nodes.values()]
        random = Random(f"{self.seed}/client/{name}")
        now_ms = SimClock(self._loop).now_ms
        facts = Facts(self._cluster, self._watermarks)
        return Wire(name, self._loop.network, ports, random, self._trace.say, now_ms, facts)

    def _clients(self) -> Iterable[Any]:
        ledger, stop, rng = self._ledger, self._stop, Random(f"{self.seed}/clients")
        yield transact(self._wire("old"), SOURCES, ledger, stop, "old", 1)
        yield transact(self._wire("new"), SOURCES, ledger, stop, "new", self._level)
        yield transact(self._wire("zombie"), SOURCES, ledger, stop, "new", self._level, ZOMBIE_PAUSE_S)
        yield number_batches(self._wire("numbered"), SOURCES, ledger, stop)
        yield copy(self._wire("copier"), SOURCES, TARGET, GROUP, stop, rng.choice((1, self._level)))
        offsets, level = self._offsets, rng.choice((1, self._level))
        yield mark(self._wire("marker"), MARKED_GROUPS, MARKED_SPOTS, offsets, stop, level)
        for name in ("member-1", "member-2"):
            yield Member(self._wire(name), TEAM, TEAM_SPOTS, offsets).run(stop)
        yield from self._members()
        for spot in (*SOURCES, *TARGETS):
            for name in ("committed", "uncommitted"):
                isolation = f"read_{name}"
                view = ledger.view(name, spot, isolation)
                yield read(self._wire(name), spot, isolation, view, stop)
        if self._nodes > 1:
            yield from self._at_followers()
        for reach in self._reaches:
            yield from reach.tasks()

    def _at_followers(self) -> Iterable[Any]:
        """Consumers that fetch from any replica, and producers to the topic whose records may be lost."""
        stop = self._stop
        for spot, isolation in zip(SOURCES, ("read_committed", "read_uncommitted"), strict=True):
            view = self._ledger.view("wanderer", spot, isolation)
            yield read_from_any(self._wire("wanderer"), spot, isolation, view, stop, loses=False)
        yield draft(self._wire("drafter"), DRAFTED, stop)
        for spot in DRAFTED:
            yield read_from_any(
                self._wire("wanderer-of-drafts"), spot, "read_uncommitted", None, stop, loses=True
            )

    def _members(self) -> Iterable[Any]:
        """Members of two consumer groups: of one that copies records, and of one that commits offsets.

        Each group has a static member. Some subscriptions have a regular expression.
        """
        stop = self._stop
        for name, instance in (("crew-1", None), ("crew-2", None), ("crew-3", "third")):
            copying = ConsumerMember(self._wire(name), CREW, [([SOURCE], None)], instance)
            yield copy_together(copying, SOURCE, CREW_TARGET, stop, name, self._level)
        subscriptions = [([SOURCE], ""), ([SOURCE, TARGET], ""), ([], "orders|cop.*"), ([], "")]
        for name, instance in (("choir-1", None), ("choir-2", "second")):
            singing = ConsumerMember(self._wire(name), CHOIR, subscriptions, instance)
            yield commit_in_epochs(singing, self._sung, stop)

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        _, late = await asyncio.wait(tasks, timeout=TIME_TO_FINISH_S)
        for task in tasks:
            if task.done():
                task.result()
        if late:
            raise Broken(f"{len(late)} clients did not finish in a cluster without faults")


@contextlib.contextmanager
def epochs_up_to(epoch_max: int) -> Iterator[None]:
    """Context manager in which producer epochs are exhausted at ``epoch_max``: 32,767 transactions of one id take too long.

    The constant is replaced in every module that imports it, so that all parts of the broker agree.
    """
    numbers = {"EPOCH_MAX": epoch_max, "LAST_USABLE_EPOCH": epoch_max - 1}
    ours = [each for name, each in sys.modules.items() if name.startswith(("broker.", "storage."))]
    with contextlib.ExitStack() as patched:
        for module in ours:
            for name in numbers.keys() & vars(module).keys():
                patched.enter_context(patch.object(module, name, numbers[name]))
        yield


def simulate(
    seed: int, seconds: float, nodes: int, trace_path: Path | None, reach: list[str] | None = None
) -> tuple[str, set[str]]:
    """Run one seed; return the trace's digest and the reached rare paths.

    Raises ``Broken``, or the exception that failed the run.
    """
    loop = SimLoop(seed)
    trace = Trace(loop, trace_path)
    structlog.configure(processors=[trace.event], cache_logger_on_first_use=False)
    failures: list[Any] = []
    watermarks = Watermarks()
    loop.set_exception_handler(lambda _, context: failures.append(context))
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(prefix="sim-", dir=memory if memory.is_dir() else None) as directory,
        contextlib.closing(trace),
        patch.object(log_manager, "truncate", truncate_and_check),
        known_nonces(seed),
        epochs_up_to(Random(f"{seed}/epochs").choice(EPOCHS_MAX)),
        asyncio.Runner(loop_factory=lambda: loop) as runner,
    ):
        trace.directory = directory
        disk = SimDisk()
        data_dir = Path(directory) / "data"
        simulation = Simulation(seed, seconds, nodes, data_dir, trace, loop, disk, watermarks, reach)
        before = use_system(disk)
        try:
            if seconds:
                with watching(watermarks), simulation.watching():
                    runner.run(simulation.run())
            runner.run(ControlRun(seed, nodes, Path(directory) / "controlled", loop, trace.say).run())
        except BaseException as error:
            trace.say(f"failed: {error!r}")
            raise
        finally:
            use_system(before)
        watermarks.check()
        if failures:
            raise Broken(f"{failures[0].get('message')}: {failures[0].get('exception')!r}")
        if trace.errors:
            raise Broken(f"the broker has logged an error: {trace.errors[0]}")
        return trace.digest, trace.reached.names


def nodes_of(seed: int) -> int:
    """Number of nodes: 1 for every fourth seed of a series, otherwise 3."""
    return 3 if seed % 4 else 1


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument(
        "--seconds",
        type=float,
        default=600.0,
        help="virtual seconds with faults; 0 runs the control calls only",
    )
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds to run, from --seed on")
    parser.add_argument("--nodes", type=int, help="default 3; with --seeds every fourth seed has 1")
    parser.add_argument("--trace", type=Path, help="file for the trace")
    parser.add_argument(
        "--reached", type=Path, help="file that gets one line for each seed, with its rare paths"
    )
    parser.add_argument(
        "--reach",
        action="append",
        choices=reaches.REACHES,
        help="run with this reach instead of the seed's (repeatable)",
    )
    options = parser.parse_args(arguments)
    for seed in range(options.seed, options.seed + options.seeds):
        nodes = options.nodes or (3 if options.seeds == 1 else nodes_of(seed))
        try:
            digest, reached = simulate(seed, options.seconds, nodes, options.trace, options.reach)
            print(digest, flush=True)
            if options.reached is not None:
                with options.reached.open("a") as file:
                    print(json.dumps({"seed": seed, "reached": sorted(reached)}), file=file)
        except Broken as broken:
            print(f"seed {seed}: {broken}", file=sys.stderr)
            return 1
        except Exception as error:
            traceback.print_exc()
            print(f"seed {seed}: {error!r}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
