"""Policies in which a part of the context is settled: where they look at it, the value stands instead.

A context has a few attributes that are nearly always the same, such as the channel. Cedar reads them anew in every
question; in the policies it has read them once.
"""

from collections.abc import Mapping
from typing import Any

from palyra.policy.context_reads import ACCESSES, is_access


def settle(policies: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """A policy set and the values in Cedar's JSON form. An attribute that is settled is one that is there."""
    return {
        **policies,
        "staticPolicies": {
            name: {**policy, "conditions": [_settled(condition, values) for condition in policy["conditions"]]}
            for name, policy in policies["staticPolicies"].items()
        },
    }


def _settled(node: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_settled(item, values) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) == 1:
        ((operation, operands),) = node.items()
        if operation in ACCESSES and is_access(operands) and operands["attr"] in values:
            return {"Value": True if operation == "has" else values[operands["attr"]]}
    return {name: _settled(item, values) for name, item in node.items()}
