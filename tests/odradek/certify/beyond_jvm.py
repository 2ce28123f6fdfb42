"""The jobs of examples/certify/beyond on a JVM: Kafka Connect, Debezium, Flink, Spring Boot and Spark beside PostgreSQL.

python -m tests.odradek.certify.beyond_jvm connect/wrong/journal.json --seed 3      # certify one, and print the certificate

A job starts in half the CPU time with an archive of its framework's classes. `copied` writes it when it runs a job of the
framework for the first time.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyspark

from odradek.certify import settings
from odradek.certify.certificate import Certificate
from odradek.certify.certifier import Certifier
from odradek.certify.outcome import Verdict
from odradek.certify.report.text import summary
from odradek.certify.runs.seeding import write
from odradek.certify.workload import Seed
from odradek.process import BrokerProcess
from odradek.spark import environment
from tests.clients.soak_jobs import Job
from tests.odradek.certify.zoo import BEYOND, RECORDS, ZOO
from tests.spark.archive import java_options
from tests.support.clients import eventually, values
from tests.support.deadlines import HANG_S
from tests.support.java import SHORT_LIVED, class_archive, java, project_jars, with_archive
from tests.support.javaprog import CACHE, compiled
from tests.support.postgres import HOST, PASSWORD, USER, PostgresServer

SETUP: Final = BEYOND / "frameworks.sql"
JVM: Final = ("-Xmx256m", *SHORT_LIVED, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
BUDGET_S: Final = 360.0
ROWS: Final = "SELECT id, amount FROM results"
ENTRIES: Final = "SELECT id, amount FROM journal"


class Program(NamedTuple):
    """A job of a framework's folder."""

    framework: str
    name: str
    """Path of its source or of its connector below the folder, such as ``right/Ledger.java``."""
    output: str
    """The query of its rows. Empty if it writes to the topic ``out``."""
    words: tuple[str, ...] = ()
    """Its arguments, with ``{data}`` for the directory of a run. Connectors: the main class, and its files."""
    kinds: frozenset[str] = frozenset()
    """Kinds of findings of a wrong job; at least one of them is required. A correct job has none."""
    diagnosis: str = ""
    """Name of the cause."""

    @property
    def until(self) -> str | None:
        if self.framework == "debezium":
            # The events follow the rows.
            return f"records={2 * RECORDS}"
        if self.framework == "flink":
            # Its offsets are in checkpoints.
            return f"records={RECORDS}"
        return None if self.is_endless else "exit"

    @property
    def is_endless(self) -> bool:
        return self.framework != "spark"

    @property
    def title(self) -> str:
        return f"{self.framework}/{self.name}"


DUPLICATED: Final = frozenset({"duplicated"})
TORN: Final = frozenset({"torn", "lost"})
PROGRAMS: Final = [
    Program("connect", "right/rows.json", ROWS, ("Worker", "worker.properties")),
    Program(
        "connect",
        "wrong/journal.json",
        ENTRIES,
        ("Worker", "worker.properties"),
        DUPLICATED,
        "offsets-outside",
    ),
    Program("debezium", "right/events.json", "", ("Shop", "right/worker.properties")),
    Program("debezium", "wrong/events.json", "", ("Shop", "wrong/worker.properties"), DUPLICATED),
    # What was prepared before a crash was still there at the end of each run that was seen.
    Program("flink", "right/Ledger.java", ENTRIES, ("{data}",), frozenset({"stuck"}), "prepared-forgotten"),
    Program("flink", "wrong/Entries.java", ENTRIES, ("{data}",), DUPLICATED, "offsets-outside"),
    Program("spring", "right/Checkout.java", ""),
    Program("spring", "wrong/Orders.java", "", (), TORN),
    Program("spring", "wrong/Billing.java", "", (), TORN),
    Program("spark", "right/spark_batches.py", ENTRIES, ("{data}",)),
    Program("spark", "wrong/spark_rows.py", ENTRIES, ("{data}",), DUPLICATED, "offsets-outside"),
]


def place(program: Program) -> Path:
    return (BEYOND if program.framework == "spark" else BEYOND / program.framework) / program.name


# -- commands ------------------------------------------------------------------------------------------------------------


def command(program: Program, *options: str) -> list[str]:
    """Command of a job, with its placeholders. ``options`` are more options of its JVM."""
    if program.framework == "spark":
        return _submit(program)
    folder = BEYOND / program.framework
    words = program.words
    if program.name.endswith(".json"):
        words = (words[0], *(str(folder / each) for each in (*words[1:], program.name)))
    else:
        words = (Path(program.name).stem, *words)
    archive = _archive(program)
    shared = with_archive(archive) if archive.exists() and not options else options
    return [java(), *JVM, *shared, "-cp", _classpath(program), *words]


def _archive(program: Program) -> Path:
    programs = Path(_classpath(program).split(os.pathsep)[0])
    return class_archive(f"beyond-{program.framework}-{programs.stem}")


@cache
def _classpath(program: Program) -> str:
    folder = BEYOND / program.framework
    jars = project_jars(folder)
    if program.name.endswith(".json"):
        others = [] if program.framework == "connect" else [BEYOND / "connect" / "Worker.java"]
        classes = compiled(folder, jars, *others).split(os.pathsep)[0]
    else:
        sources = sorted(folder.glob("*/*.java"))
        classes = compiled(folder, jars, *sources).split(os.pathsep)[0]
    return os.pathsep.join([str(_packed(Path(classes))), jars])


def _packed(classes: Path) -> Path:
    """A jar of classes: an archive for class-data sharing does not accept folders in the class path."""
    jar = CACHE / f"{classes.name}.jar"
    if not jar.exists():
        made = jar.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(made, "w") as file:
            for each in sorted(classes.rglob("*.class")):
                file.write(each, each.relative_to(classes))
        made.rename(jar)
    return jar


def _submit(program: Program) -> list[str]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.extraJavaOptions": java_options(),
    }
    driver = Path(project_jars(BEYOND / "flink")).parent.glob("postgresql-*.jar")
    jars = ",".join(map(str, [*environment.connector_jars(), *driver]))
    options = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    submit = Path(pyspark.__path__[0]) / "bin" / "spark-submit"
    variables = [f"PYSPARK_PYTHON={sys.executable}", f"JAVA_HOME={environment.java().resolve().parents[1]}"]
    return [
        *("env", *variables, str(submit), "--master", "local[2]", "--jars", jars),
        *options,
        str(place(program)),
        *program.words,
    ]


# -- runs without faults -------------------------------------------------------------------------------------------------


def copied(program: Program, broker: BrokerProcess, server: PostgresServer, directory: Path) -> list[str]:
    """Run a job without faults in a database of its own. Returns the ids of its rows, or the values of its topic."""
    database = re.sub(r"\W", "_", f"{program.framework}_{program.name}".lower())
    server.execute(f"CREATE DATABASE {database}")
    server.execute(SETUP.read_text(), database)
    write(broker.bootstrap, [Seed("in", f"v{number}", f"k{number % 7}") for number in range(RECORDS)])

    def outputs() -> list[str]:
        if not program.output:
            return [value or "" for value in values(broker.bootstrap, "out")]
        return [line.split("|")[0] for line in server.execute(program.output, database).splitlines()]

    environment = os.environ | address(server, database) | {"KAFKA_BOOTSTRAP_SERVERS": broker.bootstrap}
    log = directory / "log"
    with _archiving(program) as options:
        words = [word.replace("{data}", str(directory)) for word in command(program, *options)]
        with log.open("wb") as said:
            job = subprocess.Popen(words, env=environment, stdout=said, stderr=said, start_new_session=True)
        try:
            if program.is_endless:
                eventually(lambda: job.poll() is not None or len(outputs()) >= RECORDS, program.name)
                assert job.poll() is None, log.read_text()
            else:
                assert job.wait(HANG_S) == 0, log.read_text()
            return outputs()
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGTERM)
                job.wait(HANG_S)
            _drop_slots(server, database)


@contextmanager
def _archiving(program: Program) -> Iterator[tuple[str, ...]]:
    """Options with which the job's JVM writes the archive of its classes at its end, if there is none yet."""
    if not program.is_endless or _archive(program).exists():
        yield ()
        return
    made = _archive(program).with_suffix(f".{os.getpid()}")
    yield f"-XX:ArchiveClassesAtExit={made}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"
    if made.exists():
        made.rename(_archive(program))


def _drop_slots(server: PostgresServer, database: str) -> None:
    """Drop the replication slots of a database. Their names are those of the whole server."""
    slots = f"FROM pg_replication_slots WHERE database = '{database}'"
    eventually(lambda: server.execute(f"SELECT count(*) {slots} AND active") == "0\n", "no slot is in use")
    server.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}")


def address(server: PostgresServer, database: str) -> dict[str, str]:
    """The variables from which a job takes the address of its database."""
    parts = {"HOST": HOST, "PORT": str(server.port), "USER": USER, "PASSWORD": PASSWORD, "DATABASE": database}
    dsn = f"postgresql://{USER}:{PASSWORD}@{HOST}:{server.port}/{database}"
    return {"ODRADEK_POSTGRES": dsn} | {f"ODRADEK_POSTGRES_{name}": value for name, value in parts.items()}


# -- certification -------------------------------------------------------------------------------------------------------


def certified(program: Program, server: PostgresServer, **more: Any) -> Certifier:
    outputs = [f"postgres:{program.output or ROWS}"] + ([] if program.output else ["out"])
    options = {
        "job": command(program),
        "topic": ["in:2", "out:2"],
        "seed-records": ["in=in.ndjson"],
        "stage": [f"postgres={server.dsn}"],
        "stage-setup": [f"postgres={SETUP}"],
        "output": outputs,
        "until": program.until,
    }
    return Certifier(settings.workload(options, ZOO), **more)


def is_as_expected(
    program: Program, seed: int, server: PostgresServer, budget_s: float = BUDGET_S
) -> Certificate:
    """Check that the failure of a wrong job is found with its cause, and that nothing is found in a correct one."""
    certificate = certified(program, server, failures_max=1, seed=seed, budget_s=budget_s).run()
    if not program.kinds:
        assert certificate.verdict in (Verdict.CLEAN, Verdict.INCOMPLETE), summary(certificate)
        assert certificate.lints == [], summary(certificate)
        return certificate
    assert certificate.failures, summary(certificate)
    (failure,) = certificate.failures[:1]
    assert program.kinds & set(failure.kinds), summary(certificate)
    names = {each.name for each in (*failure.diagnosis, *certificate.lints)}
    assert not program.diagnosis or program.diagnosis in names, (names, summary(certificate))
    return certificate


def _tried(program: Program, seed: int, directory: Path) -> None:
    with PostgresServer() as server:
        is_as_expected(program, seed, server)


JOBS: Final = [Job(f"beyond-{each.title}", partial(_tried, each)) for each in PROGRAMS]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.odradek.certify.beyond_jvm")
    parser.add_argument("title", choices=[each.title for each in PROGRAMS], nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=BUDGET_S / 60)
    given = parser.parse_args(arguments)
    with PostgresServer() as server:
        for program in (each for each in PROGRAMS if each.title in given.title):
            certificate = certified(
                program, server, failures_max=1, seed=given.seed, budget_s=given.minutes * 60
            ).run()
            print(f"{program.title}: {summary(certificate)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
