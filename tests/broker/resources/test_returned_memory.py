"""Memory that is returned to the system after connections have ended."""

from broker.resources.returned_memory import ENDS, ReturnedMemory


def test_memory_is_returned_periodically():
    given: list[int] = []
    returned = ReturnedMemory(lambda: given.append(count))
    for count in range(1, 3 * ENDS):  # noqa: B007
        returned()
    assert given == [ENDS, 2 * ENDS]


def test_the_default_returns_memory_to_the_system():
    returned = ReturnedMemory()
    for _ in range(ENDS):
        returned()
