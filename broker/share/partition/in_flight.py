"""Records in flight. Pure."""

from __future__ import annotations


class InFlightState:
    """The delivery state of one record, or of the records of one batch."""
