"""The interpreter's switch interval while threads work beside the event loop."""

from __future__ import annotations

import sys

import pytest

from lab.sharing import SWITCH_S, loop_goes_first


def test_the_interval_is_short_until_the_last_of_them_has_ended() -> None:
    before = sys.getswitchinterval()
    first, second = loop_goes_first(), loop_goes_first()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before
