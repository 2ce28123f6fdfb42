"""The jobs of examples/certify/beyond in Python, Go and Node, whose other end is PostgreSQL, HTTP or files, and the expected
results.

python -m tests.odradek.certify.beyond wrong/booking --seed 3 --minutes 2      # certify one job, and print the certificate
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from shutil import which
from typing import Any, Final

from odradek.certify import settings
from odradek.certify.certificate import Certificate
from odradek.certify.certifier import Certifier
from odradek.certify.outcome import Verdict
from odradek.certify.report.text import summary
from tests.clients.soak_jobs import Job
from tests.odradek.certify.zoo import BEYOND
from tests.support.foreign import go_program, node_folder
from tests.support.postgres import PostgresServer

RESULTS: Final = "postgres:SELECT id, amount FROM results"
ENTRIES: Final = "postgres:SELECT id, amount FROM entries"
PAYMENTS: Final = "http:POST /v1/payments"
FORGET: Final = (
    f"{sys.executable} -SE -c 'import sys, urllib.request as http; "
    """http.urlopen(http.Request(sys.argv[1], method="DELETE"))' {http}/v1/payments"""
)
"""Empties the payments service before each run."""
RUNS_MAX: Final = 60
FOUND_S: Final = 180.0
"""A wrong job is found within `RUNS_MAX` runs or this many seconds."""
BUDGET_S: Final = 60.0
"""Seconds for the certification of a correct job."""


@dataclass(frozen=True)
class Program:
    """A job, with the options for its certification. A correct one has no ``kinds``."""

    name: str
    """Path below the folder, without suffix: ``wrong/booking``, ``go/right/relay``."""
    outputs: tuple[str, ...]
    kinds: frozenset[str] = frozenset()
    """Kinds of findings; at least one of them is required."""
    diagnosis: str = ""
    """Name of the cause."""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_right(self) -> bool:
        return not self.kinds

    @property
    def title(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def services(self) -> frozenset[str]:
        """The services that it uses besides Kafka."""
        named = (*self.outputs, str(self.options.get("input", "")))
        return frozenset(each.partition(":")[0] for each in named) & {"postgres", "http"} - (
            {"http"} if "{port}" in named[-1] else set()
        )

    def command(self) -> list[str]:
        language, _, rest = self.name.partition("/")
        if language == "go":
            # lib/pq asks for TLS unless the environment says otherwise.
            return ["env", "PGSSLMODE=disable", *go_program(self.title, BEYOND / "go")]
        if language == "node":
            packages, node = node_folder(BEYOND / "node") / "node_modules", which("node")
            assert node is not None
            return ["env", f"NODE_PATH={packages}", node, str(BEYOND / f"node/{rest}.js")]
        return [sys.executable, str(BEYOND / f"{self.name}.py")]


KEYED: Final = {"compare": "keyed"}
OUTBOX: Final = {"input": "postgres:outbox=outbox.ndjson", "until": "exit", **KEYED}
POSTED: Final = {"input": "http:POST http://127.0.0.1:{port}/orders=requests.ndjson", "until": "idle=1s"}
WRONG: Final = [
    Program("wrong/orders_api", (RESULTS, "events"), frozenset({"torn", "lost"}), "dual-write", POSTED),
    Program("node/wrong/shipments", (RESULTS, "events"), frozenset({"duplicated"}), "dual-write"),
    Program("wrong/order_store", (RESULTS,), frozenset({"lost"}), "offset-before-database"),
    Program("wrong/booking", (ENTRIES,), frozenset({"lost", "duplicated"}), "auto-commit"),
    Program("go/wrong/invoices", (PAYMENTS,), frozenset({"duplicated"}), "new-idempotency-key"),
    Program("node/wrong/webhook", (PAYMENTS,), frozenset({"duplicated"}), "no-idempotency-key"),
    Program("wrong/charge", (PAYMENTS,), frozenset({"duplicated"}), "post-retried"),
    Program(
        "wrong/customer_totals",
        ("postgres:SELECT customer, amount FROM totals",),
        frozenset({"changed"}),
        "not-idempotent-upsert",
    ),
    Program("wrong/bookkeeper", (ENTRIES,), frozenset({"lost"}), "dedup-outside-transaction"),
    Program("go/wrong/outboxrelay", ("events",), frozenset({"lost"}), "outbox-deleted-early", OUTBOX),
    Program(
        "wrong/publisher",
        (RESULTS, "events"),
        frozenset({"stuck", "torn", "lost"}),
        "prepared-forgotten",
        KEYED,
    ),
    Program(
        "wrong/statements",
        ("postgres:SELECT customer, line, amount FROM lines",),
        frozenset({"lost"}),
        "do-nothing-hides",
    ),
    Program("go/wrong/ledger", (RESULTS,), frozenset({"lost"}), "commit-swallowed"),
    Program(
        "wrong/loader", (ENTRIES,), frozenset({"duplicated"}), "offsets-outside", {"until": "records=30"}
    ),
]
RIGHT: Final = [
    Program("right/order_outbox", (ENTRIES, "events"), options=KEYED),
    Program("right/bookings", (ENTRIES,), options={"until": "records=30"}),
    Program("go/right/upserts", (RESULTS,)),
    Program("node/right/inbox", (ENTRIES,)),
    Program("node/right/pay", (PAYMENTS,)),
    Program("go/right/relay", ("events",), options=OUTBOX),
    Program("right/two_phases", (RESULTS,)),
    Program("right/archive", ("files:archive/*.ndjson",)),
]
PROGRAMS: Final = [*WRONG, *RIGHT]


# -- runs ----------------------------------------------------------------------------------------------------------------


@contextmanager
def payments() -> Iterator[str]:
    """The payments service of the examples. Yields its URL."""
    command = [sys.executable, str(BEYOND / "payments.py"), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as service:
        try:
            assert service.stdout is not None
            yield service.stdout.readline().strip()
        finally:
            service.kill()


@contextmanager
def stages(program: Program, server: PostgresServer | None = None) -> Iterator[dict[str, str]]:
    """The services that the program uses: name -> address."""
    with ExitStack() as stack:
        found = {}
        if "postgres" in program.services:
            found["postgres"] = (server or stack.enter_context(PostgresServer())).dsn
        if "http" in program.services:
            found["http"] = stack.enter_context(payments())
        yield found


def certified(program: Program, services: Mapping[str, str], **more: Any) -> Certifier:
    topics = [each for each in program.outputs if ":" not in each]
    options = {
        "job": program.command(),
        "topic": ["orders:2", *(f"{each}:2" for each in topics)],
        "seed-records": [] if "input" in program.options else ["orders=orders.ndjson"],
        "stage": [f"{name}={address}" for name, address in services.items()],
        "stage-setup": [f"postgres={BEYOND}/orders.sql"] if "postgres" in services else [],
        "stage-reset": [f"http={FORGET}"] if "http" in services else [],
        "output": list(program.outputs),
        **program.options,
    }
    return Certifier(settings.workload(options, BEYOND), **more)


def is_found(program: Program, seed: int, server: PostgresServer | None = None) -> Certificate:
    """Check that the failure of a wrong job is found with its cause."""
    with stages(program, server) as services:
        certificate = certified(program, services, failures_max=1, seed=seed, budget_s=FOUND_S).run()
    assert certificate.failures, summary(certificate)
    (failure,) = certificate.failures[:1]
    assert program.kinds & set(failure.kinds), summary(certificate)
    assert program.diagnosis == failure.diagnosis[0].name, summary(certificate)
    assert certificate.runs <= RUNS_MAX or certificate.took_s <= FOUND_S, summary(certificate)
    return certificate


def is_certified(
    program: Program, seed: int, server: PostgresServer | None = None, budget_s: float = BUDGET_S
) -> Certificate:
    """Check that nothing is found in a correct job."""
    with stages(program, server) as services:
        certificate = certified(program, services, seed=seed, budget_s=budget_s).run()
    assert certificate.verdict in (Verdict.CLEAN, Verdict.INCOMPLETE), summary(certificate)
    assert certificate.lints == [], summary(certificate)
    return certificate


def _tried(program: Program, seed: int, directory: Path) -> None:
    (is_certified if program.is_right else is_found)(program, seed)


JOBS: Final = [Job(f"beyond-{each.title}", partial(_tried, each)) for each in PROGRAMS]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.odradek.certify.beyond")
    parser.add_argument("name", choices=[each.name for each in PROGRAMS], nargs="+")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--failures", type=int, default=1)
    given = parser.parse_args(arguments)
    for program in (each for each in PROGRAMS if each.name in given.name):
        with stages(program) as services, tempfile.TemporaryDirectory():
            more = {"seed": given.seed, "budget_s": given.minutes * 60, "failures_max": given.failures}
            certificate = certified(program, services, **more).run()
        print(program.name, certificate.verdict.value, certificate.runs, "runs")
        for failure in certificate.failures:
            names = [each.name for each in failure.diagnosis]
            is_named = names[:1] == [program.diagnosis]
            print(
                "  ", failure.kinds, names, "as expected" if is_named else f"{program.diagnosis} is expected"
            )
        print(summary(certificate))
    return 0


if __name__ == "__main__":
    sys.exit(main())
