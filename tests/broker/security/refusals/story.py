"""Sequences of requests, between which a principal gets and loses permissions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.broker.security.refusals.normal import Normal
from tests.broker.security.refusals.principals import LITERAL, PREFIXED, STORY_USERS, Acl
from tests.broker.security.refusals.sides import Body
from tests.broker.security.refusals.world import World

Told = list[list[Any]]
"""(description of a request, its normalised response) pairs, in the order of the requests."""


class Story:
    """One run of a story (a sequence of requests). Each story has topics and a user of its own."""

    def __init__(self, world: World, name: str, number: int) -> None:
        self.world, self.side = world, world.side
        self.name = name
        self.user = STORY_USERS[number]
        self.told: Told = []

    def topic(self, suffix: str = "a") -> str:
        """Create a topic and return its name."""
        name = self.named(suffix)
        self.world.create(name)
        return name

    def named(self, suffix: str) -> str:
        """A name that no other story uses."""
        return f"open-{self.name.replace('_', '-')}-{suffix}"

    def may(self, *rights: tuple[str, str, str]) -> None:
        """Give the user permissions, each as (resource type, operation, name). A name that ends in ``*`` is a
        prefix."""
        self.side.grant(self.user, [_acl(right) for right in rights])

    def may_not(self, *rights: tuple[str, str, str]) -> None:
        """Remove permissions that the user was given."""
        self.side.revoke(self.user, [_acl(right) for right in rights])

    def ask(self, note: str, api: str, version: int, body: Body, *, user: str | None = None) -> Any:
        """Send a request, add its normalised response to the story, and return the raw response."""
        answer = self.side.ask(user or self.user, api, version, body)
        self._tell(note, api, version, answer, body, user)
        return answer

    def until(self, note: str, api: str, version: int, body: Body, done: Callable[[Body], bool]) -> Body:
        """Repeat a request until ``done(response)`` is true, and add only that response to the story."""
        while True:
            answer = self.side.ask(self.user, api, version, body)
            assert isinstance(answer, dict)
            if done(answer):
                self._tell(note, api, version, answer, body)
                return answer

    def send(self, note: str, api: str, version: int, body: Body) -> None:
        """Send a request that has no response."""
        self._tell(note, api, version, self.side.tell(self.user, api, version, body), body)

    def _tell(
        self, note: str, api: str, version: int, answer: Any, body: Body, user: str | None = None
    ) -> None:
        names = {topic_id: name for name, topic_id in self.world.topic_ids.items()}
        normal = Normal(user or self.user, names, repr(body))
        self.told.append([f"{note}: {api} v{version}", normal.answer(api, answer)])


def _acl(right: tuple[str, str, str]) -> Acl:
    kind, operation, name = right
    if name.endswith("*") and name != "*":
        return Acl(kind, operation=operation, name=name[:-1], pattern=PREFIXED)
    return Acl(kind, operation=operation, name=name, pattern=LITERAL)


STORIES: dict[str, Callable[[Story], None]] = {}


def story(run: Callable[[Story], None]) -> Callable[[Story], None]:
    STORIES[run.__name__] = run
    return run


RECORDED: Final = Path(__file__).parent / "recorded_stories.json"


def save_stories(told: dict[str, Told]) -> None:
    """Write the stories to the file of recorded stories, one exchange in a line."""
    blocks = []
    for name, exchanges in told.items():
        lines = ",\n".join("  " + json.dumps(each, ensure_ascii=False) for each in exchanges)
        blocks.append(f' "{name}": [\n{lines}\n ]')
    RECORDED.write_text("{\n" + ",\n".join(blocks) + "\n}\n")


def recorded_stories() -> dict[str, Told]:
    """The exchanges recorded from Kafka, by story."""
    stories: dict[str, Told] = json.loads(RECORDED.read_text())
    return stories


def play(world: World, name: str) -> Told:
    """Run a story and return its normalised exchanges."""
    told = Story(world, name, list(STORIES).index(name))
    STORIES[name](told)
    return told.told
