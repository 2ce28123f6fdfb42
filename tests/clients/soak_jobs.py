"""The jobs of `tests.clients.soak`: a loop of each client and framework, with kills that depend on the seed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from odradek.demo.doomed import restart_doomed
from tests.clients import test_python_streams
from tests.clients.contract import LOOP_RECORDS, AtLeastOnce, Contract, Crew
from tests.clients.jvm.kills import GROUP_DEATHS, TRANSACTION_DEATHS, Loop, draw, run
from tests.clients.jvm.test_connect import ConnectLoop
from tests.clients.jvm.test_debezium import DebeziumLoop
from tests.clients.jvm.test_flink import FlinkLoop, FlinkPoolingLoop
from tests.clients.jvm.test_spring import SpringConsumerLoop, SpringLoop
from tests.clients.jvm.test_streams import StreamsLoop
from tests.clients.test_python_streams import Application
from tests.support.broker import Broker, StartBroker
from tests.support.clients import eventually
from tests.support.foreign import Program, go_program, node_program, rust_program
from tests.support.javaprog import program_command

KILLS: Final = 8
"""Number of kills, of members or of the broker, in one run."""
DEATHS: Final = (*TRANSACTION_DEATHS, "txn.offset.commit.after", *GROUP_DEATHS)
"""Crash points of the broker that a consume-process-produce loop reaches."""
STEPS: Final = ("poll", "send", "commit")
NUMBER_MAX: Final = 6
"""The broker dies when it reaches a crash point for the n-th time, with a random n from 1 to this number."""


class Job(NamedTuple):
    name: str
    run: Callable[[int, Path], None]
    """Function (seed, folder) that runs the client's loop with the kills of this seed. Wrong results raise an error."""


@contextmanager
def brokers(folder: Path) -> Iterator[StartBroker]:
    """Yields a function that starts brokers, like the fixture ``start_broker``. The brokers end with the block."""
    with ExitStack() as stack:

        def start(**options: Any) -> Broker:
            return stack.enter_context(Broker(folder / "broker", **options))

        yield start


def points(random: Random, deaths: Sequence[str]) -> list[str]:
    return [f"{random.choice(deaths)}:{random.randint(1, NUMBER_MAX)}" for _ in range(KILLS)]


def crew_run(
    program: Callable[[], Program],
    protocol: str,
    kind: type[Crew],
    deaths: Sequence[str],
    seed: int,
    folder: Path,
) -> None:
    """Run the loop of a group's members. With an odd seed members are killed, with an even seed the broker."""
    random = Random(seed)
    with brokers(folder) as start_broker, kind(program(), start_broker, protocol) as crew:
        if seed % 2:
            crew.lose_members([f"{random.choice(STEPS)}:{random.randint(1, 4)}" for _ in range(KILLS)])
        else:
            crew.outlive(points(random, deaths))
        crew.finish()


def loop_run(program: Callable[[], Program], seed: int, folder: Path) -> None:
    """Run the loop of `Contract` while the broker dies once. The client's program ends if the client gives up."""
    random = Random(seed)
    with brokers(folder) as start_broker:
        broker = start_broker(topics=["orders:1", "done:1"])
        Contract.fill(broker)
        broker.terminate()
        arguments = (broker.bootstrap, "orders", "done", "workers", LOOP_RECORDS)
        restart_doomed(broker, points(random, DEATHS)[0])
        with program().start("loop", *arguments) as loop:
            eventually(
                lambda: not (loop.is_alive and broker.is_running),
                "the broker dies, or all records are processed",
            )
            if not broker.is_running:
                broker.restart(environment={})
            loop.finish()
        Contract.check_loop(broker)


def streams_run(client: str, seed: int, folder: Path) -> None:
    with brokers(folder) as start_broker, closing(Application(client, start_broker, folder)) as application:
        test_python_streams.storm(application, seed)


def framework_run(loop: type[Loop], seed: int, folder: Path) -> None:
    with Broker(folder / "broker", topics=loop.topics, settings=loop.settings) as broker:
        run(loop(broker, folder), draw(loop, seed, KILLS))


def python_program(client: str) -> Program:
    return Program([sys.executable, "-W", "ignore", "-m", "tests.clients.python.groups", client])


CONFLUENT: Final = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("confluent_groups.py"))]
CREWS: Final[dict[str, tuple[Callable[[], Program], tuple[str, ...]]]] = {
    "java": (lambda: Program(program_command("Groups")), ("classic", "consumer")),
    "confluent-kafka": (lambda: Program(CONFLUENT), ("classic", "consumer")),
    "franz-go": (lambda: Program(go_program("franz")), ("classic", "consumer")),
    "rdkafka": (lambda: Program(rust_program("rdkafka")), ("classic", "consumer")),
    "aiokafka": (lambda: python_program("aiokafka"), ("classic",)),
    "kafka-python": (lambda: python_program("kafka-python"), ("classic",)),
}
"""Group loops with kills, by client: a function that returns the program, and the group protocols of the loop."""
LOOPS: Final[dict[str, Callable[[], Program]]] = {
    "sarama": lambda: Program(go_program("sarama")),
    "kafkajs": lambda: Program(node_program("kafkajs")),
}
FRAMEWORKS: Final[Sequence[type[Loop]]] = (
    StreamsLoop,
    ConnectLoop,
    DebeziumLoop,
    FlinkLoop,
    FlinkPoolingLoop,
    SpringLoop,
    SpringConsumerLoop,
)

JOBS: Final[Sequence[Job]] = (
    *(Job(loop.name, partial(framework_run, loop)) for loop in FRAMEWORKS),
    *(
        Job(f"{name}-{protocol}-group", partial(crew_run, program, protocol, Crew, DEATHS))
        for name, (program, protocols) in CREWS.items()
        for protocol in protocols
    ),
    *(Job(name, partial(loop_run, program)) for name, program in LOOPS.items()),
    Job(
        "kafka-go",
        partial(crew_run, lambda: Program(go_program("segmentio")), "classic", AtLeastOnce, GROUP_DEATHS),
    ),
    Job(
        "platformatic-classic-group",
        partial(crew_run, lambda: Program(node_program("platformatic")), "classic", AtLeastOnce, DEATHS),
    ),
    Job("quixstreams", partial(streams_run, "quixstreams")),
)
