"""A certificate authority for tests and demos, which can also issue invalid certificates.

    authority = Authority.create(now)
    authority.issue("localhost", hosts=local_hosts())
    authority.issue("alice", client=True)
    authority.issue("localhost", days=-1)               # expired yesterday
    Authority.create(now).issue("localhost")            # by an authority that others do not trust
    write_directory(Path("tls"), authority, "password")

Keys are EC (P-256), which Java, OpenSSL and Go support and which are generated fast.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterable
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.security.tls import jks
from protocol.slotted import slotted

DAYS: Final = 3650
ALIAS: Final = "odradek"
_CURVE: Final = ec.SECP256R1()
_LONGEST_AGO: Final = timedelta(days=1)
"""How long before ``now`` a certificate becomes valid, since clocks of clients differ."""


@slotted(frozen=True)
class Issued:
    """A private key and its certificate chain."""

    key: ec.EllipticCurvePrivateKey
    chain: tuple[x509.Certificate, ...]
    now: datetime

    @property
    def certificate(self) -> bytes:
        """The certificate in DER."""
        return _der(self.chain[0])

    def key_pem(self, password: str | None = None) -> bytes:
        """The private key as PKCS#8 in PEM, encrypted if there is a password."""
        encryption: KeySerializationEncryption = NoEncryption() if password is None else _encryption(password)
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)

    def chain_pem(self) -> bytes:
        return b"".join(each.public_bytes(Encoding.PEM) for each in self.chain)

    def pkcs12(self, password: str) -> bytes:
        issuers = list(self.chain[1:])
        name = ALIAS.encode()
        return pkcs12.serialize_key_and_certificates(
            name, self.key, self.chain[0], issuers, _encryption(password)
        )

    def jks(self, password: str) -> bytes:
        key = self.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        protected = jks.protect(key, password, secrets.token_bytes(jks.SALT_BYTES))
        entry = jks.KeyEntry(ALIAS, protected, tuple(map(_der, self.chain)))
        return jks.write([entry], [], password, _milliseconds(self.now))


class Authority:
    """A certificate authority. The certificates that it issues are valid from the authority's creation on."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, now: datetime) -> None:
        self._key = key
        self._certificate = certificate
        self._now = now

    @classmethod
    def create(cls, now: datetime, subject: str = "CN=Odradek CA", days: int = DAYS) -> Authority:
        """Create an authority with a new key. ``now`` must have a time zone."""
        key, name = ec.generate_private_key(_CURVE), _name(subject)
        usage = _key_usage(key_cert_sign=True, crl_sign=True)
        builder = _builder(name, name, key.public_key(), now, days)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(usage, critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()), now)

    @classmethod
    def load(cls, key: bytes, certificate: bytes, now: datetime) -> Authority:
        """Load an authority from PEM. Raises ValueError if the key is not an EC key."""
        loaded = load_pem_private_key(key, None)
        if not isinstance(loaded, ec.EllipticCurvePrivateKey):
            raise ValueError("the authority's key is not an EC key")
        return cls(loaded, x509.load_pem_x509_certificate(certificate), now)

    def issue(
        self, subject: str, hosts: Iterable[str] = (), *, days: int = DAYS, client: bool = False
    ) -> Issued:
        """Issue a certificate for a server, or for a client only (``client``). With negative ``days`` it has expired.

        ``subject`` is a common name, or a distinguished name in the form of RFC 4514 (`CN=alice,OU=orders`).
        """
        key = ec.generate_private_key(_CURVE)
        # A broker uses its server certificate also as a client of other brokers.
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if not client:
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        builder = _builder(_name(subject), self._certificate.subject, key.public_key(), self._now, days)
        builder = (
            builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        names = [_general_name(each) for each in dict.fromkeys(hosts)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Issued(key, (builder.sign(self._key, hashes.SHA256()), self._certificate), self._now)

    @property
    def certificate(self) -> bytes:
        """The certificate in DER."""
        return _der(self._certificate)

    def certificate_pem(self) -> bytes:
        """The certificate as PEM, which is also a trust store of type PEM."""
        return self._certificate.public_bytes(Encoding.PEM)

    def key_pem(self) -> bytes:
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def trust_store_pkcs12(self, password: str) -> bytes:
        """A PKCS12 trust store, with the attribute by which Java recognizes a trusted certificate."""
        trusted = pkcs12.PKCS12Certificate(self._certificate, ALIAS.encode())
        return pkcs12.serialize_java_truststore([trusted], _encryption(password))

    def trust_store_jks(self, password: str) -> bytes:
        trusted = jks.CertificateEntry(ALIAS, self.certificate)
        return jks.write([], [trusted], password, _milliseconds(self._now))


def local_hosts(*others: str) -> tuple[str, ...]:
    """Local names and addresses of this machine, its host name, and ``others``."""
    return tuple(dict.fromkeys(("localhost", "127.0.0.1", "::1", socket.gethostname(), *others)))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - _LONGEST_AGO)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(subject: str) -> x509.Name:
    if "=" in subject:
        return x509.Name.from_rfc4514_string(subject)
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(
    *, digital_signature: bool = False, key_cert_sign: bool = False, crl_sign: bool = False
) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=crl_sign,
        encipher_only=False,
        decipher_only=False,
    )


def _encryption(password: str) -> KeySerializationEncryption:
    return BestAvailableEncryption(password.encode())


def _der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def _milliseconds(now: datetime) -> int:
    return round(now.timestamp() * 1000)


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether the authority with the certificate ``issuer`` has signed ``certificate``."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, TypeError, ValueError):
        return False
    return True
