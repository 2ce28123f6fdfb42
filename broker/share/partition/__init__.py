"""One share partition (KIP-932): which records are acquired, by whom and until when."""

from __future__ import annotations

from broker.share.state import Ending

from .partition import SharePartition
from .values import Acknowledged, Acquired, Change, DeadLetters, Fetched, InFlight, Limits, Refused

__all__ = [
    "Acknowledged",
    "Acquired",
    "Change",
    "DeadLetters",
    "Ending",
    "Fetched",
    "InFlight",
    "Limits",
    "Refused",
    "SharePartition",
]
