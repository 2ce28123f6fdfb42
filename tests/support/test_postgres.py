"""Tests of the PostgreSQL server for tests."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from tests.support import postgres as support
from tests.support.postgres import SETTINGS, NoPostgres, PostgresServer

pytestmark = [pytest.mark.more, pytest.mark.postgres]


def test_a_server_has_the_settings_needs_the_password_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
):
    with PostgresServer({"work_mem": "1MB"}) as server:
        names = "', '".join([*SETTINGS, "work_mem"])
        shown = server.execute(
            f"SELECT name, current_setting(name) FROM pg_settings WHERE name IN ('{names}')"
        )
        assert dict(line.split("|") for line in shown.splitlines()) == SETTINGS | {"work_mem": "1MB"}
        monkeypatch.setattr(support, "PASSWORD", "wrong")
        with pytest.raises(AssertionError, match="password authentication failed"):
            server.execute("SELECT 1")
        folder, port, pid = server._folder, server.port, server.pid
    assert not folder.exists()
    assert not Path(f"/proc/{pid}").exists()
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        pass


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT])
def test_committed_rows_and_prepared_transactions_outlive_a_restart(
    postgres: PostgresServer, how: signal.Signals
):
    name = f"by_{how.name.lower()}"
    postgres.execute(f"CREATE TABLE {name} (id bigint)")
    postgres.execute(f"INSERT INTO {name} VALUES (1)")
    postgres.execute(f"BEGIN; INSERT INTO {name} VALUES (2); PREPARE TRANSACTION '{name}'")
    postgres.stop(how)
    postgres.start()
    assert postgres.execute(f"SELECT id FROM {name}") == "1\n"
    postgres.execute(f"COMMIT PREPARED '{name}'")
    assert postgres.execute(f"SELECT id FROM {name} ORDER BY id") == "1\n2\n"


def test_a_machine_without_postgresql_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(support, "programs", lambda: None)
    with pytest.raises(NoPostgres, match="install Debian's package postgresql"):
        PostgresServer()
