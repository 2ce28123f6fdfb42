"""Error codes for API versions that are older than KIP-588."""

from __future__ import annotations

from protocol.errors import ErrorCode


def fenced_error_for(error: ErrorCode, api_version: int, first_version: int) -> ErrorCode:
    """Replace PRODUCER_FENCED by INVALID_PRODUCER_EPOCH if the API version is older than ``first_version``."""
    if error is ErrorCode.producer_fenced and api_version < first_version:
        return ErrorCode.invalid_producer_epoch
    return error
