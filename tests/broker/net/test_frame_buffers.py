"""Buffers for large frames are reused, but never while a reader still uses their content."""

from broker.net.frame_buffers import (
    FRAME_BUFFER_START_BYTES,
    LARGEST_SMALL_BYTES,
    SPARES_MAX,
    FrameBuffers,
    PartialFrame,
)

BIG = LARGEST_SMALL_BYTES + 1


def test_a_served_buffer_is_taken_again():
    buffers = FrameBuffers()
    first = buffers.take(BIG)
    buffers.give_back(first)
    assert buffers.take(BIG) is first
    assert buffers.take(BIG) is not first


def test_a_buffer_with_a_reader_is_left_alone_until_the_reader_is_gone():
    buffers = FrameBuffers()
    first = buffers.take(BIG)
    reader = memoryview(first)[10:20]
    buffers.give_back(first)
    assert buffers.take(BIG) is not first
    reader.release()
    assert buffers.take(BIG) is first


def test_the_number_of_spares_is_bounded():
    buffers = FrameBuffers()
    given = [buffers.take(BIG) for _ in range(SPARES_MAX + 2)]
    for buffer in given:
        buffers.give_back(buffer)
    taken = [buffers.take(BIG) for _ in given]
    assert sum(any(one is other for other in given) for one in taken) == SPARES_MAX


def test_small_and_huge_buffers_are_not_kept():
    buffers = FrameBuffers()
    small, huge = buffers.take(1000), bytearray(10 * FRAME_BUFFER_START_BYTES)
    buffers.give_back(small)
    buffers.give_back(huge)
    assert buffers.take(1000) is not small
    assert buffers.take(BIG) is not huge


def test_a_frame_begins_no_larger_than_the_bound():
    assert len(FrameBuffers().take(100_000_000)) == FRAME_BUFFER_START_BYTES


def test_a_frame_grows_from_where_it_began():
    """Later bytes of a frame follow the bytes that have arrived already, even if these exceed the frame's first
    buffer."""
    for begun in (b"", b"0123", bytes(range(100))):
        frame = PartialFrame(FrameBuffers(16), 300, memoryview(begun))
        said, whole = bytes(range(100)) * 3, None
        at = len(begun)
        while whole is None:
            with frame.room() as room:
                size = min(len(room), 7)
                room[:size] = said[at : at + size]
            at += size
            whole = frame.received(size)
        assert bytes(whole[len(begun) :]) == said[len(begun) :]
        assert len(frame.buffer) == 300
