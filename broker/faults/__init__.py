"""Faults: failures that are staged on purpose. One language, one engine, however they are reached."""

from broker.faults.active import Active
from broker.faults.engine import Faults
from broker.faults.json_form import rule_from_json, rule_to_json
from broker.faults.rules import ACTIONS, Action, FaultError, Match, Rule, When
from broker.faults.text import parse_rule, rule_to_text

__all__ = [
    "ACTIONS",
    "Action",
    "Active",
    "FaultError",
    "Faults",
    "Match",
    "Rule",
    "When",
    "parse_rule",
    "rule_from_json",
    "rule_to_json",
    "rule_to_text",
]
