"""Records the messages that drivers exchange with PostgreSQL, for test_recorded.py:

    python -m tests.odradek.certify.services.postgres.record

A story is a list of messages in their order, each as "C" or "S" (client or server), and its bytes in hexadecimal. The login
is left out. Messages that were sent before the other side's response are together, as in the connection.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import asyncpg
import psycopg

from odradek.certify.services.postgres.messages import Frames
from odradek.certify.services.service import Loop
from tests.support.java import jars_folder, java
from tests.support.postgres import PostgresServer

RECORDED: Final = Path(__file__).parent / "recorded.json"
JDBC: Final = "org.postgresql:postgresql:42.7.14"
SMOKE: Final = Path(__file__).parent / "Smoke.java"


class Tap:
    """Copies connections to a server, and keeps what each side has sent."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.sessions: list[list[list[str]]] = []

    async def open(self) -> int:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        begin = await reader.readexactly(8)
        if int.from_bytes(begin[4:], "big") == 80877103:
            writer.write(b"N")
            begin = await reader.readexactly(8)
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        server_writer.write(begin + await reader.readexactly(int.from_bytes(begin[:4], "big") - 8))
        self.sessions.append([])
        copies = (
            self._copy("C", reader, server_writer, self.sessions[-1]),
            self._copy("S", server_reader, writer, self.sessions[-1]),
        )
        await asyncio.gather(*copies, return_exceptions=True)

    async def _copy(
        self, side: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, session: list[list[str]]
    ) -> None:
        frames = Frames()
        while chunk := await reader.read(65_536):
            for each in frames.feed(chunk):
                # The first ReadyForQuery ends the login.
                if session or each.kind == "Z":
                    session.append([side, each.data.hex()])
            writer.write(chunk)
        writer.close()


def psycopg_story(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("INSERT INTO results VALUES (1, 10)")
        for _ in range(2):
            connection.execute("SELECT amount FROM results WHERE id = %s", (1,), prepare=True)
        connection.commit()
        with connection.cursor().copy("COPY results (id, amount) FROM STDIN") as rows:
            rows.write_row((2, 20))
        connection.commit()
    with psycopg.connect(dsn, autocommit=True) as connection, connection.pipeline() as pipeline:
        connection.execute("INSERT INTO results VALUES (%s, %s)", (3, 30))
        connection.execute("INSERT INTO results VALUES (%s, %s)", (1, 30))
        connection.execute("INSERT INTO results VALUES (%s, %s)", (4, 40))
        try:
            pipeline.sync()
        except psycopg.errors.UniqueViolation:
            connection.execute("INSERT INTO results VALUES (%s, %s)", (5, None))


def asyncpg_story(dsn: str) -> None:
    async def run() -> None:
        connection = await asyncpg.connect(dsn)
        async with connection.transaction():
            await connection.execute("INSERT INTO results VALUES ($1, $2)", 1, 10)
            await connection.executemany("INSERT INTO results VALUES ($1, $2)", [(2, 20), (3, None)])
            async for _ in connection.cursor("SELECT id FROM results", prefetch=2):
                pass
        await connection.copy_records_to_table("results", records=[(4, 40)])
        await connection.close()

    asyncio.run(run())


def libpq_story(dsn: str) -> None:
    script = r"BEGIN; INSERT INTO results VALUES (1, 10); SAVEPOINT s; SELECT 1/0; ROLLBACK TO s; COMMIT"
    several = "INSERT INTO results VALUES (2, 20); INSERT INTO results VALUES (1, 30)"
    subprocess.run(
        ["psql", "-X", "-q", dsn, "-c", several, *(f for each in script.split("; ") for f in ("-c", each))]
    )


def jdbc_url(dsn: str) -> str:
    login, _, place = dsn.removeprefix("postgresql://").partition("@")
    user, _, password = login.partition(":")
    return f"jdbc:postgresql://{place}?user={user}&password={password}"


def jdbc_story(dsn: str) -> None:
    jars = jars_folder("jdbc-42.7.14", JDBC)
    subprocess.run([java(), "-cp", str(jars / "*"), str(SMOKE), jdbc_url(dsn)], check=True)


STORIES: Final[dict[str, Callable[[str], None]]] = {
    "psycopg": psycopg_story,
    "asyncpg": asyncpg_story,
    "psql": libpq_story,
    "jdbc": jdbc_story,
}


def main() -> None:
    recorded: dict[str, Any] = {}
    loop = Loop()
    with PostgresServer() as server:
        for name, story in STORIES.items():
            server.execute(f"CREATE DATABASE {name}")
            server.execute("CREATE TABLE results (id bigint PRIMARY KEY, amount int)", name)
            tap = Tap(server.port)
            port = loop.run(tap.open())
            story(server.dsn.replace(str(server.port), str(port)).replace("/postgres", f"/{name}"))
            recorded |= {
                f"{name} {number}": session for number, session in enumerate(tap.sessions, 1) if session
            }
    lines = ",\n".join(
        f'"{name}": [\n' + ",\n".join(map(json.dumps, session)) + "\n]" for name, session in recorded.items()
    )
    RECORDED.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main()
