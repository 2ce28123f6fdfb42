"""What a Fetch of a consumer may read (KIP-13), as its handler asks for it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from broker.metadata.client_quotas import CONSUMER_BYTE_RATE
from broker.requests.fetch_reading import replica_id
from protocol.codec import request_codec

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from protocol.messages.fetch import FetchRequest, FetchResponse

FETCH: Final = 1
SIZE_BYTES: Final = 4


class FetchQuota:
    """Of the client of this request. Followers have none, and while none is set nothing is counted."""

    __slots__ = ("_client", "_quotas")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        quotas = context.node.quotas
        self._quotas = quotas if quotas.are_set and replica_id(request) < 0 else None
        self._client = context.principal.partition(":")[2], context.client_id or ""

    @property
    def bytes_max(self) -> float:
        """A Fetch of more would be throttled for ever."""
        return inf if self._quotas is None else self._quotas.value_max(CONSUMER_BYTE_RATE, *self._client)

    @property
    def is_set(self) -> bool:
        """Is there something to count?"""
        return self._quotas is not None

    def charge(self, response: FetchResponse, version: int) -> int:
        """For how long the client has to wait before it gets this response; 0 if it gets it now."""
        if self._quotas is None:
            return 0
        # Kafka counts the whole response, with its size (``FetchResponse.sizeOf``).
        size = SIZE_BYTES + sum(map(len, request_codec(FETCH, version).encode(response)))
        return self._quotas.charge_if_it_may(CONSUMER_BYTE_RATE, *self._client, size)
