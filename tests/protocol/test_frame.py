"""Request and response headers: the header version of each API version, and random bytes as headers."""

import io

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map
from kio.schema.request_header.v1.header import RequestHeader as HeaderV1
from kio.schema.request_header.v2.header import RequestHeader as HeaderV2
from kio.serial import entity_writer

from protocol.decode import MalformedRequest
from protocol.frame import (
    FIRST_FLEXIBLE,
    BadSize,
    RequestHeader,
    correlation_id_of,
    is_flexible,
    parse_request_header,
    request_header,
    response_body_offset,
    response_header,
    whole_frames,
)
from protocol.generators import kio_schemas
from protocol.messages.index import APIS


@pytest.mark.parametrize("key", api_key_map)
def test_the_table_of_flexible_versions_agrees_with_kio(key):
    for version in kio_schemas.versions(key):
        request, response = load_request_schema(key, version), load_response_schema(key, version)
        assert is_flexible(key, version) == request.__flexible__ == response.__flexible__
        assert (request.__header_schema__ is HeaderV2) == is_flexible(key, version)
        expected_size = 4 + response.__header_schema__.__flexible__
        assert len(response_header(key, version, 1)) == expected_size


def test_every_api_is_in_the_table():
    assert FIRST_FLEXIBLE.keys() >= api_key_map.keys()
    for key, (_, first, last, first_flexible) in APIS.items():
        flexible = [version for version in range(first, last + 1) if is_flexible(key, version)]
        assert flexible == [*range(last + 1 if first_flexible is None else first_flexible, last + 1)]


@pytest.mark.parametrize("client_id", [None, "", "producer-1", "é" * 1000])
@pytest.mark.parametrize(("version", "header"), [(8, HeaderV1), (9, HeaderV2)])
def test_a_request_header_is_written_as_kio_writes_it_and_read_back(client_id, version, header):
    buffer = io.BytesIO()
    wire = header(request_api_key=0, request_api_version=version, correlation_id=-7, client_id=client_id)
    entity_writer(header)(buffer, wire)
    data = buffer.getvalue()
    assert request_header(0, version, -7, client_id) == data
    expected = RequestHeader(0, version, -7, client_id, len(data))
    assert parse_request_header(data + b"body") == expected
    assert parse_request_header(memoryview(data + b"body")) == expected


def test_tags_of_a_header_are_skipped():
    plain = request_header(0, 9, 1, "c")
    tagged = plain[:-1] + b"\x02\x00\x03abc\x81\x01\x01x"
    assert parse_request_header(tagged + b"body").body_offset == len(tagged)


def test_an_unknown_version_has_a_header_all_the_same():
    header = parse_request_header(request_header(18, 99, 5, "c"))
    assert (header.api_version, header.correlation_id, header.client_id) == (99, 5, "c")


def test_an_unknown_api_is_malformed():
    with pytest.raises(MalformedRequest, match="no API has the key 999"):
        parse_request_header(b"\x03\xe7" + bytes(20))


def test_a_client_id_that_is_not_utf_8_is_read_with_replacement():
    data = request_header(0, 9, 1, "ab").replace(b"ab", b"a\xff")
    assert parse_request_header(data).client_id == "a�"


def test_a_header_cut_anywhere_is_malformed():
    plain = request_header(0, 9, 1, "client")
    data = plain[:-1] + b"\x01\x05\x03abc"
    for cut in range(len(data)):
        with pytest.raises(MalformedRequest):
            parse_request_header(data[:cut])


def test_api_versions_is_always_answered_with_the_plain_header():
    for version in range(6):
        assert response_header(18, version, 258) == b"\0\0\x01\x02"
        assert response_body_offset(18, version, b"\0\0\x01\x02") == 4


def test_the_body_of_a_response_starts_after_its_header():
    assert response_body_offset(0, 8, response_header(0, 8, 1)) == 4
    assert response_body_offset(0, 9, response_header(0, 9, 1)) == 5
    assert response_body_offset(0, 9, b"\0\0\0\x01" + b"\x01\x00\x02ab" + b"body") == 9


def test_frames_are_taken_from_what_has_arrived_as_they_become_whole():
    frames, arrived = [b"\0\0\0\x01one", b"\0\0\0\x02", b"\0\0\0\x03three"], bytearray()
    taken: list[bytes] = []
    for byte in b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames):
        arrived.append(byte)
        taken += whole_frames(arrived, 9)
    assert (taken, arrived) == (frames, bytearray())
    assert [correlation_id_of(frame) for frame in taken] == [1, 2, 3]


@pytest.mark.parametrize("size", [-1, 0, 3, 10, int.from_bytes(b"HTTP", "big")])
def test_a_size_that_no_response_has_is_refused_before_its_bytes_have_arrived(size):
    arrived = bytearray(b"\0\0\0\x04\0\0\0\x01" + size.to_bytes(4, "big", signed=True))
    frames = whole_frames(arrived, 9)
    assert next(frames) == b"\0\0\0\x01"
    with pytest.raises(BadSize) as raised:
        next(frames)
    assert raised.value.size == size
