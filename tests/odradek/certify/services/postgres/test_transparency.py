"""Without a rule, a client of the proxy sees what a client of the server sees; logins with TLS and with protocol 3.2."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import psycopg
import pytest

from odradek.certify.services.postgres import messages
from odradek.certify.services.postgres.messages import Frames, Message, message, text
from tests.odradek.certify.services.postgres.proxied import Proxied, proxied
from tests.odradek.certify.services.postgres.test_session import FLUSH, SYNC, bind, extended, parse
from tests.support.deadlines import HANG_S
from tests.support.postgres import USER, PostgresServer, programs

pytestmark = [pytest.mark.more, pytest.mark.postgres]

BULK = "SELECT repeat('x', 1000), n FROM generate_series(1, 3000) n"
COPY = "COPY results FROM STDIN"
ABS = message("F", b"\0\0\5\x75", b"\0\1\0\0", b"\0\1", b"\0\0\0\2-5", b"\0\0")
"""A FunctionCall of abs(int4)."""
TWO_ROWS = message("E", text("p"), b"\0\0\0\2")
DIALOGUES: dict[str, list[tuple[str, list[Message]]]] = {
    "simple": [
        ("Z", [messages.query(each)])
        for each in ("BEGIN", "INSERT INTO results VALUES (1, 2)", "TABLE results", "ROLLBACK", " ; ")
    ],
    "several": [("Z", [messages.query("INSERT INTO results VALUES (2, 2); SELECT 1/0; SELECT 3")])],
    "extended": [("Z", [*extended("INSERT INTO results VALUES (3, 3)"), message("D", b"P", text("")), SYNC])],
    "flush": [
        ("T", [parse("TABLE results", "s"), message("D", b"S", text("s")), FLUSH]),
        ("Z", [bind("s"), messages.execute(""), SYNC]),
    ],
    "pipeline": [
        ("ZZ", [*extended("SELECT 1/0"), *extended("SELECT 2"), SYNC, *extended("SELECT 3"), SYNC]),
    ],
    "portals": [
        ("Z", [parse("SELECT generate_series(1, 5)"), bind(portal="p"), TWO_ROWS, TWO_ROWS, SYNC]),
    ],
    "copy in": [
        ("G", [messages.query(COPY)]),
        ("Z", [message("d", b"7\t7\n"), message("d", b"8\t8\n"), message("c")]),
    ],
    "copy that fails": [
        ("G", [messages.query(COPY)]),
        ("Z", [message("d", b"x\n"), message("c")]),
        ("Z", [messages.query("SELECT 1")]),
    ],
    "copy that the client ends": [("G", [messages.query(COPY)]), ("Z", [message("f", text("no"))])],
    "copy in the extended protocol": [
        ("G", [*extended(COPY), SYNC]),
        ("Z", [message("d", b"9\t9\n"), message("c"), SYNC]),
    ],
    "copy out": [("Z", [messages.query("COPY (SELECT generate_series(1, 1000)) TO STDOUT")])],
    "bulk": [("Z", [messages.query(BULK)]), ("Z", [*extended(BULK), SYNC])],
    "function call": [("Z", [ABS])],
    "notices": [
        ("Z", [messages.query("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")]),
        ("Z", [messages.query("SET application_name = 'x'")]),
    ],
}
"""By name, what a client sends, and the types of the messages for which it waits after it."""


@pytest.fixture(scope="module")
def stage(postgres: PostgresServer) -> Iterator[Proxied]:
    with proxied(postgres, "transparent") as found:
        yield found


@pytest.mark.parametrize("name", DIALOGUES)
def test_the_bytes_of_the_server_are_the_same(stage: Proxied, name: str):
    stage.empty()
    with psycopg.connect(stage.source) as connection:
        connection.execute("TRUNCATE results")
    # The database of a run is a copy of the source, with the same object ids.
    answers = [Dialogue(dsn).hold(name) for dsn in (stage.source, stage.dsn)]
    assert answers[0] == answers[1]
    stage.until(lambda: all(call.is_over for call in stage.calls()), "all requests are over")
    assert stage.calls()


class Dialogue:
    """A client without a driver: psycopg logs in, and its socket is used directly afterwards."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def hold(self, name: str) -> list[bytes]:
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            client = socket.socket(fileno=connection.fileno())
            client.settimeout(HANG_S)
            try:
                return [self._exchange(client, sent, until) for until, sent in DIALOGUES[name]]
            finally:
                client.setblocking(False)
                client.detach()

    @staticmethod
    def _exchange(client: socket.socket, sent: list[Message], until: str) -> bytes:
        client.sendall(b"".join(each.data for each in sent))
        frames, answer = Frames(), b""
        awaited = list(until)
        while awaited:
            chunk = client.recv(65_536)
            assert chunk, answer
            answer += chunk
            for each in frames.feed(chunk):
                if awaited and each.kind == awaited[0]:
                    awaited.pop(0)
        return answer


# -- logins ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters", ["", "sslmode=prefer", "gssencmode=prefer", "max_protocol_version=3.2"]
)
def test_a_client_that_prefers_encryption_or_a_newer_version_gets_a_plain_session(
    stage: Proxied, parameters: str
):
    with psycopg.connect(f"{stage.dsn}?{parameters}") as connection:
        assert connection.execute("SELECT current_user").fetchone() == (USER,)
        assert connection.execute("SELECT current_database()").fetchone() == (stage.service.database,)


def test_direct_tls_without_a_certificate_is_refused_with_a_sentence(
    stage: Proxied, caplog: pytest.LogCaptureFixture
):
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(f"{stage.dsn}?sslmode=require&sslnegotiation=direct")
    assert "direct TLS needs sslmode=require in the DSN of the stage" in caplog.text


def test_bytes_that_are_no_message_end_the_connection(stage: Proxied):
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        client = socket.socket(fileno=connection.fileno())
        client.sendall(b"Q\0\0\0\1")
        client.detach()
        with pytest.raises(psycopg.OperationalError, match="message 'Q' has length 1"):
            connection.execute("SELECT 1")


def test_a_wrong_password_is_the_server_s_error(stage: Proxied):
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(stage.dsn.replace(":secret@", ":wrong@"))


def test_other_databases_of_the_server_keep_their_names(stage: Proxied):
    with psycopg.connect(f"{stage.dsn.rpartition('/')[0]}/postgres") as connection:
        assert connection.execute("SELECT current_database()").fetchone() == ("postgres",)


def test_a_stage_with_tls_has_tls_on_both_sides(tmp_path: Path):
    settings = {"ssl": "on", "ssl_cert_file": "../server.crt", "ssl_key_file": "../server.key"}
    with (
        PostgresServer(settings, certificate(tmp_path)) as server,
        proxied(server, "tls", "sslmode=require") as stage,
        psycopg.connect(stage.dsn) as connection,
    ):
        assert connection.pgconn.ssl_in_use
        is_encrypted = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        assert connection.execute(is_encrypted).fetchone() == (True,)
        connection.execute("INSERT INTO results VALUES (1, 1)")
        connection.cancel_safe()
        connection.commit()
        assert stage.rows() == [1]
        assert asyncio.run(sum_by_asyncpg(stage.dsn)) == 1
        with psycopg.connect(f"{stage.dsn}&sslnegotiation=direct") as direct:
            assert direct.execute("SELECT id FROM results").fetchone() == (1,)


async def sum_by_asyncpg(dsn: str) -> object:
    connection = await asyncpg.connect(dsn)
    found = await connection.fetchval("SELECT sum(amount) FROM results")
    await connection.close()
    return found


def test_changes_are_replicated_through_the_proxy(stage: Proxied):
    stage.empty()
    with stage.connect(autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('changes', 'test_decoding')")
        connection.execute("INSERT INTO results VALUES (1, 10)")
        (end,) = connection.execute("SELECT pg_current_wal_lsn()").fetchone() or ("",)
    programs_of_server = programs()
    assert programs_of_server is not None
    read = subprocess.run(
        [
            programs_of_server / "pg_recvlogical",
            "-d",
            stage.dsn,
            "-S",
            "changes",
            "--start",
            "-E",
            str(end),
            "-f",
            "-",
        ],
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    assert "table public.results: INSERT: id[bigint]:1 amount[integer]:10" in read.stdout, read.stderr
    assert any(call.on == "postgres:START_REPLICATION" for call in stage.calls())


def certificate(folder: Path) -> dict[str, bytes]:
    """A self-signed certificate and its key, as files."""
    made = {"server.key": folder / "server.key", "server.crt": folder / "server.crt"}
    options = ["-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-days", "2"]
    files = ["-keyout", str(made["server.key"]), "-out", str(made["server.crt"])]
    subprocess.run(["openssl", "req", "-x509", *options, *files], check=True, capture_output=True)
    return {name: path.read_bytes() for name, path in made.items()}
