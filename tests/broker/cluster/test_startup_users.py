"""--sasl writes SCRAM credentials to the metadata."""

from __future__ import annotations

from pathlib import Path

from broker.cluster import Cluster
from broker.config.sasl_users import User
from broker.metadata.scram_credentials import TYPES, Credentials
from broker.security.sasl import scram
from server.options import parse


async def credentials_after(data_dir: Path, *users: str) -> Credentials:
    sasl = [word for user in users for word in ("--sasl", user)]
    cluster = Cluster(parse(["--port", "0", "--data-dir", str(data_dir), *sasl], {}))
    await cluster.start()
    try:
        return dict(cluster.metadata.image.credentials)
    finally:
        await cluster.stop()


def logs_in(credentials: Credentials, name: str, mechanism: str, password: str) -> bool:
    record = credentials[name, TYPES[mechanism]]
    made = scram.credential(password, mechanism, record.iterations, record.salt)
    return (made.stored_key, made.server_key) == (record.stored_key, record.server_key)


async def test_a_start_writes_the_credentials_of_its_users(tmp_path: Path) -> None:
    credentials = await credentials_after(tmp_path, "alice:secret", "bob:b:SCRAM-SHA-512", "carol:c:PLAIN")
    assert set(credentials) == {("alice", 1), ("alice", 2), ("bob", 2)}
    assert logs_in(credentials, "alice", "SCRAM-SHA-256", "secret")
    assert logs_in(credentials, "alice", "SCRAM-SHA-512", "secret")
    assert logs_in(credentials, "bob", "SCRAM-SHA-512", "b")
    assert {each.iterations for each in credentials.values()} == {4096}


async def test_a_credential_changes_with_the_password_and_stays_without(tmp_path: Path) -> None:
    first = await credentials_after(tmp_path, "alice:secret:SCRAM-SHA-256", "bob:b:SCRAM-SHA-256")
    second = await credentials_after(tmp_path, "alice:other:SCRAM-SHA-256", "bob:b:SCRAM-SHA-256")
    assert logs_in(second, "alice", "SCRAM-SHA-256", "other")
    assert second["bob", 1] == first["bob", 1]
    # A user of an earlier start stays a user of the cluster if the next start does not name it, as in Kafka.
    assert await credentials_after(tmp_path, "bob:b:SCRAM-SHA-256") == second


async def test_nodes_that_log_in_by_scram_have_a_credential(tmp_path: Path) -> None:
    arguments = ["--nodes", "2", "--port", "0", "--data-dir", str(tmp_path), "--sasl", "a:b:SCRAM-SHA-512"]
    settings = parse(arguments, {})
    assert [type(each) for each in settings.users] == [User, User]
    cluster = Cluster(settings)
    await cluster.start()
    try:
        assert ("odradek-broker", 2) in cluster.metadata.image.credentials
    finally:
        await cluster.stop()
