"""How long a client is throttled, by the arithmetic of Kafka's ``Rate``, ``QuotaUtils`` and ``TokenBucket``."""

import pytest

from broker.quotas.limits import Limit, limit_of
from broker.quotas.rates import SampledRate, TokenBucket, Window

KEY = "producer_byte_rate"


def test_a_new_window_counts_as_whole_but_for_one_sample():
    rate = SampledRate(Window())
    rate.record(500, 1_000)
    assert rate.per_second(1_000) == 50  # 500 in ten seconds, although the window has just begun
    assert rate.throttle_ms(100, 1_000) == 0
    rate.record(1_500, 1_000)
    assert rate.per_second(1_000) == 200
    assert rate.throttle_ms(100, 1_000) == 10_000


def test_an_excess_counts_for_a_whole_window():
    rate = SampledRate(Window())
    rate.record(2_000, 0)
    assert rate.throttle_ms(100, 0) == 10_000
    assert rate.throttle_ms(100, 10_999) == 8_182 + 819  # 2,000 in 10.999 s
    assert rate.throttle_ms(100, 11_000) == 0


def test_old_samples_expire():
    rate = SampledRate(Window(3, 1_000))
    for now_ms in (0, 1_000, 2_000):
        rate.record(30, now_ms)
    assert rate.per_second(2_000) == 45  # 90 in two seconds
    assert rate.per_second(2_999) == 90 * 1000 / 2_999
    assert rate.per_second(3_000) == 60 * 1000 / 2_000  # the first sample is older than the window
    assert not rate.is_idle(4_999)
    assert rate.is_idle(5_000)


def test_tokens_come_back_at_the_rate_and_a_request_may_take_more_than_there_are():
    bucket = TokenBucket(Window(11, 1_000))
    assert bucket.throttle_ms(2, 0) == 0
    bucket.take(30, 2, 0)  # a full bucket has 22 tokens
    assert bucket.throttle_ms(2, 0) == 4_000
    assert bucket.throttle_ms(2, 3_000) == 1_000
    assert bucket.throttle_ms(2, 4_000) == 0
    bucket.take(1, 2, 4_000)
    assert bucket.throttle_ms(2, 4_000) == 500
    assert not bucket.is_idle(4_001)


USER, CLIENT = ("user", "u"), ("client-id", "c")
ANY_USER, ANY_CLIENT = ("user", None), ("client-id", None)
ORDER = [
    (USER, CLIENT),
    (USER, ANY_CLIENT),
    (USER,),
    (ANY_USER, CLIENT),
    (ANY_USER, ANY_CLIENT),
    (ANY_USER,),
    (CLIENT,),
    (ANY_CLIENT,),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_most_specific_quota_applies(first):
    """Each quota wins against all less specific ones, in the order of KIP-55."""
    quotas = {entity: {KEY: float(number)} for number, entity in enumerate(ORDER) if number >= first}
    parts = tuple({"user": USER, "client-id": CLIENT}[kind] for kind, _ in ORDER[first])
    assert limit_of(quotas, KEY, "u", "c") == Limit(first, parts)
    assert limit_of(quotas, "consumer_byte_rate", "u", "c") is None


def test_other_clients_have_no_quota():
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = {
        (USER, CLIENT): {KEY: 1.0},
        (("user", "x"),): {KEY: 2.0},
    }
    assert limit_of(quotas, KEY, "u", "other") is None
    assert limit_of(quotas, KEY, "x", "c") == Limit(2.0, (("user", "x"),))
