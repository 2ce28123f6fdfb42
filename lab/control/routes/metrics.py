"""The metrics, for Prometheus and what reads its format."""

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
    """Read all metrics in Prometheus' text format; the first call begins to count requests.

    docs/metrics.md has the names.
    """
    return Stream(TEXT, _whole(await control.metrics.exposition()))


async def _whole(text: bytes) -> AsyncGenerator[bytes, None]:
    yield text
