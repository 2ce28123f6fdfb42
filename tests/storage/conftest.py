"""Fixtures for logs in directories of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.config import LogConfig
from storage.log import Log
from tests.storage.logs import TOPIC_ID

MakeLog = Callable[..., Log]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "topic-with-dashes-0"


@pytest.fixture
def make_log(directory: Path) -> MakeLog:
    """A function that creates an empty log with the given settings."""

    def make(**settings: Any) -> Log:
        return Log(directory, TOPIC_ID, LogConfig(**settings))

    return make
