"""Helper functions for asyncio's transports."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from struct import Struct
from typing import Final

LINGER_NOT: Final = Struct("ii").pack(1, 0)


def reset_transport(transport: asyncio.Transport) -> None:
    """Close the connection so that the peer sees a TCP reset, as after the death of this process."""
    raw = transport.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    transport.abort()


def addresses(transport: asyncio.BaseTransport) -> tuple[tuple[str, int], tuple[str, int]]:
    """((host, port) of the peer, (host, port) of the local socket); ("", 0) if unknown."""
    found = (transport.get_extra_info(name) for name in ("peername", "sockname"))
    peer, own = ((str(each[0]), int(each[1])) if each else ("", 0) for each in found)
    return peer, own


def as_java_writes(host: str) -> str:
    """The address in the form of ``InetAddress.getHostAddress``, which group metadata and ACLs use.

    >>> as_java_writes("::1"), as_java_writes("::ffff:10.0.0.7"), as_java_writes("10.0.0.7")
    ('0:0:0:0:0:0:0:1', '10.0.0.7', '10.0.0.7')
    """
    if ":" not in host:
        return host
    import ipaddress  # imported here, since few clients use IPv6

    address, _, scope = host.partition("%")
    parsed = ipaddress.IPv6Address(address)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    groups = (f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
    return ":".join(groups) + (f"%{scope}" if scope else "")


def never_pauses(version: tuple[int, int, int]) -> bool:
    """Whether ``writelines`` of asyncio's socket transport never calls ``pause_writing`` in a Python version.

    CVE-2024-12254. ``write`` does call it, in every version, and uvloop's transports do.
    """
    return (3, 12) <= version < (3, 12, 9) or (3, 13) <= version < (3, 13, 2)


WRITELINES_NEVER_PAUSES: Final = never_pauses(sys.version_info[:3])
"""Chunks are then joined and passed to ``write``, which copies them once more."""
