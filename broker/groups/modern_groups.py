"""Carries out decisions about groups that change only by their records: consumer groups and share groups.

Each request and each timer is processed in the same steps (`ModernGroups.carry_out`): decide, append, start and cancel
timers, respond once the records are committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from broker.groups.consumer.context import Decision, Refused
from broker.groups.shard import GroupShard, group_of
from broker.logging import get_logger
from protocol.errors import NONE, ErrorCode

C = TypeVar("C")
R = TypeVar("R")
log = get_logger()


class ModernGroups(Generic[C]):
    """The groups of one type of one node. ``C``: the input of the decisions about them."""

    def context(self, group_id: str) -> C:
        raise NotImplementedError

    def carry_out_rest(self, shard: GroupShard, group_id: str, decision: Decision[Any]) -> None:
        """Carry out a decision whose records are appended."""
        raise NotImplementedError

    async def carry_out_request(
        self,
        shard: GroupShard,
        group_id: str,
        decide: Callable[[C], Decision[R]],
    ) -> R:
        """Call `carry_out` for a request, and log a refusal."""
        try:
            return await self.carry_out(shard, group_id, decide)
        except Refused as refusal:
            # Kafka also logs why it does not upgrade a group, since librdkafka shows the error without its message.
            note = log.info if refusal.error is ErrorCode.group_id_not_found else log.debug
            note("group request refused", group=group_id, error=refusal.error.name, reason=refusal.message)
            raise

    async def carry_out(
        self,
        shard: GroupShard,
        group_id: str,
        decide: Callable[[C], Decision[R]],
    ) -> R:
        """Call ``decide``, append the records, set the timers. Returns the response after the commit. Raises `Refused`.

        If a fault rule delays the append, ``decide`` is called again after the release, because the group may have changed
        since the first call.
        """
        decision = decide(self.context(group_id))
        if decision.records and shard.is_intercepted:
            _check(await shard.may_append(group_of(decision.records[0].key)))
            decision = decide(self.context(group_id))
        end_offset = shard.partition.log_end_offset
        with shard.held_commits:
            if decision.records:
                # Members that wait in a classic group which is upgraded must join again.
                deleted = ErrorCode.rebalance_in_progress
                error, end_offset = shard.append_records(decision.records, deleted=deleted)
                _check(shard.client_error(error))
            self.carry_out_rest(shard, group_id, decision)
        _check(await shard.committed(end_offset))
        return decision.response

    async def carry_out_timer(
        self, shard: GroupShard, group_id: str, decide: Callable[[C], Decision[None]]
    ) -> None:
        """Call `carry_out` for an event that no request waits for, and ignore the result."""
        try:
            await self.carry_out(shard, group_id, decide)
        except Refused as refusal:
            log.debug(
                "group not changed by timer", group=group_id, error=refusal.error.name, reason=refusal.message
            )


def _check(error: ErrorCode) -> None:
    """Raise `Refused` without a message if ``error`` is not NONE."""
    if error is not NONE:
        raise Refused(error)
