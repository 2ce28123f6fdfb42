"""Exchanges as a capture file, for Wireshark and its kin. (The signature; what it does comes next.)"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.trace.exchange import Exchange


def pcap(exchanges: Iterable[Exchange]) -> Iterator[bytes]:
    """A pcap file in pieces: what went over the wire, as Ethernet frames with TCP over IPv4 or IPv6."""
    raise NotImplementedError
