"""The consumer byte rate quota (KIP-13) of the client of a Fetch or ShareFetch."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from broker.metadata.client_quotas import CONSUMER_BYTE_RATE
from protocol.codec import request_codec

if TYPE_CHECKING:
    from broker.node.context import RequestContext
    from protocol.messages.fetch import FetchResponse
    from protocol.messages.share_fetch import ShareFetchResponse

FETCH: Final = 1
SHARE_FETCH: Final = 78
SIZE_BYTES: Final = 4


class FetchQuota:
    """The quota of the client that sent this Fetch or ShareFetch.

    Followers have no quota. Nothing is counted while no quota is configured.
    """

    __slots__ = ("_api_key", "_client", "_quotas")

    def __init__(self, context: RequestContext, api_key: int = FETCH, *, is_follower: bool = False) -> None:
        quotas = context.node.quotas
        self._api_key = api_key
        self._quotas = quotas if quotas.are_set and not is_follower else None
        self._client = context.principal.partition(":")[2], context.client_id or ""

    @property
    def bytes_max(self) -> float:
        """Largest response that the quota allows, in bytes. A larger one would be throttled forever."""
        return inf if self._quotas is None else self._quotas.value_max(CONSUMER_BYTE_RATE, *self._client)

    @property
    def is_set(self) -> bool:
        """Whether a quota is configured, so that the response must be counted."""
        return self._quotas is not None

    def charge(self, response: FetchResponse | ShareFetchResponse, version: int) -> int:
        """Count the response against the quota. Returns the throttle time in ms, 0 if the response may be sent now."""
        if self._quotas is None:
            return 0
        # Kafka counts the whole response, with its size (``FetchResponse.sizeOf``).
        size = SIZE_BYTES + sum(map(len, request_codec(self._api_key, version).encode(response)))
        return self._quotas.charge_if_it_may(CONSUMER_BYTE_RATE, *self._client, size)
