"""The operation that explains problems: the cause first, then what to do about it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from lab.control.errors import HttpError
from lab.control.forms import Given, View
from lab.control.operations import operation
from lab.control.ports import Looking
from lab.control.routes.transactions import ID_CHARACTERS_MAX
from lab.control.routes.views import Index, TopicName
from lab.explain.explanation import Explanation
from lab.views.ports import Explaining, UnknownName


class ExplanationView(View):
    subject: str
    """The subject: ``orders-0``, ``group readers``, ``transactional id etl-1``"""
    cause: str
    """Name of the cause (docs/troubleshooting.md lists them); empty if nothing is wrong."""
    lines: list[str]
    """Sentences. The first one names the cause, with the rule or the node that is responsible."""


class ExplanationsView(View):
    explanations: list[ExplanationView]


class WantedExplanation(Given):
    topic: TopicName | None = None
    partition: Index | None = None
    group: Annotated[str, Meta(max_length=ID_CHARACTERS_MAX, description="The id of a group.")] | None = None
    offset: (
        Annotated[
            int,
            Meta(
                ge=0,
                le=2**63 - 1,
                description="With topic, partition and group: explain the record at this offset in the share group.",
            ),
        ]
        | None
    ) = None
    transactional_id: (
        Annotated[
            str,
            Meta(max_length=ID_CHARACTERS_MAX, description="The transactional id, as its producer has it."),
        ]
        | None
    ) = None


_EXAMPLE: Final[dict[str, Any]] = {
    "explanations": [
        {
            "subject": "orders-0",
            "cause": "open-transaction",
            "lines": [
                "Readers of orders-0 with read_committed stop at offset 12: etl-1 has an open transaction there."
            ],
        }
    ]
}


@operation("GET", "/v1/explain", answer_example=_EXAMPLE, may_wait=True)
async def explain(control: Looking, params: WantedExplanation) -> ExplanationsView:
    """Explain why readers of a topic or a partition stop, why a group lags, or what a transactional id waits for.

    With an offset: the state of one record in a share group. Without parameters: everything that is wrong in the cluster,
    within bounds. All facts are read at the same time.
    """
    asked = [each for each in (params.topic, params.group, params.transactional_id) if each is not None]
    if params.offset is not None and (
        params.topic is None or params.partition is None or params.group is None or len(asked) > 2
    ):
        raise HttpError(
            400, "the parameter offset needs the parameters topic, partition and group, and no other"
        )
    if len(asked) > 1 and params.offset is None:
        raise HttpError(400, "give only one of topic, group and transactional_id")
    if params.partition is not None and params.topic is None:
        raise HttpError(400, "the parameter partition needs the parameter topic")
    if control.explaining is None:
        raise HttpError(404, control.refusal("explanation"))
    try:
        found = await _explained(control.explaining, params)
    except UnknownName as error:
        raise HttpError(404, str(error)) from None
    return ExplanationsView(explanations=list(map(_view, found)))


async def _explained(explaining: Explaining, params: WantedExplanation) -> list[Explanation]:
    if params.offset is not None:
        assert params.topic is not None
        assert params.partition is not None
        assert params.group is not None
        return await explaining.record(params.group, params.topic, params.partition, params.offset)
    if params.topic is not None:
        return await explaining.partitions(params.topic, params.partition)
    if params.group is not None:
        return await explaining.group(params.group)
    if params.transactional_id is not None:
        return await explaining.transactional_id(params.transactional_id)
    return await explaining.everything()


def _view(explanation: Explanation) -> ExplanationView:
    return ExplanationView(
        subject=explanation.subject, cause=explanation.cause.value, lines=list(explanation.lines)
    )
