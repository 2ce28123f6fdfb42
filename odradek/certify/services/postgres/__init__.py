"""PostgreSQL behind a proxy: statements are requests, and each run begins with a database of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import psycopg

from odradek.certify.services.calls import Traffic
from odradek.certify.services.postgres.address import Address, certificate_of_proxy
from odradek.certify.services.postgres.databases import Databases
from odradek.certify.services.postgres.proxy import Proxy
from odradek.certify.services.service import Loop
from odradek.certify.services.specs import Feed, ServiceOutput, StageSpec
from odradek.extras import install_command
from odradek.topics import Record

_WRITE: Final = frozenset(
    {
        "pg_notify",
        "pg_logical_emit_message",
        "dblink_exec",
        "lo_create",
        "lo_from_bytea",
        "lo_put",
        "lo_unlink",
    }
)
"""Functions of PostgreSQL and its extensions with which a SELECT changes something. A sequence's next value is no change."""


def service(spec: StageSpec, loop: asyncio.AbstractEventLoop) -> PostgresService:
    """Create the service of ``--stage postgres=DSN``. Raises ``ValueError`` for an invalid DSN."""
    try:
        address = Address.parse(spec.address)
        certificate = certificate_of_proxy() if address.has_tls else None
    except ValueError as error:
        raise ValueError(f"--stage {spec.name}: {error}") from None
    except ImportError as error:
        command = install_command("security")
        raise ValueError(
            f"--stage {spec.name}: TLS needs {error.name}, which is not installed: {command}"
        ) from None
    return PostgresService(spec, Proxy(spec.name, address, Traffic(loop), certificate))


class PostgresService:
    """The proxy of a PostgreSQL server, and the databases of the runs."""

    def __init__(self, spec: StageSpec, proxy: Proxy) -> None:
        self._spec, self._proxy = spec, proxy
        self._databases = Databases(spec.address, spec.setup)
        self._reads_functions = True
        self.traffic = proxy.traffic

    def start(self, loop: Loop, feeds: Sequence[Feed]) -> None:
        self._loop = loop
        self._databases.prepare(feeds)
        loop.run(self._proxy.listener.open())

    def restore(self) -> None:
        self._loop.run(self._proxy.listener.restore())
        self._proxy.database = database = self._databases.next()
        if self._reads_functions:
            self._proxy.volatile = functions_that_write(self._spec.address, database)
            self._reads_functions = False

    @property
    def database(self) -> str:
        """The database of the run."""
        return self._proxy.database

    def values(self) -> Mapping[str, str]:
        # The name of the run's database: Debezium looks for its slot by the name that it was given, and JDBC for tables.
        return self._proxy.address.values(self._spec.name, self._proxy.listener.port, self.database)

    def records(self, output: ServiceOutput) -> list[Record]:
        return self._databases.records(output, self.database)

    def open_transactions(self) -> list[str]:
        return self._databases.open_transactions(self.database)

    def close(self) -> None:
        self._loop.run(self._proxy.listener.close())
        self._databases.close()


def functions_that_write(dsn: str, database: str) -> frozenset[str]:
    """Names of functions with which a SELECT may change something: those of the user that are volatile, and a few others.

    Functions in C are those of extensions, which are volatile mostly because they return something random.
    """
    with psycopg.connect(dsn, dbname=database) as session:
        found = session.execute(
            "SELECT lower(proname) FROM pg_proc JOIN pg_language l ON l.oid = prolang WHERE provolatile = 'v'"
            " AND lanname NOT IN ('c', 'internal') AND pronamespace::regnamespace::text"
            " NOT IN ('pg_catalog', 'information_schema')"
        )
        return _WRITE | {name for (name,) in found}
