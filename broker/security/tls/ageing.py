"""Certificate expiry with an advanced broker clock, for the certificates of a listener and of its clients.

    security.tls = AgeingContext(current, clock)
    security.tls()                           # the context for the next connection
    has_expired(ssl_object, clock.now_ms(Domain.CONNECTIONS))

A client compares a certificate with its own clock, which the broker cannot advance. So the listener presents a certificate
whose validity is moved back by the time that the broker's clock is ahead. The client then sees it expire when it expires by
the broker's clock. Such a certificate must be signed by the authority, so the authority's key must be in the directory of
the key store (``broker.security.tls.directory``).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain, SystemClock
from broker.config.authority_files import CA, CA_KEY
from broker.logging import get_logger
from broker.security.tls.contexts import server_context
from protocol.named_tuple import NamedTuple

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    from broker.security.tls.reloading import ReloadableContext
    from broker.security.tls.settings import TlsSettings
    from broker.security.tls.stores import PrivateKey

_EARLIEST: Final = datetime(1950, 1, 1, tzinfo=UTC)
"""Earliest time that is used in a certificate (RFC 5280 4.1.2.5)."""
_log = get_logger()


class _Aged(NamedTuple):
    """A TLS ``context`` whose certificate's validity is moved back by ``ahead_s`` seconds.

    ``young`` is the listener's own context, from which ``context`` was made.
    """

    young: ssl.SSLContext
    ahead_s: int
    context: ssl.SSLContext


class Issuer(NamedTuple):
    """A certificate authority with its private key."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey | RSAPrivateKey


class AgeingContext:
    """The TLS contexts of one listener. While the clock is not ahead, the listener's own context is used."""

    def __init__(
        self, current: ReloadableContext, clock: Clock, real_ms: Callable[[], int] | None = None
    ) -> None:
        """``real_ms`` returns the time of the clients, by default the system's."""
        self._current = current
        self._clock = clock
        self._real_ms = real_ms or SystemClock().now_ms
        self._aged: _Aged | None = None

    def __call__(self) -> ssl.SSLContext:
        """Return the context for the next connection. Open connections keep their contexts."""
        self._current.reload_if_changed()
        young = self._current.context
        # Whole seconds, since a certificate has no milliseconds.
        ahead_s = round((self._clock.now_ms(Domain.CONNECTIONS) - self._real_ms()) / 1000)
        if ahead_s <= 0:
            return young
        aged = self._aged
        if aged is None or aged.young is not young or aged.ahead_s != ahead_s:
            aged = self._aged = _Aged(young, ahead_s, self._make(young, timedelta(seconds=ahead_s)))
        return aged.context

    def _make(self, young: ssl.SSLContext, by: timedelta) -> ssl.SSLContext:
        settings, stores = self._current.settings, self._current.stores
        issuer = issuer_beside(settings)
        keys = stores.keys or ()
        aged = tuple(keys if issuer is None else (_aged_entry(each, issuer, by) for each in keys))
        if aged == tuple(keys):
            _log.info(
                "certificate does not expire by the advanced clock: the key of its authority is not available",
                listener=settings.listener,
            )
            return young
        return server_context(settings, stores._replace(keys=aged))


def issuer_beside(settings: TlsSettings) -> Issuer | None:
    """The authority whose key and certificate are beside the key store; None if there is no usable authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    store = settings.key_store
    if store is None or store.location is None:
        return None
    folder = Path(store.location).parent
    try:
        key = load_pem_private_key((folder / CA_KEY).read_bytes(), None)
        certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    except (OSError, TypeError, ValueError):
        return None
    return Issuer(certificate, key) if isinstance(key, EllipticCurvePrivateKey | RSAPrivateKey) else None


def _aged_entry(entry: PrivateKey, issuer: Issuer, by: timedelta) -> PrivateKey:
    own, *others = entry.chain
    return entry._replace(chain=(aged_certificate(own, issuer, by), *others))


def aged_certificate(certificate: bytes, issuer: Issuer, by: timedelta) -> bytes:
    """The certificate with its validity moved back by ``by``; unchanged if it was issued by another authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding

    from broker.security.tls.authority import is_issued_by

    young = x509.load_der_x509_certificate(certificate)
    if not is_issued_by(young, issuer.certificate):
        return certificate
    builder = (
        x509.CertificateBuilder()
        .issuer_name(young.issuer)
        .subject_name(young.subject)
        .public_key(young.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_before(young.not_valid_before_utc, by))
        .not_valid_after(_before(young.not_valid_after_utc, by))
    )
    for extension in young.extensions:
        builder = builder.add_extension(extension.value, extension.critical)
    return builder.sign(issuer.key, SHA256()).public_bytes(Encoding.DER)


def _before(time: datetime, by: timedelta) -> datetime:
    return _EARLIEST if by > time - _EARLIEST else time - by


def has_expired(tls: ssl.SSLObject, now_ms: int) -> bool:
    """Whether the peer's certificate has expired at ``now_ms``. False if the peer has no certificate."""
    certificate = tls.getpeercert()
    if not certificate:
        return False
    return ssl.cert_time_to_seconds(str(certificate["notAfter"])) * 1000 < now_ms
