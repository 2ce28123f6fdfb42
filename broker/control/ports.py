"""What the control port speaks to. It owns none of it, and knows no more of it than this."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.faults import parse_rule

if TYPE_CHECKING:
    from broker.clock.virtual import VirtualClock
    from broker.cluster import Cluster
    from broker.cluster.snapshots import Snapshots
    from broker.faults import Faults
    from broker.trace.awaited_states import AwaitedStates
    from broker.trace.trace import Trace


@dataclass(frozen=True, slots=True)
class Control:
    """All that can be asked and moved from outside, of one broker."""

    cluster: Cluster
    clock: VirtualClock
    faults: Faults
    trace: Trace
    awaited_states: AwaitedStates
    snapshots: Snapshots

    def add_first_rules(self) -> None:
        """Add the rules that the broker was started with. ``FaultError`` if it does not have what one names."""
        for text in self.cluster.settings.faults:
            self.faults.add(parse_rule(text))
