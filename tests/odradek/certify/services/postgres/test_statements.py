"""What a SQL text does: its kind, its tables, and whether it may change something."""

from __future__ import annotations

import pytest

from odradek.certify.services.postgres.statements import prepared, statement, statements


@pytest.mark.parametrize(
    ("sql", "on"),
    [
        ("INSERT INTO results (id, a) VALUES ($1,$2)", "INSERT results"),
        ("insert into public.results select * from orders", "INSERT results"),
        ('INSERT INTO "Results" VALUES (%s, %s)', "INSERT Results"),
        ("INSERT INTO audit.log VALUES (1)", "INSERT audit.log"),
        (
            "WITH old AS (DELETE FROM outbox RETURNING *) INSERT INTO sent SELECT * FROM old",
            "INSERT outbox,sent",
        ),
        ("WITH x AS (UPDATE b SET n = 1 RETURNING *) SELECT * FROM x", "UPDATE b"),
        ("UPDATE a SET n = b.n FROM b WHERE a.id = b.id", "UPDATE a"),
        ("DELETE FROM ONLY a USING b WHERE a.id = b.id", "DELETE a"),
        ("MERGE INTO t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = 1", "MERGE t"),
        ("TRUNCATE b, a", "TRUNCATE a,b"),
        ("SELECT * FROM outbox FOR UPDATE SKIP LOCKED", "SELECT outbox"),
        ("/* hint */ (SELECT 1 FROM z)", "SELECT z"),
        ("SELECT * INTO copies FROM originals", "CREATE TABLE copies"),
        ("COPY x (a, b) FROM STDIN (FORMAT BINARY)", "COPY x"),
        ("COPY x TO STDOUT", "COPY TO x"),
        ("COPY (SELECT * FROM y) TO STDOUT", "COPY TO"),
        ("CALL f(1)", "CALL f"),
        ("CREATE UNIQUE INDEX CONCURRENTLY IF NOT EXISTS i ON t (a)", "CREATE INDEX i"),
        ("create or replace view v as select 1", "CREATE VIEW v"),
        ("DROP TABLE IF EXISTS x", "DROP TABLE x"),
        ("-- first\nBEGIN ISOLATION LEVEL SERIALIZABLE", "BEGIN"),
        ("START TRANSACTION", "BEGIN"),
        ("END", "COMMIT"),
        ("commit work and chain", "COMMIT"),
        ("ABORT", "ROLLBACK"),
        ("ROLLBACK WORK TO SAVEPOINT s", "ROLLBACK TO"),
        ("PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"),
        ("COMMIT PREPARED 'x'", "COMMIT PREPARED"),
        ("ROLLBACK PREPARED 'x'", "ROLLBACK PREPARED"),
        ("NOTIFY orders, 'x'", "NOTIFY orders"),
        ("UPDATE t SET !!! what sqlglot cannot parse ((", "UPDATE t"),
        ("FROBNICATE everything", "FROBNICATE"),
        ("", ""),
    ],
)
def test_the_request_of_a_statement_is_its_kind_and_its_tables(sql: str, on: str):
    assert statement(sql).on == on


@pytest.mark.parametrize(
    "sql",
    [
        *(
            "BEGIN",
            "SET search_path TO x",
            "SHOW server_version",
            "DISCARD ALL",
            "DEALLOCATE p",
            "SAVEPOINT s",
        ),
        *("SELECT 1", "SELECT * FROM pg_catalog.pg_type", "SELECT * FROM information_schema.tables"),
        *("SELECT typname FROM pg_type", "DECLARE c CURSOR FOR SELECT 1", "LISTEN orders", "-- nothing"),
        *("START_REPLICATION SLOT s LOGICAL 0/0", "COPY x TO STDOUT", "SELECT nextval('s')"),
    ],
)
def test_statements_that_neither_read_nor_change_rows_have_no_effect(sql: str):
    assert not statement(sql).has_effect


@pytest.mark.parametrize(
    ("sql", "on_conflict"),
    [
        ("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING", "nothing"),
        ("INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET n = t.n + 1", "update"),
        ("INSERT INTO t VALUES (1)", ""),
        (
            "INSERT INTO t VALUES " + ", ".join(["(1)"] * 9000) + " on conflict (id) do update set n = 1",
            "update",
        ),
        ("INSERT INTO t VALUES ((what is this ON CONFLICT DO NOTHING", "nothing"),
    ],
)
def test_on_conflict(sql: str, on_conflict: str):
    assert statement(sql).on_conflict == on_conflict


def test_tables_that_are_only_read_are_apart():
    found = statement("INSERT INTO a SELECT * FROM c JOIN b USING (id) RETURNING id")
    assert (found.tables, found.reads, found.returning) == (("a",), ("b", "c"), True)


def test_a_query_calls_a_function_that_may_change_something():
    found = statement("SELECT nextval('s'), my_function(2), now()")
    assert found.calls({"my_function"}) == "my_function"
    assert found.calls(()) == ""


@pytest.mark.parametrize(
    ("sql", "on"),
    [
        ("BEGIN; INSERT INTO t VALUES (';'); COMMIT;", ["BEGIN", "INSERT t", "COMMIT"]),
        ("SELECT $x$ ; $x$ FROM a; /* ; */ SELECT E'\\';' FROM b -- ;", ["SELECT a", "SELECT b"]),
        ("CREATE FUNCTION f() RETURNS int BEGIN ATOMIC SELECT 1; SELECT 2; END; SELECT 1 FROM c",
         ["CREATE FUNCTION f", "SELECT c"]),
        (" ; ;; ", []),
        ("-- nothing", []),
        ("SELECT 'not closed; ", ["SELECT"]),
    ],
)  # fmt: skip
def test_the_statements_of_a_query(sql: str, on: list[str]):
    assert [each.on for each in statements(sql)] == on


def test_a_prepared_statement_is_the_one_in_its_text():
    assert statement("PREPARE p (int) AS INSERT INTO t VALUES ($1)").name == "p"
    assert prepared("PREPARE p (int) AS INSERT INTO t VALUES ($1)").on == "INSERT t"
    assert statement('EXECUTE "P"(1)').name == "P"
