"""One connection to one broker, with one request in flight."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Any, Final

from odradek.deadlines import stretched
from odradek.errors import Untrusted
from odradek.health import not_kafka
from odradek.pending import waiting_for
from protocol.client import KEYS, LoginRefused, announced_versions, common_version, log_in
from protocol.codec import MalformedRequest, read_response, request_frame
from protocol.errors import ErrorCode
from protocol.frame import API_VERSIONS, SIZE, BadSize, check_size, correlation_id_of
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.index import APIS
from protocol.versions import message_name
from tools.client.deadline import Deadline
from tools.client.errors import BadAddress, NoResponse, Refused, ToolError, Unreachable, Unsupported

if TYPE_CHECKING:
    from odradek.client_security import ClientSecurity
    from protocol.client import Conversation, Versions

CLIENT_ID: Final = "odradek"
CONNECT_TIMEOUT_S: Final = stretched(10.0)
REQUEST_TIMEOUT_S: Final = stretched(60.0)
RESPONSE_BYTES_MAX: Final = 128 * 1024 * 1024

Address = tuple[str, int]


class Connection:
    """A connection. It starts with ApiVersions; each request then uses the highest version that both sides support."""

    def __init__(
        self, address: Address, security: ClientSecurity | None = None, deadline: Deadline | None = None
    ) -> None:
        self.address = address
        self._deadline = deadline or Deadline()
        self._correlation_id = 0
        self._is_secured = security is not None
        self._is_ready = False
        try:
            # Half of a short limit, so that the other half remains for another node.
            with waiting_for("", _text(address)):
                self._socket = socket.create_connection(address, self._deadline.left(CONNECT_TIMEOUT_S, 0.5))
        except OSError as error:
            raise _unreachable(address, error) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            # The timeout also covers the handshake: a hanging or paused node still accepts connections.
            if security is not None:
                self._socket = self._wrapped(security)
            self.versions = self._announced()
            if security is not None and security.mechanism is not None:
                self._log_in(security.mechanism, security.login())
        except BaseException:
            self.close()
            raise
        self._is_ready = True

    def version(self, api: str, highest: int | None = None) -> int:
        """The version for ``api`` (such as ``list_offsets``), at most ``highest``.

        Raises ``Unsupported`` if there is no common version.
        """
        key = KEYS[api]
        _, first, last, _ = APIS[key]
        name = message_name(api)
        if key not in self.versions:
            raise Unsupported(f"the broker at {_text(self.address)} does not support {name}")
        last_asked = last if highest is None else min(last, highest)
        version = common_version(self.versions, key, first, last_asked)
        if version is None:
            low, high = self.versions[key]
            raise Unsupported(
                f"the broker at {_text(self.address)} supports {name} in versions {low} to {high}, "
                f"this client in {first} to {last}"
            )
        return version

    def ask(self, api: str, request: Any, highest: int | None = None) -> Any:
        """Send a request, in a version of at most ``highest``, and return the response."""
        return self._exchange(KEYS[api], self.version(api, highest), request)

    def send_only(self, api: str, request: Any) -> None:
        """Send a request to which the broker does not respond (Produce with acks=0)."""
        self._send(KEYS[api], self.version(api), request)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.close()

    def _wrapped(self, security: ClientSecurity) -> socket.socket:
        try:
            with waiting_for("the TLS handshake", _text(self.address)):
                return security.wrap(self._socket, self.address[0])
        except Untrusted as error:
            raise Refused(f"{_text(self.address)}: {error}") from None
        except OSError as error:
            raise _unreachable(self.address, error) from None

    def _log_in(self, mechanism: str, login: Conversation) -> None:
        """Authenticate with SASL."""
        from odradek.spark.wire.errors import Authentication

        try:
            log_in(self.ask, mechanism, login)
        except LoginRefused as refused:
            reason = refused.message or "the login failed"
            if refused.mechanisms is not None:
                reason = f"the broker does not support {mechanism}, only {', '.join(refused.mechanisms)}"
            raise Refused(f"{_text(self.address)}: {reason}") from None
        except Authentication as error:
            raise Refused(f"{_text(self.address)}: {error.sentence}") from None

    def _announced(self) -> Versions:
        request = ApiVersionsRequest(client_software_name="odradek", client_software_version="1")
        response = self._exchange(API_VERSIONS, 3, request)
        if response.error_code == ErrorCode.unsupported_version:
            response = self._exchange(API_VERSIONS, 0, ApiVersionsRequest())
        if response.error_code != 0:
            raise ToolError(
                f"{_text(self.address)}: the response to ApiVersions has error code {response.error_code}"
            )
        return announced_versions(response)

    def _exchange(self, key: int, version: int, request: Any) -> Any:
        with waiting_for(message_name(APIS[key][0]), _text(self.address)):
            return self._response(key, version, request)

    def _response(self, key: int, version: int, request: Any) -> Any:
        self._send(key, version, request)
        try:
            (size,) = SIZE.unpack(self._read(SIZE.size))
            check_size(size, RESPONSE_BYTES_MAX)
            frame = self._read(size)
            if correlation_id_of(frame) != self._correlation_id:
                raise ToolError(
                    f"{_text(self.address)}: the response has another correlation id than the request"
                )
            return read_response(key, version, frame)
        except BadSize as bad:
            raise Unreachable(f"{_text(self.address)}: {not_kafka(bad.size)}") from None
        except OSError as error:
            raise _unreachable(self.address, error) from None
        except MalformedRequest as error:
            raise ToolError(f"{_text(self.address)}: the response is malformed: {error}") from None

    def _send(self, key: int, version: int, request: Any) -> None:
        self._correlation_id += 1
        if self._is_ready:
            self._socket.settimeout(self._deadline.left(REQUEST_TIMEOUT_S))
        frame = request_frame(key, version, self._correlation_id, CLIENT_ID, request)
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise _unreachable(self.address, error) from None

    def _read(self, size: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size:
            if self._is_ready and self._deadline.is_set:
                self._socket.settimeout(self._deadline.left(REQUEST_TIMEOUT_S))
            chunk = self._socket.recv(min(size - len(chunks), 1 << 20))
            if not chunk:
                raise Unreachable(f"{_text(self.address)}: the broker closed the connection{self._hint()}")
            chunks += chunk
        return bytes(chunks)

    def _hint(self) -> str:
        """End of an error message: the listener may require TLS if the first request failed, SASL if the second
        one failed.
        """
        wanted = {1: "TLS", 2: "SASL"}.get(self._correlation_id)
        if wanted is None or self._is_secured:
            return ""
        return f": does its listener require {wanted}? See --command-config"


def parse_bootstrap(text: str) -> list[Address]:
    """Parse ``host:9092,[::1]:9093`` into addresses. Raises ``BadAddress`` for an invalid one."""
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = each.rpartition("://")[2].rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadAddress(f"{each}: expected HOST:PORT")
        found.append((host.strip("[]") or "localhost", int(port)))
    if not found:
        raise BadAddress("no bootstrap server was given")
    return found


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unreachable(address: Address, error: OSError) -> Unreachable:
    if isinstance(error, TimeoutError):
        return NoResponse(f"{_text(address)}: no response in time")
    # Error codes of name resolution are not errno values.
    return Unreachable(f"{_text(address)}: {error.strerror or error}")
