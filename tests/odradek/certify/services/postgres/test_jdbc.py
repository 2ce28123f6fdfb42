"""PostgreSQL's JDBC driver, directly and through the proxy."""

from __future__ import annotations

import subprocess

import pytest

from tests.odradek.certify.services.postgres.proxied import proxied
from tests.odradek.certify.services.postgres.record import JDBC, SMOKE, jdbc_url
from tests.support.deadlines import TEST_S
from tests.support.java import jars_folder, java
from tests.support.postgres import PostgresServer

pytestmark = [pytest.mark.java, pytest.mark.postgres]


def test_jdbc_sees_the_same_through_the_proxy(postgres: PostgresServer):
    with proxied(postgres, "jdbc") as stage:
        postgres.execute("CREATE DATABASE jdbc_direct")
        postgres.execute("CREATE TABLE results (id bigint PRIMARY KEY, amount int)", "jdbc_direct")
        direct = f"{postgres.dsn.rpartition('/')[0]}/jdbc_direct"
        lines = [smoke(url) for url in (jdbc_url(direct), stage.service.values()["postgres.jdbc"])]
        assert lines[0] == lines[1]
        assert lines[0][0] == "autocommit 1"
        assert lines[0][-1] == "table results"
        assert stage.rows("SELECT count(*) FROM results") == [14]
        requests = [call.on.partition(":")[2] for call in stage.calls()]
        assert requests.count("COMMIT") == 2
        assert requests.count("COMMIT PREPARED") == 1
        assert all(call.outcome == "answered" for call in stage.calls())


def smoke(url: str) -> list[str]:
    """Output of the program with the database at ``url``."""
    command = [java(), "-cp", str(jars_folder("jdbc-42.7.14", JDBC) / "*"), str(SMOKE), url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TEST_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
