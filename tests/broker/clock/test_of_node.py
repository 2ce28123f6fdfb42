"""The clock of one node that is ahead of the cluster's clock or behind it: which timestamps and timers the skew changes."""

from __future__ import annotations

import pytest

from broker.clock import MONOTONIC, Domain, Periodic
from broker.clock.of_node import NodeClock
from broker.clock.virtual import VirtualClock
from tests.support.clock import NOW_MS, FakeClock

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
SKEWED = [domain for domain in Domain if domain not in MONOTONIC]


@pytest.fixture
def real() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cluster(real: FakeClock) -> VirtualClock:
    return VirtualClock(real)


@pytest.mark.parametrize("skew_ms", [5 * MINUTE_MS, -30_000])
def test_a_skew_moves_written_timestamps_and_the_time_they_are_compared_with(
    cluster: VirtualClock, skew_ms: int
) -> None:
    node = NodeClock(cluster, skew_ms=skew_ms)
    assert node.now_ms() == NOW_MS + skew_ms
    assert {domain: node.now_ms(domain) - NOW_MS for domain in SKEWED} == dict.fromkeys(SKEWED, skew_ms)
    assert {node.now_ms(domain) for domain in MONOTONIC} == {NOW_MS}
    assert node.cluster_ms() == cluster.now_ms() == NOW_MS


def test_a_removed_skew_has_no_effect_any_more(cluster: VirtualClock) -> None:
    node = NodeClock(cluster, skew_ms=MINUTE_MS)
    node.skew(0)
    assert node.now_ms() == node.now_ms(Domain.RETENTION) == NOW_MS
    assert node.now_for(NOW_MS - 7, Domain.TRANSACTIONS) == NOW_MS
    assert node.now_ms == cluster.now_ms, "without a skew, reading the time must cost nothing more"


@pytest.mark.parametrize("skew_ms", [HOUR_MS, -HOUR_MS])
def test_timers_are_not_affected(cluster: VirtualClock, real: FakeClock, skew_ms: int) -> None:
    node, fired = NodeClock(cluster, skew_ms=skew_ms), []
    node.call_later_ms(100, lambda: fired.append(real.now - NOW_MS), Domain.GROUPS)
    node.skew(-skew_ms)
    real.advance(HOUR_MS)
    assert fired == [100]


def test_what_the_node_wrote_itself_ages_as_everywhere(cluster: VirtualClock, real: FakeClock) -> None:
    node = NodeClock(cluster, skew_ms=HOUR_MS)
    written_ms = node.now_ms()
    real.advance(10_000)
    assert node.now_for(written_ms, Domain.TRANSACTIONS) - written_ms == 10_000
    assert cluster.now_for(written_ms, Domain.TRANSACTIONS) - written_ms == 10_000 - HOUR_MS
    other_ms = cluster.now_ms()
    assert node.now_for(other_ms, Domain.TRANSACTIONS) - other_ms == HOUR_MS


async def test_what_the_node_wrote_before_an_advance_of_other_domains_keeps_its_age(
    cluster: VirtualClock, real: FakeClock
) -> None:
    node = NodeClock(cluster, skew_ms=2 * MINUTE_MS)
    written_ms = node.now_ms()
    real.advance(1_000)
    await cluster.advance(HOUR_MS, {Domain.RETENTION})
    assert node.now_for(written_ms, Domain.TRANSACTIONS) - written_ms == 1_000
    await cluster.advance(MINUTE_MS, {Domain.TRANSACTIONS})
    assert node.now_for(written_ms, Domain.TRANSACTIONS) - written_ms == 1_000 + MINUTE_MS


@pytest.mark.parametrize("skew_ms", [2 * HOUR_MS, 0, -2 * HOUR_MS])
async def test_an_advance_passes_the_rounds_over_in_which_the_node_has_nothing_to_do(
    cluster: VirtualClock, skew_ms: int
) -> None:
    """An advance skips the rounds of a periodic timer in which the node has no work. If the node's clock is ahead, its work
    is due earlier by the cluster's clock."""
    node, rounds = NodeClock(cluster, skew_ms=skew_ms), []
    due_ms = NOW_MS + 3 * HOUR_MS
    Periodic(
        node,
        MINUTE_MS,
        lambda: rounds.append(cluster.now_ms(Domain.RETENTION) - NOW_MS),
        Domain.RETENTION,
        lambda: due_ms,
    )
    await cluster.advance(3 * HOUR_MS - skew_ms + MINUTE_MS, {Domain.RETENTION})
    assert rounds == [3 * HOUR_MS - skew_ms, 3 * HOUR_MS - skew_ms + MINUTE_MS]
