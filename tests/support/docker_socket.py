"""The socket of a real Docker engine: DOCKER_HOST, or Docker's default path."""

from __future__ import annotations

import os
import shutil
import socket
from typing import Final

DEFAULT: Final = "unix:///var/run/docker.sock"


def engine() -> str | None:
    """Address of the engine. None if there is no engine, or no command `docker`."""
    if shutil.which("docker") is None:
        return None
    where = os.environ.get("DOCKER_HOST", DEFAULT)
    if not where.startswith("unix://"):
        return where
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(where.removeprefix("unix://"))
        except OSError:
            return None
    return where
