"""docs/platforms.md agrees with pyproject.toml and the code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from odradek.commands.completion import FILES
from odradek.spark.environment import CACHE_VARIABLE

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/platforms.md").read_text("utf-8")


def test_uvloop_alone_is_left_out_on_windows() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert [each for each in project["dependencies"] if "win32" in each] == [
        "uvloop>=0.21,<1; sys_platform != 'win32'"
    ]
    assert project["requires-python"] == ">=3.11"
    assert "uvloop, which has no build for Windows" in PAGE


def test_a_broker_on_windows_ends_with_the_line_of_the_page() -> None:
    [line] = re.findall(r"^odradek: (a broker runs .+)$", PAGE, re.M)
    assert f'"odradek: {line}"' in (ROOT / "server/__main__.py").read_text("utf-8")


def test_what_a_removal_leaves_is_where_the_code_writes_it() -> None:
    for path in FILES.values():
        assert f"`~/{path}`" in PAGE
    assert f"`${CACHE_VARIABLE}`" in PAGE
