"""The clients of one node that push metrics, and the export of the metrics (Kafka's ``ClientMetricsManager``)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from broker.client_metrics.instance import ClientInstance, Push, check_get, check_push
from broker.client_metrics.subscriptions import Requested, Subscription, requested_of, subscription_of
from broker.clock import Clock, Domain
from broker.config.patterns import full_match
from broker.logging import get_logger
from broker.metadata.image import Image
from broker.metadata.listeners import MetadataListener
from broker.metadata.values import METRICS_RESOURCE
from protocol.errors import NONE, ErrorCode
from protocol.uuids import uuid_text

INSTANCES_MAX: Final = 16_384
"""Maximum number of clients of a node. If there are more, the client with the oldest request is removed, and has to
request its subscription again."""
EXPIRY_MS_MIN: Final = 60_000
EXPIRY_INTERVALS: Final = 3
"""Number of push intervals without a request after which a client is removed."""
RESERVED_IDS: Final = (UUID(int=0), UUID(int=1))

log = get_logger()


class Exporter(Protocol):
    """The destination of the metrics that clients push, for example the broker's log."""

    def export(
        self, instance_id: UUID, parameters: Mapping[str, str], push: Push, metrics: bytes, bytes_max: int
    ) -> None:
        """Export ``metrics``, OTLP's ``MetricsData`` with the compression of ``push``. Raises if they cannot be decoded."""
        ...


class ClientMetricsManager(MetadataListener):
    """Handles GetTelemetrySubscriptions and PushTelemetry for the clients of one node.

    ``new_id`` creates client instance ids. Without an ``exporter`` the metrics are dropped, as on Kafka.
    """

    def __init__(
        self,
        image: Image,
        clock: Clock,
        new_id: Callable[[], UUID],
        bytes_max: int,
        exporter: Exporter | None,
    ) -> None:
        self._image = image
        self._clock = clock
        self._new_id = new_id
        self.bytes_max = bytes_max
        """Maximum size of the metrics of one push, before and after decompression."""
        self._exporter = exporter
        self._instances: OrderedDict[UUID, ClientInstance] = OrderedDict()
        self._of_connection: dict[int, UUID] = {}
        self._version = 0
        self._known: tuple[int, list[Subscription]] = (-1, [])

    @property
    def is_announced(self) -> bool:
        """Whether ApiVersions lists GetTelemetrySubscriptions and PushTelemetry: only if there is an exporter."""
        return self._exporter is not None

    def on_config_changed(self, resource_type: int, resource_name: str) -> None:
        if resource_type == METRICS_RESOURCE:
            self._version += 1

    def on_disconnected(self, connection_id: int) -> None:
        """Remove the client of a closed connection, if that client has pushed metrics or requested a subscription."""
        instance_id = self._of_connection.pop(connection_id, None)
        if instance_id is not None:
            self._forget(instance_id)

    def get(
        self, instance_id: UUID | None, connection_id: int, parameters: Mapping[str, str]
    ) -> tuple[ErrorCode, UUID, Requested]:
        """Return (error, client instance id, requested metrics). A new id is created if ``instance_id`` is None."""
        instance_id = instance_id or self._new_id()
        instance = self._instance(instance_id, connection_id, parameters)
        error = check_get(instance, self._clock.now_ms(Domain.REQUESTS))
        if error == NONE:
            instance.last_error = error
        return error, instance_id, instance.requested

    def push(
        self,
        instance_id: UUID | None,
        connection_id: int,
        parameters: Mapping[str, str],
        push: Push,
        metrics: bytes,
    ) -> ErrorCode:
        """Check a push and export its metrics. Returns NONE, or the error code for the response."""
        if instance_id is None or instance_id in RESERVED_IDS:
            return ErrorCode.invalid_request
        instance = self._instance(instance_id, connection_id, parameters)
        error = check_push(instance, push, self.bytes_max, self._clock.now_ms(Domain.REQUESTS))
        instance.is_terminating = push.is_terminating
        if error == NONE and metrics and self._exporter is not None:
            error = self._export(self._exporter, instance_id, instance.parameters, push, metrics)
        instance.last_error = error
        return error

    def _export(
        self,
        exporter: Exporter,
        instance_id: UUID,
        parameters: Mapping[str, str],
        push: Push,
        metrics: bytes,
    ) -> ErrorCode:
        try:
            exporter.export(instance_id, parameters, push, metrics, self.bytes_max)
        except Exception as error:  # the client may send any bytes
            log.error(
                "client metrics not decoded", client_instance_id=uuid_text(instance_id), reason=str(error)
            )
            return ErrorCode.invalid_record
        return NONE

    def _instance(
        self, instance_id: UUID, connection_id: int, parameters: Mapping[str, str]
    ) -> ClientInstance:
        instance = self._instances.get(instance_id)
        if instance is None or instance.version != self._version:
            if instance is not None:
                instance.forget_expiry()
                parameters = instance.parameters
            else:
                parameters = {**parameters, "client_instance_id": uuid_text(instance_id)}
            requested = requested_of(instance_id, parameters, self._subscriptions())
            instance = ClientInstance(parameters, requested, self._version)
            self._instances[instance_id] = instance
            self._of_connection[connection_id] = instance_id
            if len(self._instances) > INSTANCES_MAX:
                self._forget(next(iter(self._instances)))
        self._instances.move_to_end(instance_id)
        self._set_expiry(instance_id, instance, connection_id)
        return instance

    def _set_expiry(self, instance_id: UUID, instance: ClientInstance, connection_id: int) -> None:
        delay_ms = max(EXPIRY_MS_MIN, EXPIRY_INTERVALS * instance.requested.push_interval_ms)
        instance.forget_expiry()
        expire = partial(self._expire, instance_id, connection_id)
        instance.expiry = self._clock.call_later_ms(delay_ms, expire, Domain.CONNECTIONS)

    def _expire(self, instance_id: UUID, connection_id: int) -> None:
        self._of_connection.pop(connection_id, None)
        self._forget(instance_id)

    def _forget(self, instance_id: UUID) -> None:
        instance = self._instances.pop(instance_id, None)
        if instance is not None:
            instance.forget_expiry()

    def _subscriptions(self) -> list[Subscription]:
        if self._known[0] != self._version:
            made = [
                subscription_of(configs, full_match)
                for (kind, _), configs in self._image.configs.items()
                if kind == METRICS_RESOURCE and configs
            ]
            self._known = (self._version, made)
        return self._known[1]
