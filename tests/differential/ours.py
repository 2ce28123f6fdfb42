"""Our broker with the settings of a profile, for stories (scripted requests)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from odradek.control_client import ControlClient
from odradek.remote import Faults, Rule
from tests.differential import runner
from tests.differential.story import Entry
from tests.support.broker import Broker


class Ours:
    """Runs stories on one broker for each profile, which is started with the first story of the profile.

    A broker that has died is started again, so that a story that kills its broker does not affect other stories.
    """

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        """``settings`` are additional settings for all profiles."""
        self.directory = directory
        self.settings = settings or {}
        self.brokers: dict[str, Broker] = {}
        self.transcripts: dict[str, runner.Transcript] = {}
        self.logs: list[Path] = []

    def transcript(self, entry: Entry) -> runner.Transcript:
        if entry.id not in self.transcripts:
            self.transcripts[entry.id] = self._run(entry)
        return self.transcripts[entry.id]

    def _run(self, entry: Entry) -> runner.Transcript:
        if runner.has_own_broker(entry.profile):
            with self._new(entry.profile) as own:
                return runner.run(entry, own.host, own.port, restart_broker=own.restart)
        broker = self.broker(entry.profile)
        hold = partial(_hold_markers, broker) if entry.profile == "order" else nullcontext
        return runner.run(entry, broker.host, broker.port, hold_markers=hold)

    def broker(self, profile: str) -> Broker:
        running = self.brokers.get(profile)
        if running is None or not running.is_running:
            running = self.brokers[profile] = self._new(profile).start()
            runner.warm_up(running.host, running.port)
        return running

    def _new(self, profile: str) -> Broker:
        setting = runner.PROFILES[profile]
        broker = Broker(
            self.directory / f"{profile}-{len(self.logs)}",
            "--feature",
            f"transaction.version={setting['feature']}",
            settings=setting["properties"] | setting["ours"] | self.settings,
            control=True,
        )
        self.logs.append(broker.log_file)
        return broker

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.close()


def _hold_markers(broker: Broker) -> Rule:
    """Add a fault rule that delays markers until it is removed, and return the rule.

    Use the rule only with odradek.commit.order=kafka: by default the response to EndTxn waits for the markers.
    """
    return Faults(ControlClient(broker.control_url)).add("txn.marker -> hold")


@contextmanager
def ours(directory: Path, settings: dict[str, str] | None = None) -> Iterator[Ours]:
    stories = Ours(directory, settings)
    try:
        yield stories
    finally:
        stories.close()
