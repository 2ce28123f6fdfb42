"""A health check: one ApiVersions request over a plain socket.

A listener with SASL responds to ApiVersions before any login, a listener with TLS after the handshake.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from odradek.client_security import ClientSecurity

Wrap = Callable[[socket.socket, str], socket.socket]
_ANSWER_BYTES_MAX: Final = 1 << 20


class HealthError(Exception):
    """The broker did not respond, or the response is not Kafka's."""


class _NotPlain(HealthError):
    """The listener seems to require TLS: it sent a TLS alert to a plain client, or closed the connection."""


def local_bootstrap(environ: Mapping[str, str]) -> str:
    """The local address of a broker configured by these environment variables, for the health check of its container."""
    listeners = environ.get("KAFKA_LISTENERS") or environ.get("KAFKA_ADVERTISED_LISTENERS") or ""
    controllers = environ.get("KAFKA_CONTROLLER_LISTENER_NAMES") or "CONTROLLER"
    for listener in listeners.split(","):
        match = re.fullmatch(r"\s*(.+)://.*:([0-9]+)\s*", listener)
        if match and match[1].upper() not in controllers.upper().split(","):
            return f"localhost:{match[2]}"
    return "localhost:9092"


def ask_api_versions(bootstrap: str, timeout_s: float = 3.0, security: ClientSecurity | None = None) -> int:
    """Send ApiVersions to a broker (``host:port``), and return the number of APIs in the response.

    Raises ``HealthError`` if there is no valid response. Without ``security``, a plain connection is tried first
    and then TLS without verification of the certificate, because the request contains nothing confidential.
    """
    host, colon, port = bootstrap.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise HealthError("expected HOST:PORT")
    address = (host.strip("[]") or "localhost", int(port))
    if security is not None:
        return _ask(address, timeout_s, security.wrap)
    try:
        return _ask(address, timeout_s, None)
    except _NotPlain as failure:
        tls = _AnyCertificate()
        try:
            return _ask(address, timeout_s, tls.wrap)
        except HealthError:
            if tls.is_spoken:
                raise
            raise failure from None


def _ask(address: tuple[str, int], timeout_s: float, wrap: Wrap | None) -> int:
    # ApiVersions, version 0, correlation id 1, client id "health"
    request = struct.pack(">hhih6s", 18, 0, 1, 6, b"health")
    try:
        with _connect(address, timeout_s, wrap) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _read(connection, 4))
            if not 10 <= size <= _ANSWER_BYTES_MAX:
                raise (_NotPlain if _is_tls(size) else HealthError)(not_kafka(size))
            correlation_id, error_code, api_count = struct.unpack_from(">ihi", _read(connection, size))
    except OSError as error:
        failure = _NotPlain if isinstance(error, ConnectionResetError) else HealthError
        raise failure(error.strerror or str(error) or type(error).__name__) from error
    if correlation_id != 1 or error_code != 0 or api_count <= 0:
        raise HealthError(f"the ApiVersions response has error code {error_code} and {api_count} APIs")
    return int(api_count)


def _connect(address: tuple[str, int], timeout_s: float, wrap: Wrap | None) -> socket.socket:
    connection = socket.create_connection(address, timeout_s)
    try:
        return connection if wrap is None else wrap(connection, address[0])
    except BaseException:
        connection.close()
        raise


class _AnyCertificate:
    """TLS without verification of the server's certificate."""

    is_spoken = False
    """True once a TLS handshake has succeeded: the listener uses TLS."""

    def wrap(self, connection: socket.socket, host: str) -> socket.socket:
        import ssl

        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        secured = context.wrap_socket(connection, server_hostname=host)
        self.is_spoken = True
        return secured


def not_kafka(size: int) -> str:
    """Return a sentence about a server that does not respond as Kafka does.

    ``size`` has the first four bytes of the response, which cannot be the size of a Kafka response.
    """
    if struct.pack(">i", size) == b"HTTP":
        return "an HTTP server responds there, no Kafka broker"
    if _is_tls(size):
        return "the listener there requires TLS (security.protocol=SSL or SASL_SSL, see --command-config)"
    return f"a response of {size} bytes is not Kafka's"


def _is_tls(size: int) -> bool:
    """Whether the first four bytes of the response, as the integer ``size``, begin a TLS alert."""
    return struct.pack(">i", size)[:2] == b"\x15\x03"


def _read(connection: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise _NotPlain("the server closed the connection without a response")
        chunks += chunk
    return bytes(chunks)
