"""One client that pushes metrics to a node, and the checks of its requests.

Pure. The error codes and the order of the checks are those of Kafka's ``ClientMetricsManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from broker.client_metrics.subscriptions import Requested
from protocol.errors import NONE, ErrorCode
from protocol.slotted import slotted

COMPRESSION_TYPES: Final = (4, 3, 1, 2)
"""Ids of zstd, lz4, gzip and snappy: the compression types that clients may use for a push, the preferred one first."""
UNCOMPRESSED: Final = 0
_ASKED_ANEW_AFTER: Final = (ErrorCode.unknown_subscription_id, ErrorCode.unsupported_compression_type)


class Expiry(Protocol):
    """The pending timer that removes a client from its `ClientMetricsManager`."""

    def cancel(self) -> None: ...


@slotted
class ClientInstance:
    """A client that pushes metrics, identified by its client instance id."""

    parameters: Mapping[str, str]
    """Parameters of the client's first request, such as ``client_id``; the patterns of subscriptions match them."""
    requested: Requested
    version: int
    """Version of the subscriptions from which ``requested`` was computed."""
    is_terminating: bool = False
    last_error: ErrorCode = NONE
    last_get_ms: float | None = None
    last_push_ms: float | None = None
    expiry: Expiry | None = None

    def forget_expiry(self) -> None:
        if self.expiry is not None:
            self.expiry.cancel()
            self.expiry = None


@slotted(frozen=True)
class Push:
    """The fields of one PushTelemetry request."""

    subscription_id: int
    is_terminating: bool
    compression_type: int
    size: int
    """Number of bytes of the metrics as the client sent them, before decompression."""


def check_get(instance: ClientInstance, now_ms: float) -> ErrorCode:
    """Return NONE if the client may request its subscription now, else the error code for its response."""
    times = [each for each in (instance.last_get_ms, instance.last_push_ms) if each is not None]
    if not times or now_ms - max(times) >= instance.requested.push_interval_ms:
        instance.last_get_ms = now_ms
        return NONE
    if instance.last_error in _ASKED_ANEW_AFTER:
        return NONE
    return ErrorCode.throttling_quota_exceeded


def check_push(instance: ClientInstance, push: Push, bytes_max: int, now_ms: float) -> ErrorCode:
    """Return NONE if the client may push these metrics now, else the error code for its response."""
    if instance.is_terminating:
        return ErrorCode.invalid_request
    if not _is_due(instance, now_ms) and not push.is_terminating:
        return ErrorCode.throttling_quota_exceeded
    if push.subscription_id != instance.requested.subscription_id:
        return ErrorCode.unknown_subscription_id
    if push.compression_type != UNCOMPRESSED and push.compression_type not in COMPRESSION_TYPES:
        return ErrorCode.unsupported_compression_type
    if push.size > bytes_max:
        return ErrorCode.telemetry_too_large
    return NONE


def _is_due(instance: ClientInstance, now_ms: float) -> bool:
    """Whether the client may push now; if so, record ``now_ms`` as the time of its last push.

    The first push after GetTelemetrySubscriptions is always due, because clients send it after a random time.
    """
    get_ms, push_ms = instance.last_get_ms, instance.last_push_ms
    is_due = (
        push_ms is None
        or (get_ms is not None and get_ms > push_ms)
        or now_ms - push_ms >= instance.requested.push_interval_ms
    )
    if is_due:
        instance.last_push_ms = now_ms
    return is_due
