"""One ApiVersions request over a plain socket: the smallest request to which only a working broker responds."""

import re
import socket
import struct
from collections.abc import Mapping

_ANSWER_BYTES_MAX = 1 << 20


class HealthError(Exception):
    """The broker did not respond, or not as a broker does."""


def local_bootstrap(environ: Mapping[str, str]) -> str:
    """Where a broker that was configured by these variables listens, as its container's health check needs it."""
    listeners = environ.get("KAFKA_LISTENERS") or environ.get("KAFKA_ADVERTISED_LISTENERS") or ""
    controllers = environ.get("KAFKA_CONTROLLER_LISTENER_NAMES") or "CONTROLLER"
    for listener in listeners.split(","):
        match = re.fullmatch(r"\s*(.+)://.*:([0-9]+)\s*", listener)
        if match and match[1].upper() not in controllers.upper().split(","):
            return f"localhost:{match[2]}"
    return "localhost:9092"


def ask_api_versions(bootstrap: str, timeout_s: float = 3.0) -> int:
    """How many APIs the broker at `host:port` announces."""
    host, colon, port = bootstrap.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
        raise HealthError("expected HOST:PORT")
    # ApiVersions, version 0, correlation id 1, client id "health"
    request = struct.pack(">hhih6s", 18, 0, 1, 6, b"health")
    try:
        with socket.create_connection((host.strip("[]") or "localhost", int(port)), timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (size,) = struct.unpack(">i", _read(connection, 4))
            if not 10 <= size <= _ANSWER_BYTES_MAX:
                raise HealthError(not_kafka(size))
            correlation_id, error_code, api_count = struct.unpack_from(">ihi", _read(connection, size))
    except OSError as error:
        raise HealthError(error.strerror or str(error) or type(error).__name__) from error
    if correlation_id != 1 or error_code != 0 or api_count <= 0:
        raise HealthError(f"error code {error_code}, {api_count} APIs")
    return int(api_count)


def not_kafka(size: int) -> str:
    """What speaks at a port whose first four bytes, which Kafka takes for a size, are no size."""
    first = struct.pack(">i", size)
    if first == b"HTTP":
        return "an HTTP server responds there, no Kafka broker"
    if first[:2] == b"\x15\x03":
        return "the listener there wants TLS; this client speaks PLAINTEXT only"
    return f"a response of {size} bytes is not Kafka's"


def _read(connection: socket.socket, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        chunk = connection.recv(size - len(chunks))
        if not chunk:
            raise HealthError("it closed the connection without an answer")
        chunks += chunk
    return bytes(chunks)
