"""Operations on the settings of a topic."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from broker.metadata.topics import NAME_CHARACTERS_MAX
from lab.control.errors import HttpError, unknown
from lab.control.forms import Given, View
from lab.control.operations import operation
from lab.control.ports import Control

SETTINGS_MAX: Final = 64
VALUE_CHARACTERS_MAX: Final = 2**15 - 1
_TOPIC_SOURCE: Final = 1
_DEFAULT_SOURCE: Final = 5

Name = Annotated[str, Meta(max_length=NAME_CHARACTERS_MAX)]
Value = Annotated[str, Meta(max_length=VALUE_CHARACTERS_MAX)]


class SettingView(View):
    name: str
    value: str | None
    """Value of the setting; null if the setting is sensitive."""
    source: str
    """Source of the value. topic: set for this topic; broker: set for the broker; default: not set at all."""
    documentation: str | None


class SettingsView(View):
    topic: str
    configs: list[SettingView]


class OneTopic(Given):
    topic: Annotated[Name, Meta(description="The name of the topic.")]


class SettingsForm(Given):
    set: Annotated[
        dict[Name, Value], Meta(max_length=SETTINGS_MAX, description="Settings with their new values.")
    ] = msgspec.field(default_factory=dict)
    delete: Annotated[
        list[Name],
        Meta(max_length=SETTINGS_MAX, description="Settings to set back to their defaults."),
    ] = msgspec.field(default_factory=list)


_EXAMPLE: Final[dict[str, Any]] = {
    "topic": "orders",
    "configs": [
        {
            "name": "retention.ms",
            "value": "60000",
            "source": "topic",
            "documentation": "How long records are kept.",
        }
    ],
}


@operation("GET", "/v1/topics/{topic}/configs", answer_example=_EXAMPLE, may_wait=True)
async def show_topic_configs(control: Control, params: OneTopic) -> SettingsView:
    """Show the settings of a topic, and where each value comes from."""
    from lab.control import node_requests  # rarely used

    found = await node_requests.describe_configs(control.cluster, params.topic)
    views = [
        SettingView(
            name=each.name,
            value=None if each.is_sensitive else each.value,
            source=_source(each.config_source),
            documentation=each.documentation,
        )
        for each in found
    ]
    return SettingsView(topic=params.topic, configs=sorted(views, key=lambda each: each.name))


@operation(
    "POST",
    "/v1/topics/{topic}/configs",
    body_example={"set": {"retention.ms": "60000"}, "delete": ["cleanup.policy"]},
    answer_example=_EXAMPLE,
    may_wait=True,
)
async def alter_topic_configs(control: Control, params: OneTopic, body: SettingsForm) -> SettingsView:
    """Change settings of a topic, as kafka-configs.sh --alter does. If one setting is refused, none is changed."""
    from lab.control import node_requests  # rarely used

    if not body.set and not body.delete:
        raise HttpError(
            400, "give the settings to change: with their values in 'set', or their names in 'delete'"
        )
    async with control.cluster.lifecycle.call():
        known = {each.name for each in await node_requests.describe_configs(control.cluster, params.topic)}
        # kafka-configs.sh rejects unknown names, too. The request alone would ignore them.
        for name in body.delete:
            if name not in known:
                raise HttpError(400, unknown("setting", name, known))
        await node_requests.alter_configs(control.cluster, params.topic, body.set, body.delete)
    return await show_topic_configs(control, params)


def _source(number: int) -> str:
    return "topic" if number == _TOPIC_SOURCE else "default" if number == _DEFAULT_SOURCE else "broker"
