"""Settings of a listener, and certificates of one certificate authority."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from broker.config.definitions import defaults
from broker.security.listener_configs import ListenerConfigs
from broker.security.tls.authority import Authority, Issued
from broker.security.tls.directory import write_directory
from broker.security.tls.settings import TlsSettings, tls_settings

Configure = Callable[..., TlsSettings]
CENTURY_DAYS = 36_500
PASSWORD = "changeit"


@pytest.fixture(scope="session")
def configure() -> Configure:
    """A function that makes the TLS settings of the listener `SSL`. Names lack `ssl.`, and have underscores for dots."""

    def settings(sasl: bool = False, **given: Any) -> TlsSettings:
        named = {f"ssl.{name.replace('_', '.')}": value for name, value in given.items()}
        return tls_settings(ListenerConfigs(defaults() | named, "SSL"), sasl=sasl)

    return settings


@pytest.fixture(scope="session")
def authority() -> Authority:
    """A certificate authority that is valid for a century, as these tests use the real clock."""
    return Authority.create(datetime(2024, 1, 1, tzinfo=UTC), days=CENTURY_DAYS)


@pytest.fixture(scope="session")
def server(authority: Authority) -> Issued:
    return authority.issue("localhost", ["localhost", "127.0.0.1", "::1"], days=CENTURY_DAYS)


@pytest.fixture(scope="session")
def client(authority: Authority) -> Issued:
    return authority.issue("CN=alice,OU=orders,O=Odradek", client=True, days=CENTURY_DAYS)


@pytest.fixture(scope="session")
def folder(
    authority: Authority, server: Issued, client: Issued, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("tls") / "made"
    write_directory(folder, authority, server, client, PASSWORD)
    return folder


@pytest.fixture(scope="session")
def stores() -> Path:
    """The directory of key stores that Java wrote."""
    return Path(__file__).parent / "stores"
