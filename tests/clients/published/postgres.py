"""Runs the published tests of PostgreSQL drivers directly and through the proxy of ``--stage postgres``, and compares them.

    python -m tests.clients.published.postgres --suite psycopg --tests FOLDER --python VENV/bin/python

The tests are in no package: clone the tag from github.com/psycopg/psycopg or github.com/MagicStack/asyncpg, and name its
folder. The interpreter needs the driver in the version of the tag, pytest, and for psycopg also psycopg-pool and anyio.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as Xml
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from odradek.certify.services.postgres import service
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import StageSpec
from tests.support.postgres import PostgresServer

SUITES: Final[Mapping[str, tuple[str, ...]]] = {
    # Slow tests, type checks, and the pool, whose tests measure time.
    "psycopg": ("-m", "not slow and not mypy and not timing and not pproxy", "--ignore", "tests/pool"),
    # The style of its sources; and the servers that these tests start for themselves.
    "asyncpg": ("--ignore", "tests/test__sourcecode.py", "--ignore", "tests/test__environment.py"),
}


def outcomes(suite: str, folder: Path, python: Path, dsn: str, chosen: list[str]) -> dict[str, str]:
    """The outcome of each test with the server at ``dsn``."""
    at = urlsplit(dsn)
    names = {
        "PGHOST": at.hostname,
        "PGPORT": str(at.port),
        "PGUSER": at.username,
        "PGPASSWORD": at.password,
        "PGDATABASE": at.path[1:],
    }
    given = (
        {name: value or "" for name, value in names.items()}
        if suite == "asyncpg"
        else {"PSYCOPG_TEST_DSN": dsn}
    )
    with tempfile.TemporaryDirectory() as work:
        report = Path(work) / "report.xml"
        command = [
            str(python),
            "-m",
            "pytest",
            "-q",
            f"--junit-xml={report}",
            *SUITES[suite],
        ]
        subprocess.run([*command, *(chosen or ["tests"])], cwd=folder, env={**os.environ, **given})
        return {
            f"{case.get('classname')}::{case.get('name')}": next(
                (each.tag for each in case if each.tag in _BAD), "passed"
            )
            for case in Xml.parse(report).iter("testcase")
        }


_BAD: Final = ("failure", "error", "skipped")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=SUITES, required=True)
    parser.add_argument("--tests", type=Path, required=True)
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("chosen", nargs="*", help="arguments for pytest, such as tests/test_copy.py")
    options = parser.parse_args()
    run = options.suite, options.tests, options.python
    with PostgresServer() as server:
        server.execute("CREATE DATABASE direct")
        server.execute("CREATE DATABASE source")
        place = server.dsn.rpartition("/")[0]
        direct = outcomes(*run, f"{place}/direct", options.chosen)
        loop = Loop()
        stage = service(StageSpec("postgres", f"{place}/source"), loop.loop)
        stage.start(loop, [])
        stage.restore()
        proxied = outcomes(*run, stage.values()["postgres"], options.chosen)
        requests = len(stage.traffic.calls())
        stage.close()
        loop.close()
    different = {name: (direct.get(name), proxied.get(name)) for name in direct.keys() | proxied.keys()}
    different = {name: both for name, both in different.items() if both[0] != both[1]}
    print(
        f"direct {dict(Counter(direct.values()))}, proxy {dict(Counter(proxied.values()))}, {requests} requests"
    )
    for name, (one, other) in sorted(different.items()):
        print(f"{name}: direct {one}, proxy {other}")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
