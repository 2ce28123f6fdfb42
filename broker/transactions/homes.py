"""The partitions of ``__transaction_state`` that this node leads: their coming, with the log read, and their going."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from broker.clock import Clock, Domain
from broker.hooks import Hooks, Passage
from broker.logging import get_logger
from broker.partition import Partition
from broker.topics import TRANSACTION_STATE
from broker.transactions.home import Home, client_error
from broker.transactions.loading import reading
from protocol.errors import ErrorCode
from storage.files import StorageError

if TYPE_CHECKING:
    from broker.replicas import Replicas

log_events = get_logger()


class Homes:
    """By partition. ``loaded`` hears of each home once its log has been read."""

    def __init__(
        self, replicas: Replicas, clock: Clock, hooks: Hooks, loaded: Callable[[Home], object]
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._hooks = hooks
        self._loaded = loaded
        self._homes: dict[int, Home] = {}
        self._abandoned = False

    def find(self, index: int, *, at_once: bool = False) -> Home | ErrorCode:
        """The home of a partition that is led here, or what a client is told.

        One that this node has come to lead is read now: a long log in several turns of the loop, or ``at_once``.
        """
        if self._abandoned:
            return ErrorCode.not_coordinator
        partition = self._replicas.leader(TRANSACTION_STATE, index)
        if not isinstance(partition, Partition):
            self.unload(index)
            return ErrorCode.not_coordinator
        home = self._homes.get(index)
        if home is None or home.partition is not partition or not home.is_current:
            home = self._load(partition, at_once=at_once)
        return home if home.refusal is None else home.refusal

    def follow(self, index: int, leader: int) -> None:
        """The leader of a partition, or its epoch, may be new."""
        if leader == self._replicas.node_id or index in self._homes:
            self.find(index)

    def _load(self, partition: Partition, *, at_once: bool) -> Home:
        self.unload(partition.index)
        home = Home(partition, partition.leader_epoch, partition.leader_id)
        self._homes[partition.index] = home
        passage = Passage("coordinator.load", self._replicas.node_id, TRANSACTION_STATE, partition.index)
        go_on = partial(self._read, home, reading(home), at_once=at_once)
        self._hooks.at_point(passage, go_on, partial(self._refuse, home))
        return home

    def _read(self, home: Home, steps: Iterator[None], *, at_once: bool) -> None:
        try:
            for _ in steps if home.is_current else ():
                if not at_once:
                    on = partial(self._read, home, steps, at_once=False)
                    self._clock.call_later_ms(0, on, Domain.REQUESTS)
                    return
        except StorageError as error:
            home.partition.go_offline(error)
            self._refuse(home, ErrorCode.kafka_storage_error)
            return
        if home.is_current:
            home.refusal = None
            log_events.debug("transactions loaded", partition=home.partition.index, ids=len(home.entries))
            self._loaded(home)

    @staticmethod
    def _refuse(home: Home, error: ErrorCode) -> None:
        home.refusal = client_error(error)

    def unload(self, index: int) -> None:
        """This node leads the partition no more: who waits is told by the partition, what waits does nothing."""
        home = self._homes.pop(index, None)
        if home is not None:
            home.is_closed = True

    def unload_all(self) -> None:
        for index in tuple(self._homes):
            self.unload(index)

    def abandon(self) -> None:
        """The node is gone."""
        self._abandoned = True
        self.unload_all()

    def open(self) -> list[Home]:
        """Those that are led here and have been read."""
        return [home for home in self._homes.values() if home.refusal is None and home.is_current]

    def items(self) -> list[tuple[int, Home]]:
        return list(self._homes.items())
