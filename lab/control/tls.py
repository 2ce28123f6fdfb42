"""TLS of the control port: certificate and key as PEM files. Imported only if TLS is configured."""

from __future__ import annotations

import ssl

from lab.control.access import TLS_CERTIFICATE_SETTING, TLS_KEY_SETTING, ControlConfigError


class _Encrypted(Exception):
    """The private key is encrypted: OpenSSL requires a password."""


def server_context(certificate: str, key: str = "") -> ssl.SSLContext:
    """TLS context. ``certificate`` is a file with the chain, the port's own certificate first, and possibly the key.

    Raises ``ControlConfigError`` if the files cannot be used.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    files = f"{TLS_CERTIFICATE_SETTING}={certificate}" + (f", {TLS_KEY_SETTING}={key}" if key else "")
    try:
        context.load_cert_chain(certificate, key or None, _no_password)
    except _Encrypted:
        raise ControlConfigError(f"{files}: the key is encrypted: give a key without a password") from None
    except ssl.SSLError as error:
        raise ControlConfigError(f"{files}: {_reason(error)}") from None
    except OSError as error:
        raise ControlConfigError(f"{files}: {error.strerror or error}") from None
    return context


def _no_password() -> str:
    """Password callback that fails. Without a callback OpenSSL would prompt on the terminal."""
    raise _Encrypted


def _reason(error: ssl.SSLError) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the key does not belong to the certificate"
    return f"no certificate with its key as PEM ({error.reason or error})"
