"""Kafka's own scripts (`kafka-acls.sh`) for the commands of pages, made from the jars that the tests use."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path

from tests.differential.console_tools.story import TOOLS
from tests.support.java import SHORT_LIVED, java, kafka_classpath

_QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"


def write_scripts(folder: Path, names: Iterable[str]) -> Path:
    """Write a script for each tool to the folder and return the folder. Skips the test if there is no Java."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        script = folder / f"{name}.sh"
        command = [java(), *SHORT_LIVED, _QUIET, "-cp", kafka_classpath(), TOOLS[name]]
        script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        script.chmod(0o755)
    return folder
