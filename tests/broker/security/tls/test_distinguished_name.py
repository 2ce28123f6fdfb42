"""Distinguished names in the format of ``X500Principal.getName`` of Java 25."""

import pytest

from broker.security.tls import der
from broker.security.tls.distinguished_name import name_text, subject_name

UTF8, NUMERIC, PRINTABLE, T61, IA5, GENERAL, BMP = 0x0C, 0x12, 0x13, 0x14, 0x16, 0x1B, 0x1E
TYPES = {
    "CN": "550403",
    "SURNAME": "550404",
    "SERIALNUMBER": "550405",
    "C": "550406",
    "L": "550407",
    "ST": "550408",
    "STREET": "550409",
    "O": "55040a",
    "OU": "55040b",
    "UID": "0992268993f22c640101",
    "DC": "0992268993f22c640119",
    "EMAILADDRESS": "2a864886f70d010901",
}
Attribute = tuple[str, int, str | bytes]


def encoded(parts: list[list[Attribute]]) -> bytes:
    return der.encode(0x30, *(der.encode(0x31, *map(attribute, part)) for part in parts))


def attribute(given: Attribute) -> bytes:
    kind, tag, value = given
    content = value if isinstance(value, bytes) else value.encode()
    return der.encode(0x30, der.encode(0x06, bytes.fromhex(TYPES[kind])), der.encode(tag, content))


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (
            [
                [("C", PRINTABLE, "DE")],
                [("ST", UTF8, "Berlin")],
                [("L", UTF8, "Berlin")],
                [("STREET", UTF8, "Am Ufer 1")],
                [("O", UTF8, "Odradek")],
                [("OU", UTF8, "orders")],
                [("CN", UTF8, "alice")],
            ],
            "CN=alice,OU=orders,O=Odradek,STREET=Am Ufer 1,L=Berlin,ST=Berlin,C=DE",
        ),
        (
            [[("DC", IA5, "org")], [("DC", IA5, "example")], [("UID", UTF8, "alice")]],
            "UID=alice,DC=example,DC=org",
        ),
        (
            [[("O", UTF8, "A")], [("CN", UTF8, "a")], [("EMAILADDRESS", IA5, "a@b.org")]],
            "1.2.840.113549.1.9.1=#16076140622e6f7267,CN=a,O=A",
        ),
        (
            [[("SERIALNUMBER", PRINTABLE, "17")], [("SURNAME", UTF8, "Sam")]],
            "2.5.4.4=#0c0353616d,2.5.4.5=#13023137",
        ),
        ([[("CN", UTF8, 'a,b+c"d\\e<f>g;h=i#j')]], r"CN=a\,b\+c\"d\\e\<f\>g\;h\=i\#j"),
        ([[("CN", UTF8, "#a")], [("O", UTF8, "  a b  ")]], r"O=\ \ a b\ \ ,CN=\#a"),
        ([[("OU", UTF8, "\ra\r")], [("L", UTF8, "   ")]], "L=\\ \\ \\ ,OU=\\\ra\\\r"),
        ([[("CN", UTF8, "a\0b\tc\nd")]], "CN=a\\00b\tc\nd"),
        ([[("CN", UTF8, "Jürgen 漢 😀")]], "CN=Jürgen 漢 😀"),
        (
            [[("CN", T61, b"J\xfcrgen")], [("O", PRINTABLE, b"J\xfcrgen")], [("OU", IA5, b"\xe9")]],
            "OU=é,O=Jürgen,CN=Jürgen",
        ),
        ([[("CN", BMP, "Jü漢".encode("utf-16-be"))]], "CN=Jü漢"),
        ([[("CN", UTF8, b"a\xffb\xe2\x82c")]], "CN=a�b�c"),
        ([[("CN", NUMERIC, "123")], [("O", GENERAL, "general")]], "O=general,CN=#1203313233"),
        ([[("CN", UTF8, "alice"), ("OU", UTF8, "orders")], [("O", UTF8, "A")]], "O=A,CN=alice+OU=orders"),
        (
            [[("CN", UTF8, "alice"), ("EMAILADDRESS", IA5, "a@b")], [("O", UTF8, "")]],
            "O=,CN=alice+1.2.840.113549.1.9.1=#1603614062",
        ),
        ([[("CN", UTF8, "x x ,")], [("CN", UTF8, "second")]], r"CN=second,CN=x x \,"),
        ([], ""),
    ],
)
def test_a_name_is_written_as_java_writes_it(parts, name):
    assert name_text(encoded(parts)) == name


def test_the_subject_of_a_certificate(client):
    assert subject_name(client.certificate) == "CN=alice,OU=orders,O=Odradek"


def test_the_subject_of_a_certificate_of_the_first_version():
    """The subject of an X.509 v1 certificate is found, although the certificate has no version field."""
    name = encoded([[("CN", UTF8, "old")]])
    other = der.encode(0x30)
    fields = der.encode(0x30, der.encode(0x02, b"\x01"), other, other, other, name, other)
    assert subject_name(der.encode(0x30, fields, other, der.encode(0x03, b"\0"))) == "CN=old"


@pytest.mark.parametrize(
    "damaged", ["", "30", "3080", "308201", "3003020101", "0401aa", "30020500", "3005060100"]
)
def test_what_is_no_certificate_is_said_to_be_none(damaged):
    with pytest.raises(der.NotDer):
        subject_name(bytes.fromhex(damaged))


@pytest.mark.parametrize("count", [0, 127, 128, 255, 256, 70_000])
def test_a_value_of_any_length_is_read_again(count):
    (value,) = der.values(der.encode(der.OCTET_STRING, bytes(count)))
    assert (value.tag, len(value.content)) == (der.OCTET_STRING, count)
