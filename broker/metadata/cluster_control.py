"""Registration and fencing of brokers, with the elections that follow (Kafka's ``ClusterControlManager``)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.logging import get_logger
from broker.metadata import changes as records_of_changes
from broker.metadata.changes import record_for_fencing, record_for_registration, record_for_shutdown
from broker.metadata.configs import Settings
from broker.metadata.elections import (
    records_for_balance,
    records_for_lost_broker,
    records_for_returned_broker,
    records_for_unclean_elections,
)
from broker.metadata.features import UNREGISTERED_CONTROLLERS_FROM, metadata_version
from broker.metadata.image import Image, controller_key
from broker.metadata.log import MetadataLogFailed
from broker.metadata.producer_id_control import ProducerIdControlManager
from broker.metadata.restoration import epochs_of, records_for_removal, records_for_restoring
from broker.metadata.results import ApiError
from broker.metadata.startup import registration
from broker.metadata.values import BrokerRegistration
from broker.metadata.writer import MetadataWriter
from protocol.errors import ErrorCode
from protocol.records import cluster_metadata as schema

log = get_logger()


class ClusterControlManager:
    """Makes the changes that may concern all topics. Each change waits until no other change of the metadata is pending."""

    def __init__(
        self,
        image: Image,
        settings: Settings,
        writer: MetadataWriter,
        producer_ids: ProducerIdControlManager,
    ) -> None:
        self._image = image
        self._settings = settings
        self._writer = writer
        self._producer_ids = producer_ids

    async def join(self, broker: BrokerRegistration) -> None:
        """Register a broker that starts while other brokers run.

        The broker becomes leader of its partitions that have no leader.
        """
        self._producer_ids.forget(broker.node_id)
        await self._writer.all_settled()
        registered = registration(broker, self._writer.next_offset, self._image.features)
        back = records_for_returned_broker(
            self._image, broker.node_id, self._settings.allows_unclean_election
        )
        await self._writer.commit_for_all([record_for_registration(registered), *back])

    async def restore(self, saved: Image, brokers: Sequence[BrokerRegistration]) -> None:
        """Restore topics, settings and features of ``saved`` and register ``brokers``. No broker may be running.

        Counters do not go back: topics keep their ids, no producer id is allocated twice, and epochs rise.
        """
        for broker in brokers:
            self._producer_ids.forget(broker.node_id)
        await self._writer.all_settled()
        epochs = epochs_of(self._image)
        doomed = records_for_removal(self._image, saved)
        if doomed:
            await self._writer.commit_for_all(doomed)
        offset = self._writer.next_offset
        joining = [
            record_for_registration(registration(broker, offset + number, self._image.features))
            for number, broker in enumerate(brokers)
        ]
        await self._writer.commit_for_all([*joining, *records_for_restoring(self._image, saved, epochs)])

    async def fence(self, node_id: int) -> None:
        """Fence a broker that has died, and elect new leaders for its partitions."""
        await self._writer.all_settled()
        broker = self._image.brokers[node_id]
        if not broker.fenced:
            gone = records_for_lost_broker(self._image, node_id, self._settings.allows_unclean_election)
            await self._writer.commit_for_all([record_for_fencing(broker), *gone])

    async def hand_over(self, node_id: int) -> None:
        """Begin the controlled shutdown of a broker: elect other leaders before it stops."""
        await self._writer.all_settled()
        gone = records_for_lost_broker(self._image, node_id, lambda topic: False)
        await self._writer.commit_for_all([record_for_shutdown(self._image.brokers[node_id]), *gone])

    async def balance_leaders(self) -> None:
        """Elect the preferred leader of each partition with another leader, if the preferred one is alive and in sync."""
        await self._writer.all_settled()
        records = list(records_for_balance(self._image))
        if records:
            await self._writer.commit_for_all(records)

    async def elect_uncleanly(self) -> None:
        """Elect an out-of-sync replica for each partition without a leader whose topic allows an unclean election."""
        await self._writer.all_settled()
        records = list(records_for_unclean_elections(self._image, self._settings.allows_unclean_election))
        if records:
            await self._writer.commit_for_all(records)

    async def unregister(self, node_id: int) -> None:
        """Remove the registration of a fenced broker. Raises ApiError if the broker is not registered, or not fenced."""
        await self._writer.all_settled()
        broker = self._image.brokers.get(node_id)
        if broker is None:
            raise ApiError(
                ErrorCode.broker_id_not_registered, f"Broker ID {node_id} is not currently registered"
            )
        if not broker.fenced:
            raise ApiError(ErrorCode.invalid_request, f"Broker {node_id} is alive: stop the node first.")
        gone = schema.UnregisterBrokerRecord(broker_id=node_id, broker_epoch=broker.epoch)
        await self._writer.commit_for_all([gone])

    async def unregister_controller(self, controller_id: int) -> None:
        """Remove the registration of an inactive controller. Raises ApiError as Kafka's ``ClusterControlManager`` does."""
        await self._writer.all_settled()
        if metadata_version(self._image.features) < UNREGISTERED_CONTROLLERS_FROM:
            raise ApiError(
                ErrorCode.unsupported_version,
                "The current MetadataVersion is too old to support controller unregistration.",
            )
        if controller_key(controller_id) not in self._image.kept:
            raise ApiError(
                ErrorCode.controller_id_not_registered,
                f"Controller ID {controller_id} is not currently registered.",
            )
        await self._writer.commit_for_all([schema.UnregisterControllerRecord(controller_id=controller_id)])

    async def leave(self) -> None:
        """Fence all brokers in the metadata log, because they stop cleanly.

        If Kafka opens the log directory next, it then registers these brokers without waiting for a session
        timeout.
        """
        try:
            for broker in tuple(self._image.brokers.values()):
                if not broker.fenced:
                    await self._writer.commit(records_of_changes.records_for_leaving(broker))
        except MetadataLogFailed as error:
            # No data is lost. Only a Kafka that opens this directory has to wait for a session timeout.
            log.warning("writing the shutdown of brokers to the metadata log failed", reason=str(error))
