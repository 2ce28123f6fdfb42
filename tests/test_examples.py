"""The examples do what they say."""

import subprocess
import sys
from pathlib import Path

from tests.support.deadlines import HANG_S

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def test_every_number_is_squared_once(start_broker):
    broker = start_broker(topics=["numbers:4", "squares:4"])
    command = [sys.executable, str(EXAMPLES / "exactly_once.py"), broker.bootstrap]
    result = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert result.stdout == "sum of squares: 328350, expected 328350\n", result.stderr


def test_every_example_is_listed():
    listed = (EXAMPLES / "README.md").read_text("utf-8")
    for path in EXAMPLES.iterdir():
        assert path.name in listed or path.name in ("README.md", "__pycache__"), path.name
