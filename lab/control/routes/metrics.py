"""The metrics, for Prometheus and compatible collectors."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Final

from lab.control.operations import Stream, operation
from lab.control.ports import Looking

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
_EXAMPLE: Final = """# HELP odradek_transactions Transactional ids, by the state of their transaction.
# TYPE odradek_transactions gauge
odradek_transactions{state="Ongoing"} 1.0
"""


@operation("GET", "/metrics", answer_example=_EXAMPLE, content_type=TEXT, may_wait=True)
async def metrics(control: Looking) -> Stream:
    """Get all metrics in Prometheus' text format. The first call starts the counting of requests.

    docs/metrics.md lists the metrics.
    """
    return Stream(TEXT, _whole(await control.metrics.exposition()))


async def _whole(text: bytes) -> AsyncGenerator[bytes, None]:
    yield text
