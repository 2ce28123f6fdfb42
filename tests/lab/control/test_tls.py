"""The control port with TLS: its certificate, clients that trust it, and clients that do not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientConnectionError

from broker.security.tls.authority import Authority, local_hosts
from broker.security.tls.directory import write_directory
from lab.control.access import ControlConfigError
from lab.control.tls import server_context
from odradek.control_client import ControlClient
from odradek.errors import ControlUnreachable
from odradek.remote import connect
from server.options import parse
from tests.lab.control.conftest import Caller, OpenControl


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority.create(datetime.now(UTC))
    server, client = authority.issue("localhost", local_hosts()), authority.issue("alice", client=True)
    write_directory(folder, authority, server, client, "password")
    (folder / "encrypted.key").write_bytes(server.key_pem("password"))
    other = Authority.create(datetime.now(UTC)).issue("other.test", ["other.test"])
    (folder / "other.pem").write_bytes(other.key_pem() + other.chain_pem())
    return folder


@pytest.fixture
async def caller(open_control: OpenControl, files: Path) -> Caller:
    return await open_control(tls=server_context(str(files / "server.pem")), token="secret")


async def asked(url: str, ca: Path | None, token: str | None = "secret") -> Any:
    return await asyncio.to_thread(
        lambda: ControlClient(url, token, ca=str(ca) if ca else None).get("/v1/clock")
    )


async def test_a_client_that_knows_the_authority_is_served(caller: Caller, files: Path) -> None:
    assert caller.url.startswith("https://127.0.0.1:")
    assert "now_ms" in await asked(caller.url, files / "ca.pem")
    assert "now_ms" in await asked(caller.url.replace("127.0.0.1", "localhost"), files / "ca.pem")


async def test_one_that_does_not_says_what_would_help(caller: Caller, files: Path) -> None:
    for ca in (None, files / "other.pem"):
        with pytest.raises(
            ControlUnreachable, match=r"not trusted \(.*\): set ODRADEK_CONTROL_CA to a PEM file"
        ):
            await asked(caller.url, ca)


async def test_a_name_that_the_certificate_does_not_have_is_refused(
    open_control: OpenControl, files: Path
) -> None:
    caller = await open_control(tls=server_context(str(files / "other.pem")))
    with pytest.raises(ControlUnreachable, match="IP address mismatch"):
        await asked(caller.url, files / "other.pem")


async def test_plain_http_is_not_served(caller: Caller) -> None:
    with pytest.raises(ClientConnectionError):
        await caller.session.get(caller.url.replace("https", "http") + "/health")


async def test_a_handshake_that_does_not_end_keeps_no_other_caller_waiting(
    caller: Caller, files: Path
) -> None:
    host, port = caller.url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    assert "now_ms" in await asked(caller.url, files / "ca.pem")
    writer.close()


@pytest.mark.parametrize(
    ("certificate", "key", "says"),
    [
        ("server.crt", "server.key", None),
        ("server.crt", "", "no certificate with its key as PEM"),
        ("server.crt", "encrypted.key", "the key is encrypted"),
        ("server.crt", "client.key", "the key does not belong to the certificate"),
        ("server.p12", "", "no certificate with its key as PEM"),
        ("nothing.pem", "", "No such file"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(
    files: Path, certificate: str, key: str, says: str | None
) -> None:
    given = str(files / certificate), str(files / key) if key else ""
    if says is None:
        server_context(*given)
        return
    with pytest.raises(ControlConfigError, match=f"{certificate}.*{says}"):
        server_context(*given)


def test_a_broker_whose_control_port_has_tls_can_do_tls(files: Path) -> None:
    """The settings' `uses_tls` is true only if a control port is set and has a certificate. The broker then loads
    an event loop with TLS (`late_modules`)."""
    certificate = ["--set", f"odradek.control.tls.certificate={files / 'server.pem'}"]
    assert parse([*certificate, "--control-port", "0"], {}).uses_tls
    assert not parse(certificate, {}).uses_tls
    assert not parse(["--control-port", "0"], {}).uses_tls


def test_an_authority_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for content in (None, b"no certificate"):
        path = tmp_path / "ca.pem"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ControlUnreachable, match=r"ODRADEK_CONTROL_CA=.*ca\.pem cannot be read"):
            ControlClient("https://localhost:1", ca=str(path))


async def test_the_variables_find_it(caller: Caller, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ODRADEK_CONTROL", raising=False)
    for name, value in (
        ("PORT", caller.url.rpartition(":")[2]),
        ("TLS_CERTIFICATE", files / "server.pem"),
        ("CA", files / "ca.pem"),
        ("TOKEN", "secret"),
    ):
        monkeypatch.setenv(f"ODRADEK_CONTROL_{name}", str(value))
    assert await asyncio.to_thread(lambda: connect().clock.now_ms) > 0
