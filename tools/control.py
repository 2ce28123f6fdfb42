"""The control port of the cluster that a command uses, if an environment variable configures one: its clock, its trace."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from lab.explain.words import duration_text
from odradek.errors import ControlUnreachable, OdradekError
from odradek.remote import CONTROL_VARIABLE, PORT_VARIABLE, Remote, connect
from tools.client.cluster import Cluster
from tools.client.errors import ToolError
from tools.client.producing import now_ms
from tools.client.transactions import Transaction

__all__ = ["Ages", "control_of"]


def control_of(cluster: Cluster) -> Remote | None:
    """The control port of ODRADEK_CONTROL (or ODRADEK_CONTROL_PORT) if it belongs to this cluster; None for any other
    cluster.

    Raises ``ToolError`` if the control port rejects the call, for instance because the token is missing.
    """
    if not (os.environ.get(CONTROL_VARIABLE) or os.environ.get(PORT_VARIABLE)):
        return None
    if cluster.cluster_id is None:
        cluster.refresh()
    try:
        remote = connect()
        return remote if remote.cluster_id == cluster.cluster_id else None
    except ControlUnreachable:
        # The cluster itself responds, so it is not the one whose control port is unreachable.
        return None
    except OdradekError as error:
        raise ToolError(str(error)) from None


FUTURE_MS: Final = 60_000
"""A transaction that began at most this number of ms in the future has the age 0.

The clocks of two machines may differ.
"""


class Ages:
    """The ages of open transactions, by the clock of our broker (which may be advanced), else by the local clock."""

    def __init__(
        self, cluster: Cluster, known: Mapping[tuple[str, int | None], int | None] | None = None
    ) -> None:
        """``known`` maps (transactional id, start in ms) to the age in ms; None: query the control port."""
        if known is None:
            remote = control_of(cluster)
            try:
                found = list(remote.transactions) if remote is not None else []
            except OdradekError as error:
                raise ToolError(str(error)) from None
            known = {(each.transactional_id, each.start_ms): each.open_ms for each in found}
        self._open_ms = known

    def known_open_ms(self, at: Transaction) -> int | None:
        """Age of the transaction by the broker's clock, in ms; negative for a start in the future; None if unknown."""
        return self._open_ms.get((at.transactional_id, at.start_ms))

    def open_ms(self, at: Transaction) -> int:
        """Milliseconds since the start of the transaction; negative for a start in the future, 0 if none is open."""
        if at.start_ms is None:
            return 0
        if (by_broker := self.known_open_ms(at)) is not None:
            return by_broker
        by_us = now_ms() - at.start_ms
        return by_us if by_us < -FUTURE_MS else max(0, by_us)

    def future(self, at: Transaction) -> str:
        """Text such as ``4 min 58 s in the future of the coordinator's clock``; empty unless the start is in the future."""
        open_ms = self.open_ms(at)
        if open_ms >= 0:
            return ""
        clock = "this machine's" if self.known_open_ms(at) is None else "the coordinator's"
        return f"{duration_text(-open_ms)} in the future of {clock} clock"
