"""A client of one broker, Kafka's or ours, for several principals: with SASL, and on a listener without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.broker.security.refusals.principals import ADMIN, ANONYMOUS, Acl
from tests.support import raw

Body = dict[str, Any]
CLOSED = "closed"
SILENCE = "silence"
SILENCE_S = 30.0
"""Seconds to wait for a response. Without a response in this time the result is `SILENCE`."""


class Side:
    """One broker, and connections to it. Each principal has a connection for each connection name (``on``)."""

    def __init__(self, sasl_port: int, plain_port: int) -> None:
        self._sasl_port, self._plain_port = sasl_port, plain_port
        self._wires: dict[tuple[str, str], raw.Wire] = {}

    def _connect(self, user: str) -> raw.Wire:
        """Connect and authenticate as this user."""
        if user == ANONYMOUS:
            return raw.Wire("127.0.0.1", self._plain_port)
        wire = raw.Wire("127.0.0.1", self._sasl_port)
        if wire.socket.getsockname() == wire.socket.getpeername():
            wire.close()
            raise ConnectionError("the broker does not listen yet: TCP has connected the port to itself")
        wire.send_frame(raw.encode_request("sasl_handshake", 1, {"mechanism": "PLAIN"}, 1))
        answer = raw.decode_response("sasl_handshake", 1, wire.receive_frame())[1]
        assert answer["error_code"] == 0, answer
        token = f"\0{user}\0{user}".encode()
        wire.send_frame(raw.encode_request("sasl_authenticate", 1, {"auth_bytes": token}, 2))
        answer = raw.decode_response("sasl_authenticate", 1, wire.receive_frame())[1]
        assert answer["error_code"] == 0, answer
        return wire

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()

    def ask(
        self, user: str, api: str, version: int, body: Body, *, on: str = "main", client_id: str = "matrix"
    ) -> Body | str:
        """Send a request. Returns the decoded response, `CLOSED` if the broker disconnects, or `SILENCE` after a
        timeout."""
        wire = self._wires.get((user, on))
        if wire is None:
            wire = self._wires[user, on] = self._connect(user)
        try:
            wire.send_frame(raw.encode_request(api, version, body, 1, client_id))
            return raw.decode_response(api, version, wire.receive_frame(SILENCE_S))[1]
        except raw.Closed:
            outcome = CLOSED
        except raw.Silence:
            outcome = SILENCE
        wire.close()
        del self._wires[user, on]
        return outcome

    def tell(self, user: str, api: str, version: int, body: Body, *, on: str = "main") -> str:
        """Send a request that has no response. Returns `CLOSED`, or `SILENCE` if the connection stays open."""
        wire = self._wires.get((user, on)) or self._connect(user)
        self._wires[user, on] = wire
        try:
            wire.send_frame(raw.encode_request(api, version, body, 1, "matrix"))
            wire.send_frame(raw.encode_request("api_versions", 0, {}, 2, "matrix"))
            correlation, _ = raw.decode_response("api_versions", 0, wire.receive_frame())
            assert correlation == 2
        except raw.Closed:
            wire.close()
            del self._wires[user, on]
            return CLOSED
        return SILENCE

    def grant(self, user: str, acls: Sequence[Acl]) -> None:
        """Give a user permissions."""
        answer = self.ask(ADMIN, "create_acls", 3, {"creations": [acl.binding(user) for acl in acls]})
        assert isinstance(answer, dict)
        assert {row["error_code"] for row in answer["results"]} <= {0}, answer
        self._await(user, acls, there=True)

    def revoke(self, user: str, acls: Sequence[Acl]) -> None:
        """Remove permissions from a user."""
        filters = [_filter(acl.binding(user)) for acl in acls]
        answer = self.ask(ADMIN, "delete_acls", 3, {"filters": filters})
        assert isinstance(answer, dict)
        assert all(row["matching_acls"] for row in answer["filter_results"]), answer
        self._await(user, acls, there=False)

    def _await(self, user: str, acls: Sequence[Acl], *, there: bool) -> None:
        """Wait until DescribeAcls shows a change of ACLs: the controller responds before the broker has applied the
        change."""
        for acl in acls:
            wanted = _filter(acl.binding(user))
            while True:
                answer = self.ask(ADMIN, "describe_acls", 3, wanted)
                assert isinstance(answer, dict)
                if bool(answer["resources"]) == there:
                    break


def _filter(binding: Body) -> Body:
    names = {
        "resource_type": "resource_type_filter",
        "resource_name": "resource_name_filter",
        "resource_pattern_type": "pattern_type_filter",
        "principal": "principal_filter",
        "host": "host_filter",
    }
    return {names.get(name, name): value for name, value in binding.items()}
