"""The errors of calls on a cluster, and the errors that a start may meet."""

from __future__ import annotations

from typing import Final

from broker.cluster.directories import WrongNodes
from broker.metadata.features import UnsupportedFeature
from broker.metadata.files import WrongDirectory
from broker.metadata.framing import CorruptMetadata
from broker.net.ports import BindError
from storage.config_def import ConfigError
from storage.directory import DirectoryInUse
from storage.files import StorageError


class StartError(Exception):
    """The broker, or a node of it, cannot start; the text is an error message for the operator."""


class NoSuchNode(Exception):
    """The cluster has no node of this id, or it does not do what would be needed; the text says which."""


class BrokerEnding(Exception):
    """The broker ends: it takes no further call on its nodes."""


EXPECTED: Final = (
    BindError,
    ConfigError,
    CorruptMetadata,
    DirectoryInUse,
    OSError,
    StorageError,
    UnsupportedFeature,
    WrongDirectory,
    WrongNodes,
)
"""The errors that a start reports as a ``StartError``."""
