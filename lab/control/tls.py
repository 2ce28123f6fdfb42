"""TLS of the control port: a certificate and its key, as PEM files. Imported only where there is TLS."""

from __future__ import annotations

import ssl

from lab.control.access import TLS_CERTIFICATE_SETTING, TLS_KEY_SETTING, ControlConfigError


class _Encrypted(Exception):
    """OpenSSL has asked for the password of a key."""


def server_context(certificate: str, key: str = "") -> ssl.SSLContext:
    """``certificate`` is a file with the chain, the port's own first; the key may be in it too. ``ControlConfigError``."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    files = f"{TLS_CERTIFICATE_SETTING}={certificate}" + (f", {TLS_KEY_SETTING}={key}" if key else "")
    try:
        context.load_cert_chain(certificate, key or None, _no_password)
    except _Encrypted:
        raise ControlConfigError(
            f"{files}: the key is encrypted, and there is no setting for a password"
        ) from None
    except ssl.SSLError as error:
        raise ControlConfigError(f"{files}: {_reason(error)}") from None
    except OSError as error:
        raise ControlConfigError(f"{files}: {error.strerror or error}") from None
    return context


def _no_password() -> str:
    """Without this OpenSSL would ask the terminal."""
    raise _Encrypted


def _reason(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key is not that of the certificate"
    return f"no certificate with its key as PEM ({error.reason or error})"
