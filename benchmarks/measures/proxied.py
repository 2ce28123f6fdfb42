"""What the way through the proxy costs: the same requests to a broker, directly and through `odradek proxy`."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.client import (
    Client,
    check_produced,
    create_topic,
    in_turn,
    large_batch,
    produce_frame,
    small_batch,
)
from benchmarks.figures import WARM_UP_S, Figure, Run
from benchmarks.process import cost_of
from benchmarks.targets import HOST, ROOT, START_TIMEOUT_S, STOP_TIMEOUT_S, Running, TargetFailed
from odradek._server import command

TOPIC: Final = "proxied"
