"""The SSL context of a listener, which is replaced when its files or settings change.

    current = ReloadableContext(settings)
    current.context                # for the next connection
    current.reload_if_changed()    # periodically: finds new files, for example from cert-manager
    current.check(settings)        # before a change of `listener.name.x.ssl.keystore.*` (KIP-226)
    current.change(settings)

An open connection keeps its context.
"""

from __future__ import annotations

import os
import ssl

from broker.logging import get_logger
from broker.security.tls.compatibility import check_names, check_stores
from broker.security.tls.contexts import (
    check_own_handshake,
    client_context,
    handshake,
    reason_of,
    server_context,
)
from broker.security.tls.settings import CONFIG_EXCEPTION, TlsConfigError, TlsSettings
from broker.security.tls.stores import Stores, read_stores
from protocol.named_tuple import NamedTuple
from storage.config_def import ConfigError

_log = get_logger()
_FAILED = "Validation of dynamic config update of SSLFactory failed"


class _Version(NamedTuple):
    """Attributes of a file that change when it is replaced."""

    modified_ns: int
    size: int
    inode: int


class _Made(NamedTuple):
    """A context, with the settings, file versions and stores from which it was made."""

    settings: TlsSettings
    versions: dict[str, _Version | None]
    stores: Stores
    context: ssl.SSLContext


class ReloadableContext:
    """The context of one listener. With ``inter_broker``, brokers also connect to each other on the listener."""

    def __init__(self, settings: TlsSettings, *, inter_broker: bool = False) -> None:
        """Raises `ConfigError` if no context can be made from the settings."""
        self._inter_broker = inter_broker
        self._made = _make(settings)
        self._seen = self._made.versions
        self._client: ssl.SSLContext | None = None
        if inter_broker:
            check_own_handshake(settings, self._made.stores)

    @property
    def context(self) -> ssl.SSLContext:
        """Context for the next connection of a client."""
        return self._made.context

    @property
    def client_context(self) -> ssl.SSLContext:
        """Context for the next connection to another broker."""
        if self._client is None:
            self._client = client_context(self.settings, self._made.stores)
        return self._client

    @property
    def stores(self) -> Stores:
        """The key store and trust store of the current context."""
        return self._made.stores

    @property
    def settings(self) -> TlsSettings:
        return self._made.settings

    def reload_if_changed(self) -> bool:
        """Make a new context if a file has changed. Returns whether there is a new one. A failure is logged once."""
        seen = _versions(self.settings)
        if seen == self._seen:
            return False
        self._seen = seen
        try:
            self._take(self._compatible(self.settings))
        except ConfigError as error:
            _log.warning(
                "key store or trust store not reloaded", listener=self.settings.listener, reason=str(error)
            )
            return False
        _log.info("key store and trust store reloaded", listener=self.settings.listener)
        return True

    def check(self, settings: TlsSettings) -> None:
        """Raise `ConfigError`, with Kafka's message, if the stores of a running listener cannot change to ``settings``."""
        self._changed(settings)

    def change(self, settings: TlsSettings) -> None:
        """Check the settings as `check` does, and apply them."""
        self._take(self._changed(settings))

    def _changed(self, settings: TlsSettings) -> _Made:
        settings = self.settings.with_stores(settings)
        if settings == self.settings and _versions(settings) == self._made.versions:
            return self._made
        try:
            return self._compatible(settings)
        except ConfigError as error:
            java_class = error.java_class if isinstance(error, TlsConfigError) else CONFIG_EXCEPTION
            raise ConfigError(f"{_FAILED}: {java_class}: {error}") from None

    def _compatible(self, settings: TlsSettings) -> _Made:
        before = self._made
        check_stores(before.settings, settings)
        after = _make(settings)
        check_names(settings, before.stores.keys or (), after.stores.keys or ())
        if self._inter_broker:
            _check_each_with_the_other(before, after)
        return after

    def _take(self, made: _Made) -> None:
        if made is not self._made:
            self._made, self._seen, self._client = made, made.versions, None


def _make(settings: TlsSettings) -> _Made:
    # The versions are read before the files, so that a change in between is detected the next time.
    versions = _versions(settings)
    stores = read_stores(settings)
    return _Made(settings, versions, stores, server_context(settings, stores))


def _check_each_with_the_other(one: _Made, other: _Made) -> None:
    """Raise `TlsConfigError` unless a client of each context can connect to a server of the other context.

    As in Kafka's ``SslEngineValidator``: while settings change, some brokers have the old context, others the new
    one.
    """
    try:
        for server, client in ((one, other), (other, one)):
            handshake(
                server.context, client_context(client.settings, client.stores, identifies_endpoint=False)
            )
    except ssl.SSLError as error:
        raise TlsConfigError(reason_of(error), "javax.net.ssl.SSLHandshakeException") from None


def _versions(settings: TlsSettings) -> dict[str, _Version | None]:
    """Versions of the files that the settings name; None for a missing file."""
    stores = (settings.key_store, settings.trust_store)
    paths = [store.location for store in stores if store is not None and store.location is not None]
    return {path: _version(path) for path in paths}


def _version(path: str) -> _Version | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Version(found.st_mtime_ns, found.st_size, found.st_ino)
