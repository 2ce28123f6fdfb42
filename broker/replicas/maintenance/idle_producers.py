"""Expiration of producers that have written nothing for ``producer.id.expiration.ms``, at Kafka's check interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from broker.clock import Clock, Domain, Periodic, Timer
from broker.replicas.partition.listeners import PartitionListener

if TYPE_CHECKING:
    from broker.config import BrokerConfig
    from broker.replicas.partition import Partition

EXPIRED_PER_TURN: Final = 500
"""Number of partitions whose idle producers are removed in one turn of the event loop, in about a millisecond."""


class IdleProducers(PartitionListener["Partition"]):
    """Removes idle producers from all open partitions, periodically."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, opened_partitions: Callable[[], Iterator[Partition]]
    ) -> None:
        self._config = config
        self._clock = clock
        self._opened = opened_partitions
        self._rounds: Periodic | None = None
        self._rest: Timer | None = None

    def start(self) -> None:
        interval_ms = self._config.producer_id_expiration_check_interval_ms
        self._rounds = Periodic(
            self._clock, interval_ms, self.expire, Domain.PRODUCERS, self._first_expiry_ms
        )

    def _first_expiry_ms(self) -> int | None:
        expiration_ms = self._config.producer_id_expiration_ms
        found = (partition.log.producers.first_expiry_ms(expiration_ms) for partition in self._opened())
        return min((each for each in found if each is not None), default=None)

    def expire(self) -> None:
        """Remove the expired producers of all open partitions."""
        self._expire(self._opened())

    def _expire(self, partitions: Iterator[Partition]) -> None:
        """Expire producers of at most ``EXPIRED_PER_TURN`` partitions in this turn of the event loop, then of the rest."""
        now_ms, expiration_ms = self._clock.now_ms(Domain.PRODUCERS), self._config.producer_id_expiration_ms
        some = list(islice(partitions, EXPIRED_PER_TURN))
        for partition in some:
            partition.log.producers.expire(now_ms, expiration_ms)
        if len(some) == EXPIRED_PER_TURN:
            more = partial(self._expire, partitions)
            self._rest = self._clock.call_later_ms(0, more, Domain.PRODUCERS)

    def abandon(self) -> None:
        for timer in (self._rounds, self._rest):
            if timer is not None:
                timer.cancel()

    async def close(self) -> None:
        self.abandon()
