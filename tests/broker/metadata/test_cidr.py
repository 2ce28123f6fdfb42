"""CIDR hosts of ACLs. The expected texts and ranges are those of ``CidrUtils`` of Apache Kafka 4.4.0."""

from __future__ import annotations

import pytest

from broker.metadata.cidr import network_of, parse


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        (
            "10.1.2.3/8",
            ("10.0.0.0", "10.9.9.9", "10.255.255.255"),
            ("9.255.255.255", "11.0.0.0", "::a00:1", "", "a"),
        ),
        ("010.0.0.0/08", ("10.0.0.1",), ("8.0.0.1",)),
        ("1.2.3.4/31", ("1.2.3.4", "1.2.3.5"), ("1.2.3.3", "1.2.3.6")),
        ("1.2.3.4/32", ("1.2.3.4",), ("1.2.3.5", "::1.2.3.4")),
        ("0.0.0.0/0", ("0.0.0.1", "255.255.255.255"), ("0.0.0.0", "::1")),
        ("0.0.0.0/32", (), ("0.0.0.0",)),
        ("2001:DB8::7/32", ("2001:db8::", "2001:db8:ffff::1"), ("2001:db7::", "2001:db9::")),
        ("::/0", ("::", "::1", "0:0:0:0:0:0:0:1"), ("0.0.0.0", "127.0.0.1")),
        ("[::1]/128", ("::1",), ("::2",)),
        ("fe80::1%2/+64", ("fe80::2", "fe80::2%eth0"), ("fe81::2",)),
        ("[fe80::1%2147483647]/0064", ("fe80::2",), ()),
        ("0000001::1.02.003.4/-0", ("::", "ffff::"), ()),
        ("1:2:3:4:5:6:7::/128", ("1:2:3:4:5:6:7:0",), ()),
    ],
)
def test_a_network_has_addresses(network: str, inside: tuple[str, ...], outside: tuple[str, ...]) -> None:
    found = network_of(network)
    assert found is not None
    assert [host for host in (*inside, *outside) if found.has(host)] == list(inside)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("10.0.0/8", "Could not parse [10.0.0/8]"),
        ("/", "Could not parse [/]"),
        ("10.0.0.0/", "Could not parse [10.0.0.0/]"),
        (" 10.0.0.0/8", "Could not parse [ 10.0.0.0/8]"),
        ("10.0.0.0/8\n", "Could not parse [10.0.0.0/8\n]"),
        ("10.0.0.0/255.0.0.0", "Could not parse [10.0.0.0/255.0.0.0]"),
        ("1١.0.0.0/8", "Could not parse [1١.0.0.0/8]"),
        ("10.0.0.0/008", "Could not parse [10.0.0.0/008]"),
        ("10.0.0.0/33", "Value [33] not in range [0,32]"),
        ("1.256.999.0/33", "Value [256] not in range [0,255]"),
        ("::/129", "Could not parse [::/129] - prefix length must be between 0 and 128"),
        ("::/-1", "Could not parse [::/-1] - prefix length must be between 0 and 128"),
        ("::/", "Could not parse [::/] - invalid prefix length"),
        ("::/64/1", "Could not parse [::/64/1] - invalid prefix length"),
        ("::/2147483648", "Could not parse [::/2147483648] - invalid prefix length"),
        ("10.0.0.0/8:", "Could not parse [10.0.0.0/8:] - invalid prefix length"),
        ("10.0.0.0:/8", "Could not parse [10.0.0.0:]"),
        ("12345::/64", "Could not parse [12345::]"),
        ("1::2:3:4:5:6:7:8/64", "Could not parse [1::2:3:4:5:6:7:8]"),
        ("[::1/64", "Could not parse [[::1]"),
        ("::1%/64", "Could not parse [::1%]"),
        ("::1%-1/64", "Could not parse [::1%-1]"),
        ("::1%2147483648/64", "Could not parse [::1%2147483648]"),
        ("::ffff:10.0.0.0/104", "Could not parse [::ffff:10.0.0.0] - not an IPv6 address"),
        ("::FFFF:a00:0/104", "Could not parse [::FFFF:a00:0] - not an IPv6 address"),
    ],
)
def test_what_is_no_cidr_notation(wrong: str, text: str) -> None:
    with pytest.raises(ValueError) as refusal:
        parse(wrong)
    assert str(refusal.value) == text
    assert network_of(wrong) is None
