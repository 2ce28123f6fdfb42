"""One connection to one broker: requests are sent and answered one after the other."""

from __future__ import annotations

import contextlib
import socket
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from odradek.deadlines import stretched
from odradek.errors import Untrusted
from odradek.health import not_kafka
from odradek.pending import waiting_for
from protocol.codec import MalformedRequest, client_codec
from protocol.errors import ErrorCode
from protocol.frame import request_header, response_body_offset
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.index import APIS
from protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.sasl_handshake import SaslHandshakeRequest
from protocol.versions import message_name
from tools.client.deadline import Deadline
from tools.client.errors import BadAddress, NoResponse, Refused, ToolError, Unreachable, Unsupported

if TYPE_CHECKING:
    from odradek.client_security import ClientSecurity
    from odradek.spark.wire.sasl import Conversation

CLIENT_ID: Final = "odradek"
CONNECT_TIMEOUT_S: Final = stretched(10.0)
REQUEST_TIMEOUT_S: Final = stretched(60.0)
RESPONSE_BYTES_MAX: Final = 128 * 1024 * 1024
_SIZE: Final = Struct(">i")
_CORRELATION_ID: Final = Struct(">i")
_API_VERSIONS: Final = 18
_KEYS: Final = {name: key for key, (name, *_) in APIS.items()}

Address = tuple[str, int]


class Connection:
    """Learns at its start which versions the broker announces; each request takes the highest that both sides have."""

    def __init__(
        self, address: Address, security: ClientSecurity | None = None, deadline: Deadline | None = None
    ) -> None:
        self.address = address
        self._deadline = deadline or Deadline()
        self._correlation_id = 0
        self._is_secured = security is not None
        self._is_ready = False
        try:
            # Half of a short time, so that another node can be asked in the rest.
            with waiting_for("", _text(address)):
                self._socket = socket.create_connection(address, self._deadline.left(CONNECT_TIMEOUT_S, 0.5))
        except OSError as error:
            raise _unreachable(address, error) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            # The timeout of the connection holds for this too: a node that hangs or is paused accepts connections.
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
        """The version in which ``api`` (``list_offsets``) is requested, not above ``highest``.

        ``Unsupported`` if there is none.
        """
        key = _KEYS[api]
        _, first, last, _ = APIS[key]
        name = message_name(api)
        if key not in self.versions:
            raise Unsupported(f"the broker at {_text(self.address)} does not support {name}")
        low, high = self.versions[key]
        version = min(high, last if highest is None else min(last, highest))
        if version < max(low, first):
            raise Unsupported(
                f"the broker at {_text(self.address)} supports {name} in versions {low} to {high}, "
                f"this client in {first} to {last}"
            )
        return version

    def ask(self, api: str, request: Any, highest: int | None = None) -> Any:
        """The response to ``request``."""
        return self._exchange(_KEYS[api], self.version(api, highest), request)

    def send_only(self, api: str, request: Any) -> None:
        """Send a request to which the broker does not respond (Produce with acks=0)."""
        self._send(_KEYS[api], self.version(api), request)

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
        """By SASL (KIP-43, KIP-152)."""
        from odradek.spark.wire.errors import Authentication

        handshake = SaslHandshakeRequest(mechanism=mechanism)
        chosen = self.ask("sasl_handshake", handshake)
        if chosen.error_code:
            enabled = ", ".join(chosen.mechanisms)
            raise Refused(f"{_text(self.address)}: the broker does not take {mechanism}, but {enabled}")
        token: bytes | None = next(login)
        while token is not None:
            answer = self.ask("sasl_authenticate", SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                raise Refused(f"{_text(self.address)}: {answer.error_message or 'the login failed'}")
            try:
                token = login.send(bytes(answer.auth_bytes))
            except StopIteration:
                token = None
            except Authentication as error:
                raise Refused(f"{_text(self.address)}: {error.sentence}") from None

    def _announced(self) -> dict[int, tuple[int, int]]:
        request = ApiVersionsRequest(client_software_name="odradek", client_software_version="1")
        response = self._exchange(_API_VERSIONS, 3, request)
        if response.error_code == ErrorCode.unsupported_version:
            response = self._exchange(_API_VERSIONS, 0, ApiVersionsRequest())
        if response.error_code != 0:
            raise ToolError(
                f"{_text(self.address)}: ApiVersions is answered with error code {response.error_code}"
            )
        return {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    def _exchange(self, key: int, version: int, request: Any) -> Any:
        with waiting_for(message_name(APIS[key][0]), _text(self.address)):
            return self._response(key, version, request)

    def _response(self, key: int, version: int, request: Any) -> Any:
        self._send(key, version, request)
        try:
            (size,) = _SIZE.unpack(self._read(4))
            if not 4 <= size <= RESPONSE_BYTES_MAX:
                raise Unreachable(f"{_text(self.address)}: {not_kafka(size)}")
            frame = self._read(size)
            if _CORRELATION_ID.unpack_from(frame)[0] != self._correlation_id:
                raise ToolError(f"{_text(self.address)}: the response has another correlation id")
            # A broker that does not know the version of ApiVersions responds in version 0 (KIP-511).
            if key == _API_VERSIONS and frame[4:6] == b"\0\x23":
                version = 0
            return client_codec(key, version).decode(frame, response_body_offset(key, version, frame))
        except OSError as error:
            raise _unreachable(self.address, error) from None
        except MalformedRequest as error:
            raise ToolError(f"{_text(self.address)}: the response is malformed: {error}") from None

    def _send(self, key: int, version: int, request: Any) -> None:
        self._correlation_id += 1
        if self._is_ready:
            self._socket.settimeout(self._deadline.left(REQUEST_TIMEOUT_S))
        body = client_codec(key, version).encode(request)
        data = b"".join((request_header(key, version, self._correlation_id, CLIENT_ID), *body))
        try:
            self._socket.sendall(_SIZE.pack(len(data)) + data)
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
        """A listener with TLS does not answer ApiVersions; one with SASL does, and takes nothing but a login then."""
        wanted = {1: "TLS", 2: "SASL"}.get(self._correlation_id)
        if wanted is None or self._is_secured:
            return ""
        return f": does its listener want {wanted}? See --command-config"


def parse_bootstrap(text: str) -> list[Address]:
    """``host:9092,[::1]:9093`` as addresses; ``BadAddress`` for what is none."""
    found = []
    for each in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = each.rpartition("://")[2].rpartition(":")
        if not colon or not port.isdecimal() or not 0 < int(port) < 65536:
            raise BadAddress(f"{each}: expected HOST:PORT")
        found.append((host.strip("[]") or "localhost", int(port)))
    if not found:
        raise BadAddress("no bootstrap server is given")
    return found


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _unreachable(address: Address, error: OSError) -> Unreachable:
    if isinstance(error, TimeoutError):
        return NoResponse(f"{_text(address)}: no response in time")
    # The codes of name resolution are not those of the system.
    return Unreachable(f"{_text(address)}: {error.strerror or error}")
