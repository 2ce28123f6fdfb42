"""Registration and fencing of brokers, with the elections that follow (Kafka's ``ClusterControlManager``)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.logging import get_logger
from broker.metadata.changes import (
    record_for_cordoning,
    record_for_fencing,
    record_for_registration,
    record_for_shutdown,
    record_for_unfencing,
)
from broker.metadata.configs import Settings
from broker.metadata.elections import (
    records_for_balance,
    records_for_lost_brokers,
    records_for_unclean_elections,
    records_for_unclean_shutdown,
    records_for_unfenced_brokers,
)
from broker.metadata.features import CORDONED_FROM, UNREGISTERED_CONTROLLERS_FROM, metadata_version
from broker.metadata.image import Image, controller_key
from broker.metadata.log import MetadataLogFailed
from broker.metadata.producer_id_control import ProducerIdControlManager
from broker.metadata.restoration import epochs_of, records_for_removal, records_for_restoring
from broker.metadata.results import ApiError
from broker.metadata.startup import are_clean, registration
from broker.metadata.values import BrokerRegistration
from broker.metadata.writer import MetadataWriter
from protocol.errors import ErrorCode
from protocol.records import cluster_metadata as schema
from protocol.records.cluster_metadata import MetadataRecord

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
        """Register a broker that starts while other brokers run, and unfence it.

        After an unclean shutdown it may have lost records, so its replicas are no longer eligible as leaders. The
        broker becomes the leader of each partition that has no leader and for which its replica can be elected.
        """
        node_id = broker.node_id
        self._producer_ids.forget(node_id)
        await self._writer.all_settled()
        left = records_for_lost_brokers if are_clean(self._image, [broker]) else records_for_unclean_shutdown
        changes = list(left(self._image, [node_id], self._settings))
        registered = registration(broker, self._writer.next_offset + len(changes), self._image.features)
        await self._writer.commit_for_all([*changes, record_for_registration(registered)])
        await self._writer.all_settled()
        await self._writer.commit_for_all(
            [
                record_for_unfencing(registered),
                *records_for_unfenced_brokers(self._image, [node_id], self._settings),
            ]
        )

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
            registration(broker, offset + number, self._image.features)
            for number, broker in enumerate(brokers)
        ]
        await self._writer.commit_for_all(
            [
                *map(record_for_registration, joining),
                *map(record_for_unfencing, joining),
                *records_for_restoring(self._image, saved, epochs),
            ]
        )

    async def fence(self, node_id: int) -> None:
        """Fence a broker that has died, and elect new leaders for its partitions."""
        await self._writer.all_settled()
        broker = self._image.brokers[node_id]
        if not broker.fenced:
            await self._writer.commit_for_all([*self._lost([broker]), record_for_fencing(broker)])

    async def hand_over(self, node_id: int) -> None:
        """Begin the controlled shutdown of a broker: elect other leaders before it stops.

        As in Kafka, a broker that leads no partition is fenced at once.
        """
        await self._writer.all_settled()
        broker = self._image.brokers[node_id]
        lost = self._lost([broker])
        if node_id in self._leaders():
            await self._writer.commit_for_all([record_for_shutdown(broker), *lost])
        else:
            await self._writer.commit_for_all([*lost, record_for_fencing(broker)])

    def _lost(self, brokers: Sequence[BrokerRegistration]) -> list[MetadataRecord]:
        """Return the records that remove brokers from each ISR, and elect other leaders."""
        node_ids = [broker.node_id for broker in brokers]
        return list(records_for_lost_brokers(self._image, node_ids, self._settings))

    def _leaders(self) -> set[int]:
        return {state.leader for topic in self._image.topics.values() for state in topic.partitions}

    async def cordon(self, node_id: int, *, cordoned: bool) -> None:
        """Cordon all log directories of a broker, or none, as Kafka's controller does after a heartbeat."""
        await self._writer.all_settled()
        broker = self._image.brokers.get(node_id)
        if (
            broker is not None
            and broker.is_cordoned != cordoned
            and metadata_version(self._image.features) >= CORDONED_FROM
        ):
            await self._writer.commit_for_all([record_for_cordoning(broker, cordoned=cordoned)])

    async def balance_leaders(self) -> None:
        """Elect the preferred leader of each partition with another leader, if the preferred one is alive and in sync."""
        await self._writer.all_settled()
        records = list(records_for_balance(self._image, self._settings))
        if records:
            await self._writer.commit_for_all(records)

    async def elect_uncleanly(self) -> None:
        """Elect an out-of-sync replica for each partition without a leader whose topic allows an unclean election."""
        await self._writer.all_settled()
        records = list(records_for_unclean_elections(self._image, self._settings))
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
        changes = records_for_lost_brokers(self._image, [node_id], self._settings, also_eligible=True)
        gone = schema.UnregisterBrokerRecord(broker_id=node_id, broker_epoch=broker.epoch)
        await self._writer.commit_for_all([*changes, gone])

    async def unregister_controller(self, controller_id: int) -> None:
        """Remove a controller's registration. Raises ApiError if it has none, or metadata.version is too old."""
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
        """Fence all brokers in the metadata log, because all of them stop cleanly now.

        Each replica that is in sync stays eligible as leader, and the metadata keeps the last leader of each
        partition. If Kafka opens the log directory next, it registers these brokers without waiting for a session
        timeout.
        """
        try:
            await self._writer.all_settled()
            alive = [broker for broker in self._image.brokers.values() if not broker.fenced]
            leaders = self._leaders()
            await self._writer.commit_for_all(
                [
                    *(record_for_shutdown(broker) for broker in alive if broker.node_id in leaders),
                    *self._lost(alive),
                    *map(record_for_fencing, alive),
                ]
            )
        except MetadataLogFailed as error:
            # No data is lost. Only a Kafka that opens this directory has to wait for a session timeout.
            log.warning("writing the shutdown of brokers to the metadata log failed", reason=str(error))
