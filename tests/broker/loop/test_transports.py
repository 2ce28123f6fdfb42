"""Addresses of clients, formatted as Java formats them."""

import pytest

from broker.loop.transports import as_java_writes


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
