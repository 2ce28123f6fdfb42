"""The controller's handling of changes to the settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.metadata.altering import ConfigChanges, Resource
from broker.metadata.changes import records_for_config_change, records_that_clear_elr
from broker.metadata.features import is_elr_enabled
from broker.metadata.image import Image
from broker.metadata.results import ApiError
from broker.metadata.values import TOPIC_RESOURCE
from broker.metadata.writer import MetadataWriter
from protocol.records.cluster_metadata import MetadataRecord

Decide = Callable[[Image], ConfigChanges]
"""Computes the changes of a resource from the present image. Raises ``ApiError`` if they are invalid."""


class ConfigurationControlManager:
    def __init__(self, image: Image, writer: MetadataWriter) -> None:
        self._image = image
        self._writer = writer

    async def alter(
        self, wanted: Sequence[tuple[Resource, Decide]], *, validate_only: bool = False
    ) -> list[ApiError | None]:
        """Change the settings of each resource, all in one commit. Returns for each, in order, None or the error.

        Raises ``ApiError`` if the request is too large for one commit. A resource must not be listed twice.
        """
        names = [_settled_name(resource) for resource, _ in wanted]
        await self._writer.settled(names)
        results: list[ApiError | None] = []
        records: list[MetadataRecord] = []
        for resource, decide in wanted:
            try:
                changes = decide(self._image)
            except ApiError as refusal:
                results.append(refusal)
            else:
                records += records_for_config_change(resource.kind, resource.name, changes)
                results.append(None)
        if is_elr_enabled(self._image.features):
            records += records_that_clear_elr(records)
        if records and not validate_only:
            await self._writer.commit(records, names)
        return results


def _settled_name(resource: Resource) -> str:
    """Return the name by which changes of a resource are serialised: the topic's, or a name that no topic can have."""
    return resource.name if resource.kind == TOPIC_RESOURCE else f"/{resource.kind}/{resource.name}"
