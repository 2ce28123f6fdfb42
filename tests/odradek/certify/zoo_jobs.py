"""All jobs of examples/certify: their commands, and the expected results.

Jobs in Python and Go are quick. Jobs on a JVM and on Spark need some seconds of CPU for each start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from shutil import which
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pyspark

from odradek.certify.outcome import Verdict
from odradek.certify.report.text import summary
from odradek.spark import environment
from tests.clients.soak_jobs import Job
from tests.odradek.certify.zoo import (
    LETTERS,
    RECORDS,
    ROOT,
    ZOO,
    Wrong,
    certified,
    find,
    python,
    shared,
)
from tests.spark.archive import java_options
from tests.support import kafka_oracle
from tests.support.foreign import go_program, node_folder
from tests.support.java import SHORT_LIVED, java
from tests.support.javaprog import compiled
from tests.support.jvm import framework_jars

BUDGET_S: Final = 120.0
BUDGET_ON_A_JVM_S: Final = 600.0
JVM: Final = (*SHORT_LIVED, "-Xshare:auto", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
SPARK: Final = ("spark.ui.enabled=false", "spark.driver.memory=512m", "spark.sql.shuffle.partitions=1")
Start = Callable[[], list[str]]

# -- commands ------------------------------------------------------------------------------------------------------------


def go(name: str) -> list[str]:
    return go_program(name, ZOO / "go")


def node(name: str) -> list[str]:
    """Command of a Node job, such as ``right/copier``, in a folder with its packages."""
    packages = node_folder(ZOO / "node") / "node_modules"
    program = which("node")
    assert program is not None
    return [which("env") or "env", f"NODE_PATH={packages}", program, str(ZOO / "node" / f"{name}.js")]


def plain_java(name: str) -> list[str]:
    """Command of a Java job, such as ``right/Copier``."""
    side, _, main = name.partition("/")
    return [java(), "-Xmx128m", *JVM, "-cp", compiled(ZOO / "java" / side, framework_jars("streams")), main]


def flink(name: str) -> list[str]:
    return [java(), "-Xmx384m", *JVM, "-cp", compiled(ZOO / "flink", framework_jars("flink")), name]


def spark(name: str) -> list[str]:
    """Command of a Spark job, such as ``right/spark_copier``, by spark-submit on two cores of this machine."""
    _prepare_spark()
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    jars = ",".join(map(str, environment.connector_jars()))
    said = [word for setting in SPARK for word in ("--conf", setting)]
    return [str(submit), "--master", "local[2]", "--jars", jars, *said, str(ZOO / f"{name}.py")]


@cache
def _prepare_spark() -> None:
    """Set the variables of Java and PySpark in this process's environment, which a Spark job inherits."""
    os.environ["JAVA_HOME"] = str(environment.java().resolve().parents[1])
    os.environ["JDK_JAVA_OPTIONS"] = java_options()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])


# -- expected results ----------------------------------------------------------------------------------------------------


class Right(NamedTuple):
    """A correct job, with the options for its certification."""

    name: str
    start: Start
    budget_s: float = BUDGET_S
    until: str | None = None
    """Value of --until; None lets the certifier choose."""
    partitions: int = 2
    nodes: int = 1
    compare: str = "rows"
    instances_max: int = 3
    """Maximum number of instances: 1 if a process reads all partitions, or does all the work itself."""
    check: str | None = None
    outputs: tuple[str, ...] = ("out",)
    options: Mapping[str, Any] = MappingProxyType({})
    """More options of the command."""
    program: str = ""
    """Name of the job's program, if another job has the same name."""


OF_SHARE_GROUPS: Final = [
    Wrong("share_early", frozenset({"lost"}), "acknowledged-early", options=shared()),
    Wrong("share_pooled", frozenset({"lost"}), "acknowledged-by-poll", options=shared()),
    Wrong("share_resent", frozenset({"duplicated"}), "weak-producer", options=shared()),
    Wrong(
        "share_retried",
        frozenset({"lost", "torn"}),
        "released-to-limit",
        ("out", "errors"),
        options=shared("share.delivery.count.limit=3"),
    ),
]
SLOW: Final = shared(
    "share.record.lock.duration.ms=1000", set=["group.share.min.record.lock.duration.ms=1000"]
)
"""Options for a member of a share group whose locks last one second, less than it takes."""
OF_PYTHON: Final = [
    Wrong("offsets_outside", frozenset({"duplicated", "lost"}), "offsets-outside"),
    Wrong("read_uncommitted", frozenset({"duplicated", "unexpected"}), "read-uncommitted"),
    Wrong("weak_producer", frozenset({"duplicated", "lost", "torn"}), "weak-producer", ("out", "journal")),
    Wrong("unawaited", frozenset({"lost"}), "send-not-awaited"),
    # The job's committed offsets are ahead of the records, so the lag never becomes 0, even if no record is lost.
    Wrong("reported_early", frozenset({"lost", "stuck"}), "reported-early"),
    Wrong("auto_commit", frozenset({"duplicated", "lost"}), "offsets-outside"),
    Wrong("second_producer", frozenset({"duplicated", "torn"}), "second-producer", ("out", "journal")),
    Wrong("no_rewind", frozenset({"lost"}), "no-rewind"),
    Wrong("swallowed", frozenset({"stuck"}), "fatal-error-swallowed"),
    Wrong("changing_id", frozenset({"stuck", "duplicated"}), "changing-id"),
    Wrong("no_group_metadata", frozenset({"stuck", "duplicated"}), "no-group-metadata"),
    Wrong("same_batch", frozenset({"duplicated"}), "new-producer-same-batch"),
    Wrong("in_two", frozenset({"duplicated"}), "outputs-without-positions"),
    Wrong("goes_on", frozenset({"stuck"}), "abort-missing"),
    Wrong("straggler", frozenset({"duplicated"}), "revoked-batch"),
    Wrong("turned_back", frozenset({"duplicated"}), "position-back"),
    Wrong("in_turn", frozenset({"stuck"}), "shared-id", instances=2, restart="never", is_seldom=True),
    Wrong("untraced", frozenset({"changed"}), ""),
    Wrong("emptied", frozenset({"changed"}), "", has_empty=True),
    Wrong("ends_early", frozenset({"unfinished"}), "ended-early", until="exit"),
    Wrong("remembered", frozenset({"duplicated"}), ""),
    Wrong("unlistened", frozenset({"lost"}), "delivery-ignored", compare="keyed"),
    Wrong("ahead", frozenset({"lost"}), "positions-ahead", compare="keyed"),
    Wrong("early_commit", frozenset({"lost"}), "positions-ahead"),
    Wrong("aio_auto", frozenset({"duplicated"}), "offsets-outside"),
    *OF_SHARE_GROUPS,
]
OF_GO: Final = [
    Wrong("uncommitted", frozenset({"duplicated", "unexpected"}), "read-uncommitted"),
    Wrong("outside", frozenset({"duplicated", "lost"}), "offsets-outside"),
    Wrong("newid", frozenset({"duplicated", "stuck"}), "changing-id"),
    Wrong("journal", frozenset({"duplicated", "torn"}), "weak-producer", ("out", "journal")),
    Wrong("unheard", frozenset({"lost"}), "send-not-awaited"),
    Wrong("logged", frozenset({"lost"}), "delivery-ignored", compare="keyed"),
]
OF_NODE: Final = [
    Wrong("resolved", frozenset({"duplicated"}), "offsets-outside"),
    Wrong("unsettled", frozenset({"lost"}), "positions-ahead", compare="keyed"),
]
OF_JAVA: Final = [
    Wrong("NoRewind", frozenset({"lost"}), "no-rewind"),
    Wrong("CommitSync", frozenset({"duplicated", "lost"}), "offsets-outside"),
    Wrong("ReportedEarly", frozenset({"lost", "stuck"}), "reported-early"),
    Wrong("ShortTimeout", frozenset({"lost"}), "short-time-out"),
    Wrong("SharedId", frozenset({"stuck"}), "shared-id", instances=2, restart="never", is_seldom=True),
    Wrong("StreamsLoop", frozenset({"duplicated", "lost"}), "streams-at-least-once"),
]
OF_SPARK: Final = [Wrong("spark_sink", frozenset({"duplicated"}), "spark-sink", until="exit")]
BY_MORE_THAN_CALLS: Final = ("read_uncommitted", "changing_id", "no_group_metadata")
"""Jobs whose mistake is not found behind a proxy, as it shows only if an input transaction is aborted during the run, a
consumer waits while the clock of transactions is stopped, or an instance is frozen and continues."""
BY_ANOTHER_FAULT: Final = ("swallowed",)
"""Jobs that ignore errors. Behind a proxy a failed abort is the first fault that shows this mistake, and the trace does
not contain the cause."""
RIGHT: Final = [
    Right("copier", partial(python, "right/copier")),
    Right("aio_copier", partial(python, "right/aio_copier"), instances_max=1),
    Right("session", partial(go, "session")),
    Right("partitions", partial(go, "partitions"), instances_max=1),
    Right(
        "sqlite_sink",
        partial(python, "right/sqlite_sink"),
        check=f"{sys.executable} {ZOO}/checks/sqlite_rows.py {{data}} in.ndjson",
    ),
    Right("outbox", partial(python, "right/outbox"), compare="keyed"),
    Right("cooperative", partial(python, "right/cooperative")),
    Right("drain", partial(python, "right/drain"), until="exit"),
    Right("random_id", partial(python, "right/random_id")),
    Right("aio_by_partition", partial(python, "right/aio_by_partition")),
    Right("kafka_python_copier", partial(python, "right/kafka_python_copier")),
    Right("share_copier", partial(python, "right/share_copier"), options=shared()),
    Right(
        "share_letters",
        partial(python, "right/share_letters"),
        outputs=("out", LETTERS),
        options=shared(f"errors.deadletterqueue.topic.name={LETTERS}"),
    ),
    Right(
        "share_upsert",
        partial(python, "right/share_upsert"),
        compare="keyed",
        options=shared(delivery="exactly-once"),
    ),
    Right("upsert", partial(go, "upsert"), compare="keyed"),
    Right("copier", partial(node, "right/copier"), program="node/copier"),
    Right("Copier", partial(plain_java, "right/Copier"), BUDGET_ON_A_JVM_S),
    Right("StreamsCopier", partial(plain_java, "right/StreamsCopier"), BUDGET_ON_A_JVM_S),
    Right("spark_copier", partial(spark, "right/spark_copier"), BUDGET_ON_A_JVM_S, "exit", instances_max=1),
    Right(
        "eos_transactions",
        partial(python, "public/eos_transactions"),
        BUDGET_S,
        "exit",
        1,
        3,
        instances_max=1,
    ),
]
OF_OTHERS: Final = [
    (
        Wrong(
            "FlinkCopier",
            frozenset({"stuck", "lost", "duplicated"}),
            "",
            until=f"records={RECORDS}",
            is_seldom=True,
        ),
        partial(flink, "FlinkCopier"),
    ),
    # This job gets stuck because librdkafka drops the only broker of a cluster.
    (
        Wrong("eos_transactions", frozenset({"stuck"}), "only-broker-dropped", until="exit", partitions=1),
        partial(python, "public/eos_transactions"),
    ),
    (
        Wrong("Processor", frozenset({"unfinished"}), "ended-early", until="exit"),
        partial(plain_java, "public/Processor"),
    ),
]


# -- runs ----------------------------------------------------------------------------------------------------------------


def is_certified(job: Right, upstream: str | None, seed: int, directory: Path) -> None:
    certificate = certified(
        job.start(),
        directory,
        job.outputs,
        until=job.until,
        partitions=job.partitions,
        nodes=job.nodes,
        compare=job.compare,
        instances=1 + (seed - 1) % job.instances_max,
        check=job.check,
        upstream=upstream,
        budget_s=job.budget_s,
        seed=seed,
        options=job.options,
    ).run()
    assert certificate.verdict in (Verdict.CLEAN, Verdict.INCOMPLETE), summary(certificate)
    assert certificate.lints == []


def is_found(job: Wrong, start: Start, seed: int, directory: Path) -> None:
    find(job, start(), directory, seed=seed)


def is_too_slow(seed: int, directory: Path) -> None:
    """A job whose locks run out without any fault cannot be judged: how often it repeats its outputs depends on the time."""
    job = certified(python("wrong/share_slow"), directory, options=SLOW, seed=seed, budget_s=BUDGET_S)
    certificate = job.run()
    assert certificate.verdict is Verdict.NOT_JUDGED
    assert certificate.not_judged.endswith("(docs/certify.md#never-renews)"), certificate.not_judged


def before_kafka(seed: int, directory: Path, run: Callable[[str], object]) -> None:
    with kafka_oracle.kafka() as kafka:
        run(f"{kafka.host}:{kafka.port}")


def _certified_before_kafka(job: Right, seed: int, directory: Path) -> None:
    before_kafka(seed, directory, lambda upstream: is_certified(job, upstream, seed, directory))


def _found_before_kafka(job: Wrong, seed: int, directory: Path) -> None:
    command = python(f"wrong/{job.name}")
    found = replace(job, diagnosis="") if job.name in BY_ANOTHER_FAULT else job
    before_kafka(seed, directory, lambda upstream: find(found, command, directory, upstream, seed))


_LANGUAGES: Final[list[tuple[list[Wrong], Callable[[str], list[str]]]]] = [
    (OF_PYTHON, lambda name: python(f"wrong/{name}")),
    (OF_GO, go),
    (OF_NODE, lambda name: node(f"wrong/{name}")),
    (OF_JAVA, lambda name: plain_java(f"wrong/{name}")),
    (OF_SPARK, lambda name: spark(f"wrong/{name}")),
]


def _jobs() -> Iterator[Job]:
    for right in RIGHT:
        yield Job(f"right-{right.program or right.name}", partial(is_certified, right, None))
    for jobs, command in _LANGUAGES:
        for wrong in jobs:
            yield Job(wrong.name, partial(is_found, wrong, partial(command, wrong.name)))
    yield Job("share_slow", is_too_slow)
    for wrong, start in OF_OTHERS:
        yield Job(wrong.name, partial(is_found, wrong, start))
    for right in RIGHT[:2]:
        yield Job(f"kafka-right-{right.name}", partial(_certified_before_kafka, right))
    for wrong in OF_PYTHON:
        if wrong.name not in BY_MORE_THAN_CALLS and wrong not in OF_SHARE_GROUPS:
            yield Job(f"kafka-{wrong.name}", partial(_found_before_kafka, wrong))


JOBS: Final = list(_jobs())
