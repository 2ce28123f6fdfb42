"""Open a connection: TCP, TLS, ApiVersions and SASL in this order, within one timeout for all steps."""

from __future__ import annotations

import socket
import ssl
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from odradek._protocol.client import LoginRefused, announced_versions, log_in
from odradek._protocol.codec import request_frame
from odradek._protocol.frame import SIZE, BadSize, check_size
from odradek._protocol.messages.api_versions import ApiVersionsRequest
from odradek.spark.wire import sasl
from odradek.spark.wire.connection import Connection
from odradek.spark.wire.errors import Authentication, ConnectionLost, UnsupportedVersion, WireError, name_of
from odradek.spark.wire.messages import (
    ANSWER_SIZE_BYTES_MAX,
    API_VERSIONS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    Versions,
    choose_version,
    decode_answer,
)
from odradek.spark.wire.settings import ClientSettings

_APIS = {each.name: each for each in (SASL_HANDSHAKE, SASL_AUTHENTICATE)}
_SOFTWARE = "odradek-spark"


@cache
def _software_version() -> str:
    """Version of the installed package; "unknown" in an executor that has the modules without their distribution."""
    try:
        return version("odradek")
    except PackageNotFoundError:
        return "unknown"


def dial(settings: ClientSettings, tls: ssl.SSLContext | None, host: str, port: int) -> Connection:
    """Open a connection that is ready for requests.

    Raises ``ConnectionLost`` if no broker listens, ``Authentication`` if TLS or SASL fails, ``UnsupportedVersion`` if the
    broker is too old, and ``MalformedAnswer`` if a response cannot be parsed.
    """
    address = f"{host}:{port}"
    deadline = time.monotonic() + settings.socket_connection_setup_timeout_ms / 1000
    sock: socket.socket | None = None
    try:
        sock = socket.create_connection((host, port), _left(deadline))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock.settimeout(_left(deadline))
            sock = tls.wrap_socket(sock, server_hostname=host)
        greeting = _Greeting(settings, sock, address, deadline)
        versions = greeting.versions()
        if settings.security_protocol.startswith("SASL"):
            greeting.authenticate()
        return Connection(sock, address, versions, settings.client_id)
    except ssl.SSLEOFError as error:
        _close(sock)
        raise ConnectionLost(f"the broker at {address} closed the connection during TLS: {error}") from None
    except ssl.SSLError as error:
        _close(sock)
        raise Authentication(
            "SSL_HANDSHAKE_FAILED", f"TLS with the broker at {address} failed: {error}"
        ) from None
    except (OSError, UnicodeError) as error:
        # UnicodeError: a host name that IDNA does not allow, advertised by a broker or set by a user.
        _close(sock)
        raise ConnectionLost(f"the broker at {address} cannot be reached: {error}") from None
    except WireError:
        _close(sock)
        raise


def _close(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.close()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError("timed out")
    return left


class _Greeting:
    """A blocking socket during login, on which requests are sent one at a time."""

    def __init__(self, settings: ClientSettings, sock: socket.socket, address: str, deadline: float) -> None:
        self.settings = settings
        self.socket = sock
        self.address = address
        self.deadline = deadline
        self.offered: Versions = {}

    def versions(self) -> Versions:
        request = ApiVersionsRequest(
            client_software_name=_SOFTWARE, client_software_version=_software_version()
        )
        version = API_VERSIONS.highest
        answer = decode_answer(
            API_VERSIONS, version, self._exchange(API_VERSIONS, version, request), self.address
        )
        if answer.error_code:
            raise UnsupportedVersion(
                name_of(answer.error_code),
                f"the broker at {self.address} is older than Apache Kafka 2.4 and cannot be used",
            )
        self.offered = announced_versions(answer)
        return self.offered

    def authenticate(self) -> None:
        mechanism = self.settings.sasl_mechanism
        try:
            log_in(self._ask, mechanism, sasl.conversation(self.settings))
        except LoginRefused as refused:
            said = f"says: {refused.message}"
            if refused.mechanisms is not None:
                said = f"offers {', '.join(refused.mechanisms)}, and not {mechanism}"
            raise Authentication(
                name_of(refused.error_code), f"the broker at {self.address} {said}"
            ) from None

    def _ask(self, name: str, request: Any) -> Any:
        api = _APIS[name]
        version = choose_version(api, self.offered, self.address)
        return decode_answer(api, version, self._exchange(api, version, request), self.address)

    def _exchange(self, api: Api, version: int, request: Any) -> bytes:
        self.socket.settimeout(_left(self.deadline))
        self.socket.sendall(request_frame(api.key, version, 0, self.settings.client_id, request))
        (size,) = SIZE.unpack(self._read(SIZE.size, api))
        try:
            check_size(size, ANSWER_SIZE_BYTES_MAX)
        except BadSize:
            raise ConnectionLost(
                f"the server at {self.address} is not a Kafka broker, or expects TLS"
            ) from None
        return self._read(size, api)

    def _read(self, size: int, api: Api) -> bytes:
        data = bytearray()
        while len(data) < size:
            self.socket.settimeout(_left(self.deadline))
            piece = self.socket.recv(min(size - len(data), 1 << 16))
            if not piece:
                hint = (
                    "; does the broker expect another kafka.security.protocol?" if api is API_VERSIONS else ""
                )
                raise ConnectionLost(
                    f"the broker at {self.address} closed the connection instead of responding to {api.name}{hint}"
                )
            data += piece
        return bytes(data)
