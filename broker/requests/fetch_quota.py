"""The consumer byte rate quota (KIP-13) of the client of a Fetch."""

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
    """The quota of the client that sent this Fetch.

    Followers have no quota. Nothing is counted while no quota is configured.
    """

    __slots__ = ("_client", "_quotas")

    def __init__(self, request: FetchRequest, context: RequestContext) -> None:
        quotas = context.node.quotas
        self._quotas = quotas if quotas.are_set and replica_id(request) < 0 else None
        self._client = context.principal.partition(":")[2], context.client_id or ""

    @property
    def bytes_max(self) -> float:
        """Largest response that the quota allows, in bytes. A larger one would be throttled forever."""
        return inf if self._quotas is None else self._quotas.value_max(CONSUMER_BYTE_RATE, *self._client)

    @property
    def is_set(self) -> bool:
        """Whether a quota is configured, so that the response must be counted."""
        return self._quotas is not None

    def charge(self, response: FetchResponse, version: int) -> int:
        """Count the response against the quota. Returns the throttle time in ms, 0 if the response may be sent now."""
        if self._quotas is None:
            return 0
        # Kafka counts the whole response, with its size (``FetchResponse.sizeOf``).
        size = SIZE_BYTES + sum(map(len, request_codec(FETCH, version).encode(response)))
        return self._quotas.charge_if_it_may(CONSUMER_BYTE_RATE, *self._client, size)
