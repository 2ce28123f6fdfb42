"""One wrong row of an output, and the requests of the run that concern it."""

from __future__ import annotations

from odradek.certify.lints.both_ends import BothEnds, Event
from odradek.certify.lints.contents import Subject
from odradek.certify.lints.databases import Block, Statement
from odradek.certify.lints.evidence import DOCS, SERVICES_DOCS, Lint, seen_at
from odradek.certify.lints.failures import Case
from odradek.certify.lints.services import AUTO_COMMIT


class Wrong:
    """One wrong row, and the run in which it is wrong."""

    def __init__(self, case: Case, ends: BothEnds, about: Subject) -> None:
        self.case, self.ends, self.about = case, ends, about

    @property
    def blocks(self) -> list[Block]:
        """The transactions that wrote the row, or tried to."""
        return self.ends.blocks_about(self.about, self.ends.tables)

    @property
    def committed(self) -> list[Block]:
        found = [each for each in self.blocks if each.is_committed and _has_effect(self, each)]
        return sorted(found, key=lambda each: each.committed_number)

    @property
    def events(self) -> list[Event]:
        found = self.ends.events_about(self.about, self.about.row.topic if self.about.is_event else None)
        return [each for each in found if each.exchange.service] if self.is_request else found

    def is_killed_at(self, number: int) -> bool:
        """Whether the certifier killed the process at this request, so that nothing followed from its response."""
        injection = self.case.hits.get(number)
        return injection is not None and injection.fault.name.startswith("kill")

    @property
    def is_row(self) -> bool:
        """Whether the output is read from a database."""
        return self.about.row.topic.startswith("postgres")

    @property
    def is_request(self) -> bool:
        return self.about.row.topic.startswith("http")

    def lint(self, number: int, name: str, sentence: str) -> Lint:
        docs = DOCS if name in (AUTO_COMMIT, "offsets-outside") else SERVICES_DOCS
        return seen_at(self.ends.evidence.exchanges[number], name, sentence, docs)


def _has_effect(wrong: Wrong, block: Block) -> bool:
    """Whether a statement about the row changed something: ON CONFLICT DO NOTHING may have skipped it."""
    return any(each.rows != 0 for each in block.about(wrong.about, wrong.ends.tables))


def marks(wrong: Wrong) -> list[tuple[Block, Statement]]:
    """The INSERTs that concern the row, of tables that are not outputs, except outbox tables."""
    return [
        (block, each)
        for block in wrong.ends.blocks
        for each in block.about(wrong.about)
        if each.kind == "INSERT" and not each.tables & (wrong.ends.tables | wrong.ends.relayed)
    ]


def table_of(statement: Statement) -> str:
    return ", ".join(sorted(statement.tables))


def dual_write(wrong: Wrong, one: int, two: int | None, otherwise: str, *, is_row_first: bool) -> Lint:
    event = "request is sent" if wrong.is_request else "event is sent"
    order = (
        f"the row is committed before the {event}"
        if is_row_first
        else f"the {event} before the row is committed"
    )
    return wrong.lint(
        one,
        "dual-write",
        f"{wrong.ends.pair(one, two, otherwise)}: {order}, and a failure in between leaves only one of them. Write the "
        "event into an outbox table in the transaction of the row, and send it from there",
    )


def automatic(pair: str) -> str:
    return (
        f"{pair}: enable.auto.commit commits offsets at any time, before or after the database. Set "
        "enable.auto.commit=false, and store the offsets in the transaction of the rows, or commit them after it"
    )
