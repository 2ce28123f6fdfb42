"""Kafka's Java client in groups of both protocols. Each member is a JVM, so that it can be killed."""

from __future__ import annotations

import pytest

from tests.clients.contract import GroupContract
from tests.support.foreign import Program
from tests.support.javaprog import program_command

pytestmark = [pytest.mark.java, pytest.mark.foreign, pytest.mark.client("Java")]


class TestJava(GroupContract):
    @pytest.fixture
    def program(self) -> Program:
        return Program(program_command("Groups"))
