"""The quotas of a node's clients and their usage (Kafka's ``ClientQuotaManager``)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain
from broker.metadata.client_quotas import CONTROLLER_MUTATION_RATE, QuotaEntity, Quotas
from broker.metadata.results import ApiError
from broker.quotas.limits import Limit, limit_of
from broker.quotas.rates import MS_PER_SECOND, SampledRate, TokenBucket, Window
from protocol.errors import ErrorCode

if TYPE_CHECKING:
    from broker.config import BrokerConfig

BUCKETS_KEPT: Final = 10_000
"""Maximum number of rates, and of token buckets, in memory. At the maximum, idle rates or buckets are removed."""

_Key = tuple[str, QuotaEntity]


class ClientQuotas:
    """The usage of all client quotas on one node.

    As in Kafka, each node counts separately; controller mutations are counted on the node that got the client's request.
    """

    def __init__(self, config: BrokerConfig, clock: Clock, quotas: Callable[[], Quotas]) -> None:
        self._clock = clock
        self._quotas = quotas
        self._window = Window(config.quota_window_num, config.quota_window_size_seconds * 1_000)
        self._mutation_window = Window(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1_000
        )
        self._rates: dict[_Key, SampledRate] = {}
        self._buckets: dict[_Key, TokenBucket] = {}

    @property
    def request_throttle_ms_max(self) -> int:
        """Maximum throttle time for the request quota, in milliseconds: the length of one sample."""
        return self._window.sample_ms

    @property
    def are_set(self) -> bool:
        """Whether the metadata has any quota."""
        return bool(self._quotas())

    def charge(self, key: str, user: str, client_id: str, value: float) -> int:
        """Add ``value`` to the usage of a client; returns its throttle time in milliseconds, 0 without a quota."""
        limit = limit_of(self._quotas(), key, user, client_id)
        if limit is None:
            return 0
        now_ms = self._clock.now_ms(Domain.REQUESTS)
        rate = self._rate(key, limit, now_ms)
        rate.record(value, now_ms)
        return rate.throttle_ms(limit.per_second, now_ms)

    def charge_if_it_may(self, key: str, user: str, client_id: str, value: float) -> int:
        """Add ``value`` to the usage of a client unless that exceeds the quota; returns the throttle time in milliseconds.

        If the throttle time is not 0, the usage is not counted, and the caller must not do what the client requested.
        """
        limit = limit_of(self._quotas(), key, user, client_id)
        if limit is None:
            return 0
        now_ms = self._clock.now_ms(Domain.REQUESTS)
        rate = self._rate(key, limit, now_ms)
        rate.record(value, now_ms)
        throttle_ms = rate.throttle_ms(limit.per_second, now_ms)
        if throttle_ms:
            rate.take_back(value)
        return throttle_ms

    def value_max(self, key: str, user: str, client_id: str) -> float:
        """Maximum value that an idle client may use at once, infinite without a quota; more would always be throttled."""
        limit = limit_of(self._quotas(), key, user, client_id)
        if limit is None:
            return inf
        return limit.per_second * (self._window.samples - 1) * self._window.sample_ms / MS_PER_SECOND

    def _rate(self, key: str, limit: Limit, now_ms: int) -> SampledRate:
        rate = self._rates.get((key, limit.bucket))
        if rate is None:
            self._forget_idle(now_ms)
            rate = self._rates[key, limit.bucket] = SampledRate(self._window)
        return rate

    def _forget_idle(self, now_ms: int) -> None:
        if len(self._rates) >= BUCKETS_KEPT:
            self._rates = {key: rate for key, rate in self._rates.items() if not rate.is_idle(now_ms)}
        if len(self._buckets) >= BUCKETS_KEPT:
            self._buckets = {key: each for key, each in self._buckets.items() if not each.is_idle(now_ms)}

    def mutations(self, user: str, client_id: str, *, strict: bool) -> MutationQuota:
        """Return the mutation quota for a request. If ``strict``, `MutationQuota.take` raises when the quota is exceeded."""
        limit = limit_of(self._quotas(), CONTROLLER_MUTATION_RATE, user, client_id)
        if limit is None:
            return MutationQuota(self._clock, None, None, strict=strict)
        key = (CONTROLLER_MUTATION_RATE, limit.bucket)
        bucket = self._buckets.get(key)
        if bucket is None:
            self._forget_idle(self._clock.now_ms(Domain.REQUESTS))
            bucket = self._buckets[key] = TokenBucket(self._mutation_window)
        return MutationQuota(self._clock, bucket, limit, strict=strict)


class MutationQuota:
    """The controller mutation quota for one request: each created or deleted partition takes a token (KIP-599)."""

    def __init__(
        self, clock: Clock, bucket: TokenBucket | None, limit: Limit | None, *, strict: bool
    ) -> None:
        self._clock = clock
        self._bucket = bucket
        self._limit = limit
        self._strict = strict
        self.throttle_ms = 0

    def take(self, partitions: int) -> None:
        """Take a token for each of ``partitions`` before the change. Raises ApiError if strict and the quota is exceeded."""
        if self._bucket is None or self._limit is None:
            return
        limit, now_ms = self._limit.per_second, self._clock.now_ms(Domain.REQUESTS)
        waits_ms = self._bucket.throttle_ms(limit, now_ms)
        if waits_ms:
            self.throttle_ms = max(self.throttle_ms, waits_ms)
            if self._strict:
                raise ApiError(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")
        self._bucket.take(partitions, limit, now_ms)
        if not self._strict:
            self.throttle_ms = max(self.throttle_ms, self._bucket.throttle_ms(limit, now_ms))
