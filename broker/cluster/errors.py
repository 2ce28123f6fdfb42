"""Errors of the methods of a cluster, and errors that a start can cause."""

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
    """The broker or a node cannot start. The text is an error message for the user."""


class NoSuchNode(Exception):
    """The cluster has no node of this id, or the node is in the wrong state for the call. The text is for the user."""


class BrokerEnding(Exception):
    """The broker is stopping, and accepts no further calls on its nodes."""


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
"""Exceptions that are reported as ``StartError`` when a cluster is started."""
