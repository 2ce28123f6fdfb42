"""A proxy in front of a real PostgreSQL, and what a test reads of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

import psycopg

from odradek.certify.services.calls import Call, ServiceRule
from odradek.certify.services.postgres import PostgresService, service
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import StageSpec
from tests.support.deadlines import Deadline
from tests.support.postgres import PostgresServer

_SESSIONS: Final = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    " AND application_name NOT LIKE 'odradek%'"
)


class Proxied:
    """The service ``postgres`` in front of a database of its own."""

    def __init__(self, service: PostgresService, dsn: str) -> None:
        self.service = service
        self.source = dsn
        """DSN of the database of which each run has a copy."""

    @property
    def dsn(self) -> str:
        return self.service.values()["postgres"]

    def connect(self, *, autocommit: bool = False) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(self.dsn, autocommit=autocommit)

    def rule(self, on: str, action: str, nth: int = 1) -> ServiceRule:
        return self.service.traffic.add(f"postgres:{on} nth={nth} -> {action}")

    def rows(self, query: str = "SELECT id FROM results ORDER BY id") -> list[object]:
        """The first column of a query, without the proxy."""
        with psycopg.connect(self.source, dbname=self.service.database) as connection:
            return [row[0] for row in connection.execute(query).fetchall()]

    def empty(self) -> None:
        """Begin a run: an empty table, and no requests and rules."""
        self.service.restore()
        self.service.traffic.begin()

    def until(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = Deadline()
        while not is_so():
            deadline.check(what)

    def sessions_end(self) -> None:
        """Wait until the server has ended all sessions of the proxy."""
        self.until(lambda: self.rows(_SESSIONS) == [0], "the sessions of the proxy end")

    def calls(self) -> list[Call]:
        return self.service.traffic.calls()

    def statements(self) -> list[tuple[str, str, str]]:
        """Request, phase and outcome of each."""
        return [(call.on.partition(":")[2], call.phase, call.outcome) for call in self.calls()]


@contextlib.contextmanager
def proxied(server: PostgresServer, name: str, parameters: str = "") -> Iterator[Proxied]:
    """Create a database with the table ``results``, and a proxy in front of it. ``parameters`` are those of the DSN."""
    server.execute(f"CREATE DATABASE {name}")
    server.execute("CREATE TABLE results (id bigint PRIMARY KEY, amount int)", name)
    dsn = f"{server.dsn.rpartition('/')[0]}/{name}" + (f"?{parameters}" if parameters else "")
    loop = Loop()
    found = service(StageSpec("postgres", dsn), loop.loop)
    found.start(loop, [])
    found.restore()
    try:
        yield Proxied(found, dsn)
    finally:
        found.close()
        loop.close()
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
