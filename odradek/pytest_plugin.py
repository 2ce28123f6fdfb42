"""pytest fixtures that start brokers for tests. pytest finds them when Odradek is installed.

    def test_the_lost_answer(odradek_broker, odradek_faults):
        rule = odradek_faults.add("EndTxn", nth=2, do="lose-answer")
        ...  # a client at odradek_broker.bootstrap_servers
        assert rule.wait().hits == 1

docs/control.md describes the fixtures. No module is imported, and no broker started, before a test requests one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

import pytest

if TYPE_CHECKING:
    from odradek.broker import Broker
    from odradek.certify.certificate import Certificate
    from odradek.control_client import ControlClient
    from odradek.remote import Clock, Faults, Rule
    from odradek.words import RuleWords

SECTION: Final = "odradek rules"
UNHIT: Final = "odradek_unhit"
_UNHIT_VALUES: Final = ("warn", "fail", "ignore")
_PREFIX_CHARACTERS_MAX: Final = 100
_rules_at_the_end = pytest.StashKey[str]()
_rules_of_the_test = pytest.StashKey["list[Rule]"]()
_OPTIONS_OF: Final = {"odradek_broker": "odradek_options", "kafka_broker": "kafka_options"}
"""For each session fixture, the fixture that a module or a class overrides to change the broker's options.

``kafka_broker`` is the fixture for Spark tests (`odradek.spark.testing`).
"""
_options_of_brokers = pytest.StashKey["dict[str, pytest.FixtureDef[Any]]"]()
_ends_of_brokers = pytest.StashKey["dict[str, list[Callable[[], None]]]"]()


class UnhitRuleWarning(pytest.PytestWarning):
    """A test passed although one of its rules had no hit, so the test may not have tested what it was written for."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        UNHIT,
        "what to do when a test passes and one of its odradek_faults rules had no hit: warn, fail or ignore",
        default=_UNHIT_VALUES[0],
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getini(UNHIT) not in _UNHIT_VALUES:
        raise pytest.UsageError(f"{UNHIT} is {config.getini(UNHIT)!r}, not {' or '.join(_UNHIT_VALUES)}")


@pytest.fixture(scope="session")
def odradek_options() -> dict[str, Any]:
    """The arguments of the brokers that these fixtures start. Override this fixture in a conftest.py, a module or a class.

    Returns keyword arguments of ``odradek.Broker``: topics, seed, settings, nodes, transaction_version, features, preview,
    tls, users, mechanism.

    @pytest.fixture(scope="session")
    def odradek_options():
        return {"tls": True, "users": {"alice": "secret"}}

    def test_an_order(odradek):
        producer = Producer(odradek.client_config("alice"))
    """
    return {}


class _SessionBroker:
    """Owner of the session's broker: at most one process, with the options that were requested last."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._options: dict[str, Any] = {}
        self._broker: Broker | None = None

    def of(self, options: dict[str, Any]) -> Broker:
        """Reset and return the running broker if it has these options. Otherwise close it and start one that has them."""
        if self._broker is not None and self._options == options:
            return self._broker.reset()
        self.close()
        from odradek.broker import Broker

        self._broker = self._stack.enter_context(Broker(**options))
        self._options = dict(options)
        return self._broker

    def close(self) -> None:
        self._broker = None
        self._stack.close()


@pytest.fixture(scope="session")
def _odradek_session_broker() -> Iterator[_SessionBroker]:
    with closing(_SessionBroker()) as kept:
        yield kept


@pytest.fixture(scope="session")
def odradek_broker(odradek_options: dict[str, Any], _odradek_session_broker: _SessionBroker) -> Broker:
    """One broker for all tests of the session: each test uses its own topics and ids.

    A module or class that overrides ``odradek_options`` gets another broker, which replaces the previous broker.
    """
    return _odradek_session_broker.of(odradek_options)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> Generator[None, object, object]:
    """Remember how to close a session broker, for `pytest_runtest_setup`."""
    if fixturedef.argname in _OPTIONS_OF:
        ends = request.session.stash.setdefault(_ends_of_brokers, {})
        ends.setdefault(fixturedef.argname, []).append(partial(fixturedef.finish, request))
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Close a session broker before a test with other options: pytest itself would reuse that broker."""
    fixtures = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})
    last = item.session.stash.setdefault(_options_of_brokers, {})
    for broker, name in _OPTIONS_OF.items():
        if broker not in fixtures or name not in fixtures:  # the suite defines its own odradek_broker
            continue
        options = fixtures[name][-1]
        ends = item.session.stash.get(_ends_of_brokers, {}).get(broker, [])
        while ends and last.get(broker) is not options:
            ends.pop()()
        last[broker] = options


@pytest.fixture
def odradek(odradek_broker: Broker) -> Broker:
    """The session's broker, reset for this test: no topics, groups or connections of earlier tests remain."""
    return odradek_broker.reset()


@pytest.fixture
def odradek_clean(odradek: Broker) -> Broker:
    """The fixture ``odradek`` under a name that does not hide the module ``odradek`` in the test."""
    return odradek


@pytest.fixture
def odradek_faults(request: pytest.FixtureRequest, odradek_broker: Broker) -> Iterator[Faults]:
    """The fault rules of ``odradek_broker``: the object to add rules and to list them.

    A test's rules are removed at the end of the test; the report of a failed test lists them.
    """
    from odradek.errors import ControlUnreachable
    from odradek.remote import Faults

    class FaultsOfThisTest(Faults):
        def __init__(self) -> None:
            """Store no client: `client` looks it up at each call, because the broker may have been restarted."""

        @property
        def client(self) -> ControlClient:
            return odradek_broker.faults.client

        @client.setter
        def client(self, client: ControlClient) -> None:
            raise AttributeError(
                "client cannot be set: odradek_faults always uses the client of odradek_broker"
            )

        def add(self, on: str | None = None, **words: Unpack[RuleWords]) -> Rule:
            rule = super().add(on, **words)
            added.append(rule)
            return rule

    added: list[Rule] = []
    request.node.stash[_rules_of_the_test] = added
    yield FaultsOfThisTest()
    if odradek_broker.process.is_running:
        request.node.stash[_rules_at_the_end] = _listed(odradek_broker)
        for rule in added:
            with suppress(ControlUnreachable):  # the rule was added before a restart of the broker
                rule.remove()


@pytest.fixture
def odradek_topic(request: pytest.FixtureRequest, odradek_broker: Broker) -> Callable[..., str]:
    """Function that creates a topic for this test only: ``odradek_topic(partitions=4, cleanup_policy="compact")``.

    The function returns the topic's name, which begins with the test's name and is unique, also across processes.
    """
    prefix = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:_PREFIX_CHARACTERS_MAX]

    def create(partitions: int = 1, **settings: Any) -> str:
        return odradek_broker.create_topic(partitions=partitions, prefix=prefix, **settings)

    return create


@pytest.fixture
def odradek_cluster(odradek_options: dict[str, Any]) -> Iterator[Callable[..., Broker]]:
    """Function that starts a broker for this test only: ``odradek_cluster(nodes=3, topics=["orders:4"])``."""
    from odradek.broker import Broker

    with ExitStack() as stack:

        def start(**options: Any) -> Broker:
            return stack.enter_context(Broker(**{**odradek_options, **options}))

        yield start


@pytest.fixture
def odradek_clock(odradek_cluster: Callable[..., Broker]) -> Clock:
    """The clock of a broker that is started for this test only, ``odradek_clock.broker``."""
    from odradek.remote import Clock

    class ClockOfABroker(Clock):
        broker = odradek_cluster()

    return ClockOfABroker(ClockOfABroker.broker.clock.client)


@pytest.fixture
def odradek_certify(tmp_path: Path) -> Callable[..., Certificate]:
    """Function that certifies a job: ``odradek_certify(job, records={"in": ["a", "b"]}, output="out", budget="30s")``.

    `odradek.certify.testing.certify` documents the arguments. The reports are written to the test's ``tmp_path``.
    """
    try:
        from odradek.certify.testing import certify
    except ModuleNotFoundError as error:
        from odradek.extras import install_command

        pytest.fail(f"odradek_certify needs {error.name}: {install_command('certify')}", pytrace=False)
    return partial(certify, directory=tmp_path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the rules to the report of a failed test, as a client that waits for a held request fails with only a timeout."""
    report = yield
    if report.failed and "odradek_faults" in getattr(item, "fixturenames", ()):
        text = _rules_of(item)
        if text:
            report.sections.append((SECTION, text))
    elif report.passed and report.when == "call":
        _look_for_unhit_rules(item, report)
    return report


def _look_for_unhit_rules(item: pytest.Item, report: pytest.TestReport) -> None:
    wanted = item.config.getini(UNHIT)
    unhit = [] if wanted == "ignore" else _unhit(item.stash.get(_rules_of_the_test, []))
    if not unhit:
        return
    text = "\n".join(["rules without a hit:", *unhit])
    if wanted == "warn":
        try:
            item.warn(UnhitRuleWarning(text))
        except UnhitRuleWarning:  # the project's warning filters turn it into an error
            wanted = "fail"
    if wanted == "fail":
        report.outcome, report.longrepr = "failed", f"the test passed, with {text}"


def _unhit(rules: list[Rule]) -> list[str]:
    """The rules without hits. Rules that ended with a reset or a restart are left out, as they may have had hits."""
    from odradek.errors import OdradekError
    from odradek.printable import printable_lines

    found = []
    for rule in rules:
        try:
            hits = rule.as_dict()["hits"] if rule.removed else rule.hits
        except OdradekError:
            continue
        if not hits:
            found.append("  " + printable_lines(_line(rule.as_dict())))
    return found


def _rules_of(item: pytest.Item) -> str:
    """The test's rules, as they are now or as they were at the end of the test, as text."""
    if _rules_at_the_end in item.stash:
        return item.stash[_rules_at_the_end]
    broker = getattr(item, "funcargs", {}).get("odradek_broker")
    return _listed(broker) if broker is not None else ""


def _listed(broker: Broker) -> str:
    from odradek.errors import OdradekError
    from odradek.printable import printable_lines

    try:
        return "\n".join(printable_lines(_line(rule.as_dict())) for rule in broker.faults)
    except OdradekError as error:
        return str(error)


def _line(rule: dict[str, Any]) -> str:
    hits, matches = rule["hits"], rule["matches"]
    line = f"{rule['id']}: {rule['text']}: {hits} hit{'s' * (hits != 1)} of {matches} match{'es' * (matches != 1)}"
    held = [
        f"\n    holds {each['at']} on node {each['node']}"
        + (f", connection {each['connection']}" if each.get("connection") is not None else "")
        for each in rule["held"]
    ]
    return line + "".join(held)
