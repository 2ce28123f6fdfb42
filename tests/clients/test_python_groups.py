"""aiokafka and kafka-python as members of classic groups. Each is a process, so that it can be killed."""

from __future__ import annotations

import sys

import pytest

from tests.clients.contract import SOME_DEATHS, Crew, GroupContract
from tests.support.broker import StartBroker
from tests.support.foreign import Program

pytestmark = pytest.mark.foreign


class Members:
    client: str

    share = staticmethod(GroupContract.share)

    @pytest.fixture
    def program(self) -> Program:
        return Program([sys.executable, "-W", "ignore", "-m", "tests.clients.python.groups", self.client])

    @pytest.mark.feature("exactly-once loop, members killed")
    def test_the_loop_is_exactly_once_though_members_are_killed(
        self, program: Program, start_broker: StartBroker
    ):
        with Crew(program, start_broker, "classic") as crew:
            crew.lose_members()
            crew.finish()

    @pytest.mark.feature("exactly-once loop, broker killed")
    def test_the_loop_outlives_the_broker(self, program: Program, start_broker: StartBroker):
        with Crew(program, start_broker, "classic") as crew:
            crew.outlive(SOME_DEATHS)
            crew.finish()


@pytest.mark.client("aiokafka")
class TestAiokafka(Members):
    client = "aiokafka"


@pytest.mark.client("kafka-python")
class TestKafkaPython(Members):
    client = "kafka-python"
