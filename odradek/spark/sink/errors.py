"""The exceptions of a batch. Their messages are for the person who runs the query."""

from __future__ import annotations

from odradek.errors import OdradekError


class SinkError(OdradekError):
    """The sink cannot continue. The message contains the reason, and what to do."""


class DecisionMismatch(SinkError):
    """The query and the decision record do not fit together; nothing was written."""


class NotDecided(SinkError):
    """The batch was not decided and will not be: a restart of the query writes it again."""


class OutcomeUnknown(SinkError):
    """It is unknown whether the batch is decided; a restart of the query finds out."""


class MayBeLost(SinkError):
    """A decided batch has transactions that could not be committed."""
