"""How versions that came before a code of KIP-588 say it."""

from __future__ import annotations

from protocol.errors import ErrorCode


def fenced_error_for(error: ErrorCode, api_version: int, first_version: int) -> ErrorCode:
    """PRODUCER_FENCED, or INVALID_PRODUCER_EPOCH where the version is older than ``first_version``."""
    if error is ErrorCode.producer_fenced and api_version < first_version:
        return ErrorCode.invalid_producer_epoch
    return error
