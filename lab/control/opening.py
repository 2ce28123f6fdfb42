"""What a start does for its control port and for its first rules: little, unless there are rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.control.access import (
    LOOK_TOKEN_SETTING,
    STAGE_TOKEN_SETTING,
    TLS_CERTIFICATE_SETTING,
    TLS_KEY_SETTING,
)
from lab.control.listener import ControlListener, tls_of
from lab.trace.elections import ElectionWatcher

if TYPE_CHECKING:
    from broker.cluster import Cluster
    from lab.control.ports import Control

WIRING: Final = "lab.control.wiring"


async def open_control(cluster: Cluster) -> ControlListener | None:
    """The control port of a started cluster, if one was asked for; its first rules hold from here on, with and without one.

    ``ControlConfigError`` if the port cannot be opened, or for a rule on what this broker does not have.
    """
    settings = cluster.settings
    # A timeline shows elections from before the first call, too.
    ElectionWatcher(cluster.metadata, cluster.injection.happenings, cluster.clock)
    control = _control_of(cluster) if settings.faults else None
    if settings.control is None:
        return None
    config = settings.config
    listener = ControlListener(
        lambda: control or _control_of(cluster),
        host=settings.control.host,
        port=settings.control.port,
        token=config.control_token,
        stage_token=config.get(STAGE_TOKEN_SETTING),
        look_token=config.get(LOOK_TOKEN_SETTING),
        allowed_hosts=config.control_allowed_hosts,
        tls=tls_of(config.get(TLS_CERTIFICATE_SETTING), config.get(TLS_KEY_SETTING)),
        modules=[WIRING],
    )
    await listener.start()
    return listener


def _control_of(cluster: Cluster) -> Control:
    from lab.control.wiring import control_of  # the first call or rule pays for the import

    return control_of(cluster)
