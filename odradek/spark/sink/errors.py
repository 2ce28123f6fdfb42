"""The exceptions that a batch of the sink may raise. Their messages are for the person who runs the query."""

from __future__ import annotations

from odradek.errors import OdradekError


class SinkError(OdradekError):
    """The sink cannot continue. The message contains the reason, and what to do."""


class DecisionMismatch(SinkError):
    """The query and the decision record do not fit together; nothing was written."""


class NotDecided(SinkError):
    """The batch was not decided and will not be: a restart of the query writes it again."""


class OutcomeUnknown(SinkError):
    """A restart of the query has to find out whether the batch is decided, or to commit the transactions of a decided batch.

    It is also raised if the responses to InitProducerId were lost repeatedly, so that epochs are unknown.
    """


class MayBeLost(SinkError):
    """Rows of a decided batch may be lost: transactions were not committed, or a topic was deleted or created again."""
