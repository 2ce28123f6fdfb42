"""A fake network between a `World` and the other nodes: a sent request waits until a test responds to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from broker.loop.coroutines import Waiter
from protocol.codec import client_codec, request_codec


@dataclass
class Sent:
    """A request to another node, as decoded by that node."""

    node_id: int
    client_id: str
    api_key: int
    api_version: int
    request: Any
    answered: Waiter[Any]

    def answer(self, response: Any) -> None:
        """Respond to the request, with the response encoded and decoded. None: the connection broke without a response."""
        if response is not None:
            data = b"".join(request_codec(self.api_key, self.api_version).encode(response))
            response = client_codec(self.api_key, self.api_version).decode(data)
        self.answered.wake(response)


@dataclass
class FakePeers:
    """A fake `broker.peers.Peers` of node 1. Nodes in `dead` are not alive."""

    node_id: int = 1
    sent: list[Sent] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)

    def is_alive(self, node_id: int) -> bool:
        return node_id not in self.dead

    def send(
        self,
        node_id: int,
        client_id: str,
        api_key: int,
        api_version: int,
        request: Any,
    ) -> Waiter[Any]:
        data = b"".join(client_codec(api_key, api_version).encode(request))
        read = request_codec(api_key, api_version).decode(data)
        answered: Waiter[Any] = Waiter()
        self.sent.append(Sent(node_id, client_id, api_key, api_version, read, answered))
        return answered

    def take(self) -> list[Sent]:
        """Return the requests that were sent since the last call."""
        sent, self.sent = self.sent, []
        return sent
