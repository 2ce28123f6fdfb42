"""Opens the control port, and adds the fault rules of the settings, at the start. Imports little without rules."""

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
    """Open the control port of a started cluster, if the settings have one. Add their fault rules in any case.

    Raises ``ControlConfigError`` if the port cannot be opened, or if a rule names something that this broker does not have.
    """
    settings = cluster.settings
    # Watch elections from the start on, so that a timeline also has those before the first call.
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
    from lab.control.wiring import control_of  # imported for the first call or rule

    return control_of(cluster)
