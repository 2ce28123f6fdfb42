"""The context of a listener while its files and settings change.

    current = ReloadableContext(settings)
    current.context                # for the next connection
    current.reload_if_changed()    # from time to time: new files, as cert-manager and others write them
    current.check(settings)        # before `listener.name.x.ssl.keystore.*` changes (KIP-226)
    current.change(settings)

A connection keeps the context with which it was opened.
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
    """By which a file is another one than before."""

    modified_ns: int
    size: int
    inode: int


class _Made(NamedTuple):
    """A context, and of what it was made."""

    settings: TlsSettings
    versions: dict[str, _Version | None]
    stores: Stores
    context: ssl.SSLContext


class ReloadableContext:
    """Of one listener; brokers connect to each other on an ``inter_broker`` one."""

    def __init__(self, settings: TlsSettings, *, inter_broker: bool = False) -> None:
        """`ConfigError` if there can be no context."""
        self._inter_broker = inter_broker
        self._made = _make(settings)
        self._seen = self._made.versions
        self._client: ssl.SSLContext | None = None
        if inter_broker:
            check_own_handshake(settings, self._made.stores)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection of a client."""
        return self._made.context

    @property
    def client_context(self) -> ssl.SSLContext:
        """For the next connection to another broker."""
        if self._client is None:
            self._client = client_context(self.settings, self._made.stores)
        return self._client

    @property
    def stores(self) -> Stores:
        """What the context was made of."""
        return self._made.stores

    @property
    def settings(self) -> TlsSettings:
        return self._made.settings

    def reload_if_changed(self) -> bool:
        """Whether there is a new context, because a file has changed. One that is refused is logged, once."""
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
        """`ConfigError`, in Kafka's words, if the stores of a running listener cannot become those of ``settings``."""
        self._changed(settings)

    def change(self, settings: TlsSettings) -> None:
        """Like ``check``, and then let them."""
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
    # Looked at before they are read: what changes in between is seen at the next look.
    versions = _versions(settings)
    stores = read_stores(settings)
    return _Made(settings, versions, stores, server_context(settings, stores))


def _check_each_with_the_other(one: _Made, other: _Made) -> None:
    """While settings change, some brokers have the new ones and some the old (``SslEngineValidator``)."""
    try:
        for server, client in ((one, other), (other, one)):
            handshake(
                server.context, client_context(client.settings, client.stores, identifies_endpoint=False)
            )
    except ssl.SSLError as error:
        raise TlsConfigError(reason_of(error), "javax.net.ssl.SSLHandshakeException") from None


def _versions(settings: TlsSettings) -> dict[str, _Version | None]:
    """Of the files that the settings name; None for one that is not there."""
    stores = (settings.key_store, settings.trust_store)
    paths = [store.location for store in stores if store is not None and store.location is not None]
    return {path: _version(path) for path in paths}


def _version(path: str) -> _Version | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return _Version(found.st_mtime_ns, found.st_size, found.st_ino)
