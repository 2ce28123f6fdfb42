"""The restart policies of an instance."""

from __future__ import annotations

import pytest

from odradek.certify.jobs.restarts import ALWAYS, NEVER, ON_FAILURE, BackOff, Restart


@pytest.mark.parametrize(
    ("text", "restart", "after_success", "after_failures"),
    [
        ("always", ALWAYS, True, [True, True, True]),
        ("on-failure", ON_FAILURE, False, [True, True, True]),
        ("never", NEVER, False, [False, False, False]),
        ("2", Restart(False, 2), False, [True, True, False]),
    ],
)
def test_an_end_is_followed_by_a_start(
    text: str, restart: Restart, after_success: bool, after_failures: list[bool]
) -> None:
    assert Restart.parse(text) == restart
    assert str(restart) == text
    assert restart.starts_again(0, 0) is after_success
    assert [restart.starts_again(code, starts) for starts, code in enumerate((1, -9, 3))] == after_failures


@pytest.mark.parametrize("text", ["often", "-1", "1.5", ""])
def test_a_policy_that_there_is_not_is_named(text: str) -> None:
    with pytest.raises(ValueError, match=f"'{text}': expected always, on-failure, never or a number"):
        Restart.parse(text)


def test_short_lives_are_followed_by_longer_and_longer_delays() -> None:
    back_off = BackOff()
    assert [back_off.delay_s(0.3) for _ in range(7)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert [back_off.delay_s(life_s) for life_s in (5.0, 0.1)] == [0.0, 0.1]
