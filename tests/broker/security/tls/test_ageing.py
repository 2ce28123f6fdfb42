"""TLS certificates under a clock that is ahead. The certificates of these tests are valid from 2024 to 2124."""

from __future__ import annotations

import shutil
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtensionOID

from broker.security.tls.ageing import AgeingContext, aged_certificate, has_expired, issuer_beside
from broker.security.tls.authority import Authority, Issued
from broker.security.tls.contexts import client_context, handshake
from broker.security.tls.reloading import ReloadableContext
from broker.security.tls.settings import TlsSettings
from tests.broker.security.tls.conftest import CENTURY_DAYS, Configure
from tests.support.clock import NOW_MS, FakeClock

DAY_MS = 24 * 3600 * 1000
YEARS_50, YEARS_101 = 50 * 365, 101 * 365


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of ``folder`` (key store and trust store) that the test may change."""
    return Path(shutil.copytree(folder, tmp_path / "own"))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def settings_of(configure: Configure, folder: Path, **more: Any) -> TlsSettings:
    return configure(
        keystore_location=str(folder / "server.pem"),
        keystore_type="PEM",
        truststore_location=str(folder / "ca.pem"),
        truststore_type="PEM",
        **more,
    )


def ageing(settings: TlsSettings, clock: FakeClock) -> AgeingContext:
    return AgeingContext(ReloadableContext(settings), clock, lambda: NOW_MS)


def presented(context: ssl.SSLContext, settings: TlsSettings) -> x509.Certificate:
    """The certificate that a client with these settings gets. Raises ``ssl.SSLCertVerificationError`` if the
    client rejects the certificate."""
    _, client = handshake(context, client_context(settings), "localhost")
    certificate = client.getpeercert(binary_form=True)
    assert certificate is not None
    return x509.load_der_x509_certificate(certificate)


def test_while_the_clock_is_not_ahead_the_context_is_the_listener_s(
    configure: Configure, folder: Path, clock: FakeClock
) -> None:
    current = ReloadableContext(settings_of(configure, folder))
    found = AgeingContext(current, clock, lambda: NOW_MS)
    assert found() is current.context
    clock.now += 499  # less than the tolerance for clocks that are read one after the other
    assert found() is current.context


def test_the_validity_lies_as_far_back_as_the_clock_is_ahead(
    configure: Configure, folder: Path, clock: FakeClock
) -> None:
    settings = settings_of(configure, folder)
    found = ageing(settings, clock)
    young = presented(found(), settings)
    clock.now += YEARS_50 * DAY_MS
    aged = presented(found(), settings)
    by = timedelta(days=YEARS_50)
    assert aged.not_valid_before_utc == young.not_valid_before_utc - by
    assert aged.not_valid_after_utc == young.not_valid_after_utc - by
    assert aged.serial_number != young.serial_number
    for same in ("subject", "issuer"):
        assert getattr(aged, same) == getattr(young, same)
    assert aged.public_key() == young.public_key()
    assert list(aged.extensions) == list(young.extensions)
    assert aged.extensions.get_extension_for_oid(ExtensionOID.SUBJECT_ALTERNATIVE_NAME)


def test_a_client_sees_the_certificate_expire_with_the_broker_s_clock(
    configure: Configure, folder: Path, clock: FakeClock
) -> None:
    settings = settings_of(configure, folder)
    found = ageing(settings, clock)
    clock.now += YEARS_101 * DAY_MS
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate has expired"):
        presented(found(), settings)
    clock.now = NOW_MS
    presented(found(), settings)


def test_a_context_serves_until_the_clock_is_moved_again(
    configure: Configure, folder: Path, clock: FakeClock
) -> None:
    found = ageing(settings_of(configure, folder), clock)
    clock.now += DAY_MS
    one = found()
    clock.now += 300
    assert found() is one
    clock.now += 1000
    assert found() is not one


def test_a_new_key_store_ages_too(
    configure: Configure, own: Path, authority: Authority, clock: FakeClock
) -> None:
    settings = settings_of(configure, own)
    found = ageing(settings, clock)
    clock.now += DAY_MS
    before = presented(found(), settings)
    issued = authority.issue("localhost", ["localhost", "127.0.0.1", "::1"], days=CENTURY_DAYS)
    (own / "server.pem").write_bytes(issued.key_pem() + issued.chain_pem())
    after = presented(found(), settings)
    assert after.public_key() != before.public_key()
    assert after.not_valid_after_utc == before.not_valid_after_utc


def test_without_the_authority_s_key_the_certificate_does_not_age(
    configure: Configure, own: Path, clock: FakeClock
) -> None:
    (own / "ca.key").unlink()
    settings = settings_of(configure, own)
    current = ReloadableContext(settings)
    clock.now += DAY_MS
    assert AgeingContext(current, clock, lambda: NOW_MS)() is current.context


def test_a_certificate_of_another_authority_does_not_age(
    configure: Configure, folder: Path, server: Issued
) -> None:
    issuer = issuer_beside(settings_of(configure, folder))
    assert issuer is not None
    other = Authority.create(datetime(2024, 1, 1, tzinfo=UTC)).issue("localhost").certificate
    assert aged_certificate(other, issuer, timedelta(days=1)) == other
    assert aged_certificate(server.certificate, issuer, timedelta(days=1)) != server.certificate


def test_no_time_is_too_far_back_for_a_certificate(
    configure: Configure, folder: Path, server: Issued
) -> None:
    issuer = issuer_beside(settings_of(configure, folder))
    assert issuer is not None
    aged = x509.load_der_x509_certificate(
        aged_certificate(server.certificate, issuer, timedelta(days=2 * CENTURY_DAYS))
    )
    assert aged.not_valid_before_utc.year == aged.not_valid_after_utc.year == 1950


@pytest.mark.parametrize(("year", "expired"), [(2023, False), (2100, False), (2130, True)])
def test_a_client_s_certificate_expires_by_the_broker_s_clock(
    configure: Configure, folder: Path, year: int, expired: bool
) -> None:
    settings = settings_of(configure, folder, client_auth="required")
    as_client = configure(
        keystore_location=str(folder / "client.pem"),
        keystore_type="PEM",
        truststore_location=str(folder / "ca.pem"),
        truststore_type="PEM",
    )
    server, _ = handshake(ReloadableContext(settings).context, client_context(as_client), "localhost")
    now_ms = round(datetime(year, 1, 1, tzinfo=UTC).timestamp() * 1000)
    assert has_expired(server, now_ms) == expired


def test_a_client_without_a_certificate_has_none_that_expires(configure: Configure, folder: Path) -> None:
    settings = settings_of(configure, folder)
    server, _ = handshake(ReloadableContext(settings).context, client_context(settings), "localhost")
    assert not has_expired(server, 2 * NOW_MS)
