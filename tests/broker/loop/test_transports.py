"""Addresses of clients, formatted as Java formats them; the Pythons whose ``writelines`` never pauses (CVE-2024-12254)."""

import asyncio
import inspect
import sys

import pytest

from broker.loop.transports import WRITELINES_NEVER_PAUSES, as_java_writes, never_pauses


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:192.168.1.5", "192.168.1.5"),
        ("2001:db8::a0b", "2001:db8:0:0:0:0:0:a0b"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
        ("", ""),
    ],
)
def test_an_address_is_written_as_java_does(host: str, text: str) -> None:
    assert as_java_writes(host) == text


@pytest.mark.parametrize("version", [(3, 12, 0), (3, 12, 8), (3, 13, 0), (3, 13, 1)])
def test_versions_that_never_pause(version: tuple[int, int, int]) -> None:
    assert never_pauses(version)


@pytest.mark.parametrize("version", [(3, 11, 7), (3, 12, 9), (3, 13, 2), (3, 14, 0)])
def test_versions_that_pause(version: tuple[int, int, int]) -> None:
    assert not never_pauses(version)


def test_the_running_python_is_judged_by_what_its_transport_does() -> None:
    transport = asyncio.selector_events._SelectorSocketTransport  # type: ignore[attr-defined]
    if sys.version_info >= (3, 12):
        pauses = "_maybe_pause_protocol" in inspect.getsource(transport.writelines)
    else:
        pauses = "writelines" not in vars(transport)  # it joins the chunks and calls write
    assert pauses is not WRITELINES_NEVER_PAUSES
