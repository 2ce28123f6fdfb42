"""Each fault at each kind of statement, with a real PostgreSQL: what the client sees, and the rows afterwards."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import asyncpg
import psycopg
import pytest

from odradek.certify.services import proxy as listener
from odradek.certify.services.postgres import proxy
from tests.odradek.certify.services.postgres.proxied import Proxied, proxied
from tests.support.deadlines import HANG_S
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.more, pytest.mark.postgres]

Connection = psycopg.Connection[Any]
INSERT = "INSERT INTO results VALUES (1, 10)"
WITH_PARAMETERS = "INSERT INTO results VALUES (%s, %s)"


@pytest.fixture(scope="module")
def proxied_server(postgres: PostgresServer) -> Iterator[Proxied]:
    with proxied(postgres, "proxied") as found:
        yield found


@pytest.fixture
def stage(proxied_server: Proxied) -> Proxied:
    """A proxy in front of a database with the empty table ``results``."""
    proxied_server.empty()
    return proxied_server


def test_the_address_of_a_run_has_the_name_of_its_database_and_that_of_the_users_leads_there(
    stage: Proxied,
) -> None:
    values = stage.service.values()
    for name in (values["postgres.database"], "proxied"):
        with psycopg.connect(values["postgres"], dbname=name) as session:
            assert session.execute("SELECT current_database()").fetchone() == (stage.service.database,)
    assert f"/{stage.service.database}?" in values["postgres.jdbc"]
    assert stage.service.database != "proxied"


def simple(connection: Connection) -> None:
    connection.execute(INSERT)


def extended(connection: Connection) -> None:
    connection.execute(WITH_PARAMETERS, (1, 10))


def prepared(connection: Connection) -> None:
    connection.execute(WITH_PARAMETERS, (1, 10), prepare=True)


def pipeline(connection: Connection) -> None:
    with connection.pipeline():
        connection.execute("SELECT 1 WHERE %s", (True,))
        connection.execute(WITH_PARAMETERS, (1, 10))
        connection.execute("SELECT 2 WHERE %s", (True,))


def copy(connection: Connection) -> None:
    with connection.cursor().copy("COPY results FROM STDIN") as rows:
        rows.write_row((1, 10))


WAYS: dict[Callable[[Connection], None], str] = {
    simple: "INSERT results",
    extended: "INSERT results",
    prepared: "INSERT results",
    pipeline: "INSERT results",
    copy: "COPY results",
}
"""Ways of psycopg to send a statement, with the request as in rules."""
BREAKS = {
    "drop": [],
    "lose-request": [],
    "lose-answer": [1],
    "error 57P01": [],
    "restart": [],
    "close-all": [],
}
"""Actions that end the connection, with the rows afterwards if the statement commits by itself."""


@pytest.mark.parametrize("action", BREAKS)
@pytest.mark.parametrize("way", WAYS)
def test_a_connection_breaks_at_a_statement(stage: Proxied, way: Callable[[Connection], None], action: str):
    with stage.connect(autocommit=True) as connection:
        rule = stage.rule(WAYS[way], action)
        with pytest.raises(psycopg.OperationalError) as raised:
            way(connection)
        assert rule.hits == 1
        assert connection.broken
        # The end of a pipeline is sent to the closed connection, whose reset may destroy the response.
        if action in ("error 57P01", "restart") and way is not pipeline:
            assert isinstance(raised.value, psycopg.errors.AdminShutdown)
    assert stage.rows() == BREAKS[action]
    assert rule.call is not None
    assert rule.call.outcome == ("answer_lost" if action == "lose-answer" else "unanswered")


@pytest.mark.parametrize("action", BREAKS)
@pytest.mark.parametrize("way", WAYS)
def test_a_connection_breaks_at_the_commit_of_a_statement(
    stage: Proxied, way: Callable[[Connection], None], action: str
):
    connection = stage.connect()
    rule = stage.rule("COMMIT", action)
    way(connection)
    with pytest.raises(psycopg.OperationalError):
        connection.commit()
    assert rule.hits == 1
    stage.sessions_end()
    assert stage.rows() == BREAKS[action]


@pytest.mark.parametrize("code", ["40001", "40P01"])
@pytest.mark.parametrize("way", WAYS)
def test_a_statement_fails_and_its_transaction_with_it(
    stage: Proxied, way: Callable[[Connection], None], code: str
):
    with stage.connect() as connection:
        connection.execute("INSERT INTO results VALUES (7, 70)")
        stage.rule(WAYS[way], f"error {code}")
        with pytest.raises(psycopg.OperationalError) as raised:
            way(connection)
        assert raised.value.sqlstate == code
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.INERROR
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            connection.execute("SELECT 1")
        connection.rollback()
        way(connection)
    assert stage.rows() == [1]


@pytest.mark.parametrize("way", WAYS)
def test_a_statement_that_fails_by_itself_leaves_no_transaction(
    stage: Proxied, way: Callable[[Connection], None]
):
    with stage.connect(autocommit=True) as connection:
        stage.rule(WAYS[way], "error 40001")
        with pytest.raises(psycopg.errors.SerializationFailure):
            way(connection)
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        way(connection)
    assert stage.rows() == [1]


@pytest.mark.parametrize("way", [simple, pipeline])
def test_a_failed_commit_rolls_back_and_ends_the_transaction(
    stage: Proxied, way: Callable[[Connection], None]
):
    with stage.connect() as connection:
        way(connection)
        stage.rule("COMMIT", "error 40001")
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.commit()
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
        assert connection.execute("SELECT count(*) FROM results").fetchone() == (0,)
        connection.rollback()
        connection.execute("SELECT 1 WHERE %s", (True,))


def test_a_failed_commit_of_a_pipeline_skips_what_is_behind_it(stage: Proxied):
    stage.rule("COMMIT", "error 40001")
    with stage.connect(autocommit=True) as connection, connection.pipeline() as pipeline:
        connection.execute("BEGIN")
        connection.execute(INSERT)
        connection.execute("COMMIT")
        connection.execute("INSERT INTO results VALUES (2, 20)")
        with pytest.raises(psycopg.errors.SerializationFailure):
            pipeline.sync()
        connection.execute("INSERT INTO results VALUES (3, 30)")
    assert stage.rows() == [3]


# -- requests that are held, and connections that are silent ---------------------------------------------------------


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as found:
        yield found


@pytest.mark.parametrize("way", WAYS)
def test_a_held_statement_reaches_the_server_when_it_is_released(
    stage: Proxied, pool: ThreadPoolExecutor, way: Callable[[Connection], None]
):
    rule = stage.rule(WAYS[way], "hold")
    with stage.connect(autocommit=True) as connection:
        done = pool.submit(way, connection)
        rule.wait(timeout_s=HANG_S)
        assert stage.rows() == []
        rule.release()
        done.result(HANG_S)
        assert stage.rows() == [1]


def test_a_held_statement_of_a_pipeline_holds_only_what_is_behind_it(
    stage: Proxied, pool: ThreadPoolExecutor
):
    def run(connection: Connection) -> None:
        with connection.pipeline() as pipeline:
            connection.execute("INSERT INTO results VALUES (%s, 1)", (1,))
            pipeline.sync()
            connection.execute("INSERT INTO results VALUES (%s, 1)", (2,))
            pipeline.sync()
            connection.execute("INSERT INTO results VALUES (%s, 1)", (3,))

    rule = stage.rule("INSERT results", "hold", nth=2)
    with stage.connect(autocommit=True) as connection:
        done = pool.submit(run, connection)
        rule.wait(timeout_s=HANG_S)
        stage.until(lambda: stage.rows() == [1], "the statement before the held one is executed")
        rule.release()
        done.result(HANG_S)
    assert stage.rows() == [1, 2, 3]


@pytest.mark.parametrize("is_in_block", [True, False])
def test_the_server_never_gets_the_held_statement_of_a_client_that_dies(stage: Proxied, is_in_block: bool):
    rule = stage.rule("COMMIT" if is_in_block else "INSERT results", "hold")
    raw = Raw(stage)
    if is_in_block:
        raw.query("BEGIN")
        raw.query(INSERT)
    raw.send("COMMIT" if is_in_block else INSERT)
    call = rule.wait(timeout_s=HANG_S).call
    raw.kill()
    rule.release()
    stage.sessions_end()
    assert stage.rows() == []
    assert call is not None
    assert call.outcome == "unanswered"


def test_the_session_of_a_client_that_dies_while_it_is_held_ends(stage: Proxied):
    rule = stage.rule("INSERT results", "hold")
    raw = Raw(stage)
    raw.query("BEGIN")
    raw.send(INSERT)
    rule.wait(timeout_s=HANG_S)
    raw.kill()
    stage.sessions_end()
    assert rule.call is not None
    assert rule.call.outcome == "unanswered"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("action", ["lose-answer silent", "lose-request silent"])
def test_a_silent_connection_stays_open(
    stage: Proxied, pool: ThreadPoolExecutor, way: Callable[[Connection], None], action: str
):
    rule = stage.rule(WAYS[way], action)
    connection = stage.connect(autocommit=True)
    done = pool.submit(way, connection)
    call = rule.wait(timeout_s=HANG_S).call
    assert call is not None
    stage.until(lambda: call.is_over, "the request is over")
    assert call.outcome == ("answer_lost" if "answer" in action else "unanswered")
    assert stage.rows() == ([1] if "answer" in action else [])
    assert not done.done()
    shut(connection)
    with pytest.raises(psycopg.OperationalError):
        done.result(HANG_S)
    stage.sessions_end()


@pytest.fixture
def never_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late response is held back for longer than the test."""
    monkeypatch.setattr(proxy, "LATE_S", 2 * HANG_S)


@pytest.mark.usefixtures("never_late")
def test_a_late_response_arrives_when_the_client_cancels(stage: Proxied, pool: ThreadPoolExecutor):
    rule = stage.rule("INSERT results", "late-answer")
    with stage.connect(autocommit=True) as connection:
        done = pool.submit(simple, connection)
        call = rule.wait(timeout_s=HANG_S).call
        assert call is not None
        stage.until(lambda: call.answered_us > 0, "the server has executed the statement")
        assert stage.rows() == [1]
        assert not done.done()
        connection.cancel_safe()
        done.result(HANG_S)
        assert call.outcome == "answered"
        assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.usefixtures("never_late")
def test_a_late_response_is_lost_if_the_client_gives_up(stage: Proxied, pool: ThreadPoolExecutor):
    rule = stage.rule("COMMIT", "late-answer")
    connection = stage.connect()
    simple(connection)
    done = pool.submit(connection.commit)
    call = rule.wait(timeout_s=HANG_S).call
    assert call is not None
    stage.until(lambda: call.answered_us > 0, "the server has executed the statement")
    shut(connection)
    with pytest.raises(psycopg.OperationalError):
        done.result(HANG_S)
    stage.sessions_end()
    assert call.outcome == "answer_lost"
    assert stage.rows() == [1]


def test_a_late_response_arrives_by_itself(stage: Proxied, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(proxy, "LATE_S", 0.01)
    rule = stage.rule("INSERT results", "late-answer")
    with stage.connect(autocommit=True) as connection:
        simple(connection)
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert rule.call is not None
    assert rule.call.outcome == "answered"


def test_a_cancel_request_reaches_the_statement_that_runs(stage: Proxied, pool: ThreadPoolExecutor):
    with stage.connect(autocommit=True) as connection:
        done: Future[Any] = pool.submit(connection.execute, "SELECT pg_sleep(%s)", (HANG_S,))
        stage.until(lambda: stage.rows(_SLEEPS) == [1], "the statement runs")
        connection.cancel_safe()
        with pytest.raises(psycopg.errors.QueryCanceled):
            done.result(HANG_S)


_SLEEPS = (
    "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND wait_event = 'PgSleep'"
)


def test_a_restart_ends_all_sessions_and_refuses_new_ones(stage: Proxied, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listener, "AWAY_S", 2 * HANG_S)
    idle, busy = stage.connect(autocommit=True), stage.connect(autocommit=True)
    stage.rule("INSERT results", "restart")
    for each in (busy, idle):
        with pytest.raises(psycopg.errors.AdminShutdown):
            simple(each)
    with pytest.raises(psycopg.OperationalError):
        stage.connect()
    assert stage.rows() == []


def test_the_server_is_back_after_a_restart(stage: Proxied, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(listener, "AWAY_S", 0.01)
    stage.rule("INSERT results", "restart")
    with stage.connect(autocommit=True) as connection, pytest.raises(psycopg.errors.AdminShutdown):
        simple(connection)

    def is_back() -> bool:
        with contextlib.suppress(psycopg.OperationalError), stage.connect(autocommit=True) as connection:
            simple(connection)
            return True
        return False

    stage.until(is_back, "the server is back")
    assert stage.rows() == [1]


def test_all_connections_of_a_pool_are_closed(stage: Proxied):
    idle, busy = stage.connect(autocommit=True), stage.connect(autocommit=True)
    stage.rule("INSERT results", "close-all")
    for each in (busy, idle):
        with pytest.raises(psycopg.OperationalError):
            simple(each)
    with stage.connect(autocommit=True) as connection:
        simple(connection)
    assert stage.rows() == [1]


# -- transactions in two phases, asyncpg -----------------------------------------------------------------------------


def test_the_two_phases_of_a_prepared_transaction_are_requests(stage: Proxied):
    with stage.connect(autocommit=True) as connection:
        for statement in ("BEGIN", INSERT, "PREPARE TRANSACTION 'one'", "COMMIT PREPARED 'one'"):
            connection.execute(statement)
    assert stage.statements() == [
        ("BEGIN", "autocommit", "answered"),
        ("INSERT results", "transaction", "answered"),
        ("PREPARE TRANSACTION", "transaction", "answered"),
        ("COMMIT PREPARED", "autocommit", "answered"),
    ]
    assert stage.rows() == [1]


def test_a_rejected_prepare_transaction_prepares_nothing(stage: Proxied):
    stage.rule("PREPARE TRANSACTION", "error 40001")
    with stage.connect(autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute(INSERT)
        with pytest.raises(psycopg.errors.SerializationFailure):
            connection.execute("PREPARE TRANSACTION 'two'")
        assert connection.info.transaction_status is psycopg.pq.TransactionStatus.IDLE
    assert stage.rows("SELECT count(*) FROM pg_prepared_xacts") == [0]


@pytest.mark.parametrize(
    ("action", "raised", "rows"),
    [
        ("error 40001", asyncpg.SerializationError, []),
        ("error 57P01", asyncpg.ConnectionDoesNotExistError, []),
        ("lose-answer", asyncpg.ConnectionDoesNotExistError, [1]),
        ("drop", (ConnectionError, asyncpg.ConnectionDoesNotExistError), []),
    ],
)
@pytest.mark.parametrize("is_in_block", [True, False])
async def test_asyncpg_sees_the_fault_of_a_statement(
    stage: Proxied, action: str, raised: type[Exception], rows: list[int], is_in_block: bool
):
    connection = await asyncpg.connect(stage.dsn)
    rule = stage.rule("COMMIT" if is_in_block else "INSERT results", action)
    insert = connection.execute("INSERT INTO results VALUES ($1, $2)", 1, 10)
    if is_in_block:
        transaction = connection.transaction()
        await transaction.start()
        await insert
    with pytest.raises(raised):
        await (transaction.commit() if is_in_block else insert)
    assert rule.hits == 1
    if action == "error 40001":
        assert await connection.fetchval("SELECT count(*) FROM results") == 0
    connection.terminate()
    assert stage.rows() == rows


async def test_parameters_of_asyncpg_are_read_by_their_types(stage: Proxied):
    connection = await asyncpg.connect(stage.dsn)
    await connection.execute("INSERT INTO results VALUES ($1, $2)", 1, None)
    await connection.close()
    assert [each.request["parameters"] for each in stage.calls()] == [["1", None]]


class Raw:
    """A client of a few bytes, which can die in the middle of a statement."""

    def __init__(self, stage: Proxied) -> None:
        # psycopg logs in; its socket is used directly afterwards.
        self._connection = stage.connect(autocommit=True)
        self._socket = socket.socket(fileno=self._connection.fileno())

    def query(self, sql: str) -> None:
        self._connection.execute(sql)

    def send(self, sql: str) -> None:
        body = sql.encode() + b"\0"
        self._socket.sendall(b"Q" + (len(body) + 4).to_bytes(4, "big") + body)

    def kill(self) -> None:
        """Close the connection as the kernel does for a killed process."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.detach()
        self._connection.close()


def shut(connection: Connection) -> None:
    """Close the socket of a connection that another thread waits at."""
    probe = socket.socket(fileno=connection.fileno())
    probe.shutdown(socket.SHUT_RDWR)
    probe.detach()
