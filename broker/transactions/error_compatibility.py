"""Error codes for API versions that are older than KIP-588."""

from __future__ import annotations

from protocol.errors import ErrorCode


def fenced_error_for(error: ErrorCode, api_version: int, first_version: int) -> ErrorCode:
    """Return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED before API version ``first_version``; other errors are unchanged."""
    if error is ErrorCode.producer_fenced and api_version < first_version:
        return ErrorCode.invalid_producer_epoch
    return error
