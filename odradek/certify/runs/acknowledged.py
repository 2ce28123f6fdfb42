"""Find out which records of the input a job's share groups have accepted or rejected, from the broker's trace."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from odradek.certify import share_groups
from odradek.certify.exchanges import exchanges
from odradek.certify.runs.observation import last_closed
from odradek.remote import ENTRIES_MAX, Trace

_FINAL: Final = (share_groups.ACCEPT, share_groups.REJECT)


class Acknowledged:
    """The records of the input that are accepted or rejected in one run. ``wanted``: topic and partition, and offset.

    The lag of a share group would not do alone: it counts control records too, and librdkafka does not acknowledge a control
    record that a ShareFetch returns alone.
    """

    def __init__(self, trace: Trace, wanted: Collection[tuple[share_groups.Key, int]]) -> None:
        self._trace, self._missing = trace, set(wanted)
        self._since = dict.fromkeys((share_groups.FETCH, share_groups.ACKNOWLEDGE), 0)

    @property
    def are_all(self) -> bool:
        """Whether all records are accepted or rejected. Reads what is new in the trace."""
        for api in self._since:
            self._read(api)
        return not self._missing

    def _read(self, api: str) -> None:
        found = self._trace.entries(since=self._since[api], api=api, limit=ENTRIES_MAX)
        self._since[api] = last_closed(found, self._since[api])
        for each in share_groups.acknowledgements(exchanges(found)):
            if each.was_taken and each.type in _FINAL:
                self._missing.discard((each.key, each.offset))
