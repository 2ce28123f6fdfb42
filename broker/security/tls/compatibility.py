"""Checks whether a key store may replace another one on a running listener (``SslFactory.CertificateEntries``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker.security.tls.distinguished_name import subject_name
from broker.security.tls.settings import CONFIG_EXCEPTION, TlsConfigError, TlsSettings
from broker.security.tls.stores import PrivateKey

# Java's numbers of the name types (``X509Certificate.getSubjectAlternativeNames``).
_KINDS: Final = {
    "OtherName": 0,
    "RFC822Name": 1,
    "DNSName": 2,
    "DirectoryName": 4,
    "UniformResourceIdentifier": 6,
    "IPAddress": 7,
    "RegisteredID": 8,
}


def check_stores(before: TlsSettings, after: TlsSettings) -> None:
    """Raise `ConfigError` if a listener would lose its key store, or get a key store or trust store where it has none."""
    if before.key_store is None and after.key_store is not None:
        raise _refusal(
            "Cannot add SSL keystore to an existing listener for which no keystore was configured."
        )
    if before.key_store is not None and after.key_store is None:
        raise _refusal(
            "Cannot remove the SSL keystore from an existing listener for which a keystore was configured."
        )
    if before.trust_store is None and after.trust_store is not None:
        raise _refusal(
            "Cannot add SSL truststore to an existing listener for which no truststore was configured."
        )


def check_names(settings: TlsSettings, before: Sequence[PrivateKey], after: Sequence[PrivateKey]) -> None:
    """Raise `ConfigError` unless the new certificates have the same subjects, and at least the same host names."""
    if settings.allow_dn_changes and settings.allow_san_changes:
        return
    if len(before) != len(after):
        raise _refusal(
            f"Keystore entries do not match, existing store contains {len(before)} entries, "
            f"new store contains {len(after)} entries"
        )
    for old, new in zip(before, after, strict=True):
        if not settings.allow_dn_changes:
            _check_subjects(old, new)
    for old, new in zip(before, after, strict=True):
        if not settings.allow_san_changes:
            _check_alternative_names(old, new)


def _check_subjects(old: PrivateKey, new: PrivateKey) -> None:
    old_name, new_name = subject_name(old.chain[0]), subject_name(new.chain[0])
    if old_name.casefold() != new_name.casefold():
        raise _refusal(
            "Keystore DistinguishedName does not match: "
            f" existing={{alias={old.alias}, DN={old_name}}}, new={{alias={new.alias}, DN={new_name}}}"
        )


def _check_alternative_names(old: PrivateKey, new: PrivateKey) -> None:
    old_names, new_names = _alternative_names(old.chain[0]), _alternative_names(new.chain[0])
    if not old_names <= new_names:
        raise _refusal(
            "Keystore SubjectAltNames do not match: "
            f" existing={{alias={old.alias}, SAN={_text(old_names)}}}, new={{alias={new.alias}, SAN={_text(new_names)}}}"
        )


def _alternative_names(certificate: bytes) -> frozenset[str]:
    from cryptography import x509

    extensions = x509.load_der_x509_certificate(certificate).extensions
    try:
        names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return frozenset()
    return frozenset(f"[{_KINDS.get(type(each).__name__, 0)}, {each.value}]" for each in names)


def _text(names: frozenset[str]) -> str:
    return f"[{', '.join(sorted(names))}]"


def _refusal(text: str) -> TlsConfigError:
    return TlsConfigError(text, CONFIG_EXCEPTION)
