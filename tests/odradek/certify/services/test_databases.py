"""The databases of the runs of a PostgreSQL stage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from odradek.certify.services.postgres.databases import Databases
from odradek.certify.services.specs import Feed, ServiceOutput
from odradek.errors import OdradekError
from tests.support.deadlines import Deadline
from tests.support.postgres import DATABASE, PostgresServer

pytestmark = [pytest.mark.more, pytest.mark.postgres]
APP = "app"


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """A server with the database `APP` of a user, in which nothing of ours is left at the end."""
    postgres.execute(f"CREATE DATABASE {APP}")
    yield postgres
    postgres.execute(f"DROP DATABASE {APP} WITH (FORCE)")
    assert postgres.execute("SELECT datname FROM pg_database WHERE datname LIKE 'odradek%'") == ""
    assert postgres.execute("SELECT gid FROM pg_prepared_xacts") == ""
    assert postgres.execute("SELECT slot_name FROM pg_replication_slots") == ""


@pytest.fixture
def databases(server: PostgresServer) -> Iterator[Databases]:
    """The databases of a stage with the table ``results``, prepared."""
    server.execute("CREATE TABLE results (id bigserial PRIMARY KEY, word text)", APP)
    found = Databases(dsn(server), None)
    found.prepare([])
    yield found
    found.close()


def dsn(server: PostgresServer, database: str = APP) -> str:
    return server.dsn.removesuffix(DATABASE) + database


def selected(databases: Databases, database: str, query: str) -> list[tuple[object, object]]:
    """(key, value) of the records of a query."""
    found = databases.records(ServiceOutput("postgres", query), database)
    assert [(each.topic, each.partition, each.offset) for each in found] == [
        (f"postgres:{query}", -1, number) for number in range(len(found))
    ]
    return [(each.key, json.loads(str(each.value))) for each in found]


def test_each_run_begins_with_the_users_rows_the_setup_and_the_inputs(server: PostgresServer, tmp_path: Path):
    server.execute(
        "CREATE TABLE results (id bigserial PRIMARY KEY, word text); INSERT INTO results (word) VALUES ('a')",
        APP,
    )
    server.execute(
        f"ALTER DATABASE {APP} SET search_path TO sales, public; ALTER DATABASE {APP} SET work_mem TO '7MB'"
    )
    setup = tmp_path / "setup.sql"
    setup.write_text(
        "CREATE SCHEMA sales;\nCREATE TABLE orders (id int PRIMARY KEY, amount numeric(10, 2), tags text[], "
        "doc jsonb, at timestamptz, note text DEFAULT '100%');"
    )
    rows = tmp_path / "orders.ndjson"
    rows.write_text(
        '{"id": 1, "amount": 12.50, "tags": ["x", "y"], "doc": {"b": [1.0, null], "a": "1"}, "at": "2026-01-01T00:00Z"}\n\n'
        '{"id": 2, "amount": null}\n'
    )
    databases = Databases(dsn(server), setup)
    try:
        databases.prepare([Feed("postgres", "sales.orders", rows)])
        # Each second run skips a value of each sequence.
        for next_id in (2, 3, 2):
            run = databases.next()
            assert selected(databases, run, "SELECT * FROM orders ORDER BY id") == [
                (
                    "1",
                    {
                        "id": 1,
                        "amount": 12.5,
                        "tags": ["x", "y"],
                        "doc": {"a": "1", "b": [1, None]},
                        "at": "2026-01-01 00:00:00+00",
                        "note": "100%",
                    },
                ),
                ("2", {"id": 2, "amount": None, "tags": None, "doc": None, "at": None, "note": "100%"}),
            ]
            assert (
                server.execute("INSERT INTO results (word) VALUES ('b') RETURNING id", run) == f"{next_id}\n"
            )
            assert server.execute("SHOW work_mem", run) == "7MB\n"
    finally:
        databases.close()
    assert server.execute("SELECT word FROM results", APP) == "a\n"


def test_what_a_run_leaves_is_gone_when_the_next_begins(server: PostgresServer, databases: Databases):
    run = databases.next()
    session = psycopg.connect(dsn(server, run), autocommit=True)
    session.execute("SELECT pg_create_logical_replication_slot('relay', 'pgoutput')")
    with psycopg.connect(dsn(server, run)) as other:
        other.execute("INSERT INTO results (word) VALUES ('prepared')")
        other.execute("PREPARE TRANSACTION 'forgotten'")
    next_run = databases.next()
    assert next_run != run
    with pytest.raises(psycopg.OperationalError):
        session.execute("SELECT 1")
    # The names of slots and of prepared transactions are free again.
    with psycopg.connect(dsn(server, next_run), autocommit=True) as session:
        session.execute("SELECT pg_create_logical_replication_slot('relay', 'pgoutput')")
        session.execute("BEGIN; INSERT INTO results (word) VALUES ('b'); PREPARE TRANSACTION 'forgotten'")
    databases.next()
    deadline = Deadline()
    while server.execute(f"SELECT datname FROM pg_database WHERE datname IN ('{run}', '{next_run}')"):
        deadline.check("the databases of previous runs are dropped")


def test_a_prepared_transaction_and_a_forgotten_one_are_open(server: PostgresServer, databases: Databases):
    run = databases.next()
    with psycopg.connect(dsn(server, run)) as session:
        session.execute("INSERT INTO results (word) VALUES ('prepared')")
        session.execute("PREPARE TRANSACTION 'two-phase'")
    with psycopg.connect(dsn(server, run)) as writer, psycopg.connect(dsn(server, run)) as reader:
        reader.execute("SELECT * FROM results")
        writer.execute("INSERT INTO results (word) VALUES ('open')")
        deadline = Deadline()
        while len(found := databases.open_transactions(run)) < 2:
            deadline.check("the open transaction is idle for a second")
        prepared, idle = found
        assert prepared.startswith("prepared transaction two-phase of odradek, since 20")
        assert prepared.endswith("holds its locks (RowExclusiveLock on results)")
        assert idle.startswith(
            f"session {writer.info.backend_pid} of odradek is idle in a transaction since 20"
        )
        assert idle.endswith("(RowExclusiveLock on results): INSERT INTO results (word) VALUES ('open')")
    assert len(databases.open_transactions(run)) == 1


def test_the_columns_of_a_query_are_json_values_or_postgresqls_text(databases: Databases):
    query = (
        "SELECT true AS yes, 1.10::numeric AS n, 2.0::float8 AS f, 'NaN'::numeric AS nan, '\\x01ff'::bytea AS b, "
        "'{1.50,2}'::numeric[] AS list, '{\"a\": 1.0}'::jsonb AS doc, '1 day'::interval AS i, "
        "'2026-01-01 10:00+02'::timestamptz AS at, '[1,3)'::int4range AS r, "
        "'00000000-0000-0000-0000-000000000001'::uuid AS u, NULL AS nothing"
    )
    [(key, value)] = selected(databases, databases.next(), query)
    assert key == "true"
    assert value == {
        "yes": True,
        "n": 1.1,
        "f": 2,
        "nan": "NaN",
        "b": "\\x01ff",
        "list": [1.5, 2],
        "doc": {"a": 1},
        "i": "P1D",
        "at": "2026-01-01 08:00:00+00",
        "r": "[1,3)",
        "u": "00000000-0000-0000-0000-000000000001",
        "nothing": None,
    }


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELEC 1", 'syntax error at or near "SELEC"'),
        ("SELECT colour FROM results", 'column "colour" does not exist'),
        ("INSERT INTO results (word) VALUES ('x')", "cannot execute INSERT in a read-only transaction"),
        ("SELECT 1 AS a, 2 AS a", "two columns have the same name: name them with AS"),
        ("SET work_mem = '1MB'", "not a query that returns rows"),
    ],
)
def test_a_query_without_rows_to_read_is_refused(databases: Databases, query: str, said: str):
    with pytest.raises(OdradekError, match=f"^--output postgres:.*: {said}"):
        databases.records(ServiceOutput("postgres", query), databases.next())


def test_a_table_that_is_missing_or_locked_has_no_rows(server: PostgresServer, databases: Databases):
    run = databases.next()
    assert selected(databases, run, "SELECT * FROM later") == []
    server.execute("INSERT INTO results (word) VALUES ('a')", run)
    with psycopg.connect(dsn(server, run)) as session:
        session.execute("LOCK TABLE results")
        assert selected(databases, run, "SELECT id FROM results") == []
    assert selected(databases, run, "SELECT id FROM results") == [("1", {"id": 1})]


def refusal(dsn: str, setup: Path | None = None, feeds: list[Feed] | None = None) -> str:
    databases = Databases(dsn, setup)
    try:
        with pytest.raises(OdradekError) as raised:
            databases.prepare(feeds or [])
    finally:
        databases.close()
    return str(raised.value)


def test_reasons_why_a_stage_cannot_be_prepared(server: PostgresServer, tmp_path: Path):
    server.execute(
        "CREATE ROLE weak LOGIN PASSWORD 'secret'; CREATE ROLE maker LOGIN CREATEDB PASSWORD 'secret'"
    )
    try:
        weak, maker = (dsn(server).replace("odradek:", f"{each}:") for each in ("weak", "maker"))
        assert "connection refused" in refusal("postgresql://127.0.0.1:1/app").lower()
        assert 'database "none" does not exist' in refusal(dsn(server, "none"))
        assert refusal(weak) == (
            "cannot create a database: permission denied to create database (ALTER ROLE weak CREATEDB)"
        )
        assert refusal(maker) == (
            f"cannot copy the database {APP} as role maker, which must own it: permission denied to copy database"
            f' "{APP}"'
        )
        setup, rows = tmp_path / "setup.sql", tmp_path / "rows.ndjson"
        setup.write_text("CREATE TABLE t (id int);\nCREATE TABEL u (id int);")
        assert refusal(dsn(server), setup) == (f'--stage-setup: {setup}:2: syntax error at or near "TABEL"')
        setup.write_text("CREATE TABLE t (id int)")
        for line, said in (
            ("[1]", "expected a JSON object"),
            ('{"ID": 1}', 'column "ID" of relation "t" does not exist'),
            ('{"id": "x"}', 'invalid input syntax for type integer: "x"'),
        ):
            rows.write_text(f'{{"id": 1}}\n{line}\n')
            assert refusal(dsn(server), setup, [Feed("postgres", "t", rows)]) == (
                f"--input postgres:t: {rows}:2: {said}"
            )
    finally:
        server.execute("DROP ROLE weak; DROP ROLE maker")


def test_the_sessions_that_prevent_a_copy_are_named(server: PostgresServer):
    with psycopg.connect(dsn(server), application_name="console") as session:
        assert refusal(dsn(server)) == (
            f"database {APP} cannot be copied while other sessions use it: end them, or name a database that nobody "
            f"uses: {session.info.backend_pid} (console, odradek)"
        )


def test_the_databases_of_a_killed_certifier_are_dropped_by_the_next(server: PostgresServer):
    killed = Databases(dsn(server), None)
    killed.prepare([])
    killed.next()
    killed._worker.shutdown()
    for session in (*killed._readers.values(), killed._admin):
        session.close()
    beside = Databases(dsn(server), None)
    beside.prepare([])
    run = beside.next()
    databases = Databases(dsn(server), None)
    databases.prepare([])
    names = server.execute("SELECT datname FROM pg_database")
    assert killed._prefix not in names
    assert run in names
    databases.close()
    beside.close()


def test_two_stages_may_copy_the_maintenance_database_at_once(server: PostgresServer):
    first, second = (Databases(server.dsn, None) for _ in range(2))
    first.prepare([])
    second.prepare([])
    assert first.next() != second.next()
    first.close()
    second.close()
