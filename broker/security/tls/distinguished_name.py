"""A certificate's distinguished name in Java's RFC 2253 form (``X500Principal.getName``), used as the principal's name.

    subject_name(certificate)  # "CN=alice,OU=orders,O=Odradek"

Pure. Certificates are in DER.
"""

from __future__ import annotations

from typing import Final

from broker.security.tls import der

# Attribute types with a keyword in RFC 2253. For any other, Java writes the numeric type, and the value as hexadecimal
# bytes.
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
# String types that Java writes as text, with their encoding. Any other value is written as hexadecimal bytes.
_STRINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "latin-1",  # PrintableString
    0x14: "latin-1",  # T61String
    0x16: "latin-1",  # IA5String
    0x1B: "latin-1",  # GeneralString
    0x1E: "utf-16-be",  # BMPString
}
# RFC 2253 requires some of these escapes; the others are Java's.
_ESCAPES: Final = str.maketrans({**{each: f"\\{each}" for each in ',=+<>#;"\\'}, "\0": "\\00"})
_VERSION: Final = 0xA0
_SPACES: Final = " \r"


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate as text."""
    return name_text(subject(certificate))


def subject(certificate: bytes) -> bytes:
    """The DER of the subject of a certificate."""
    to_be_signed = der.members(certificate, 3)[0]
    fields = der.members(to_be_signed.encoded, 6)
    # serial number, signature, issuer, validity, subject; before them an optional version.
    return fields[5 if fields[0].tag == _VERSION else 4].encoded


def name_text(name: bytes) -> str:
    """A DER-encoded name as text, with the last part first.

    >>> name_text(bytes.fromhex("301c310a300806035504030c0161310e300c060355040a0c05622c206320"))
    'O=b\\\\, c\\\\ ,CN=a'
    """
    parts = der.members(name)
    return ",".join("+".join(map(_attribute, der.values(part.content))) for part in reversed(parts))


def _attribute(attribute: der.Value) -> str:
    kind, value = der.members(attribute.encoded, 2)[:2]
    identifier = der.dotted(kind.content)
    keyword, charset = _KEYWORDS.get(identifier), _STRINGS.get(value.tag)
    if keyword is None or charset is None:
        return f"{keyword or identifier}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode(charset, 'replace'))}"


def _escaped(text: str) -> str:
    text = text.translate(_ESCAPES)
    start, end = len(text) - len(text.lstrip(_SPACES)), len(text.rstrip(_SPACES))
    return _all_escaped(text[:start]) + text[start:end] + _all_escaped(text[max(start, end) :])


def _all_escaped(text: str) -> str:
    return "".join(f"\\{each}" for each in text)
