"""docs/clients.md quotes the broker's log correctly, and was measured with the confluent-kafka that the tests use."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/clients.md").read_text("utf-8")


def test_the_line_about_an_old_client_has_the_words_of_the_log() -> None:
    [line] = [line for line in PAGE.splitlines() if line.startswith("[warning")]
    [hint] = re.findall(r'hint="(.+?)"', line)
    assert f'"{hint}"' in (ROOT / "broker/net/refusals.py").read_text("utf-8")


def test_the_measured_client_is_that_of_the_tests() -> None:
    """The page's measurements are of the librdkafka release that the tests use. Another release may wait longer, and must be
    measured again."""
    assert f"Measured with {version('confluent-kafka')}" in PAGE
