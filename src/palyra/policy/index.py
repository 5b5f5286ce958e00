"""Chooses the policies a request could match, so that a decision costs the same with ten policies or ten thousand.

A policy whose head says ``principal == X`` can only match requests of X; likewise for action and resource. Each of
the three dimensions of a policy's head is therefore either one exact value or "any", and a request selects at most
eight buckets: its own value or "any" in each dimension. A policy that is left out could not have matched, so
decisions, determining policies and evaluation errors are those of the whole set.
"""

from collections.abc import Sequence
from itertools import product
from typing import TypeAlias

from palyra.policy.bundle import Policy, Scope
from palyra.policy.entities import EntityRef

SliceKey: TypeAlias = tuple[int, ...]


class PolicyIndex:
    def __init__(self, policies: Sequence[Policy]) -> None:
        self._policies = tuple(policies)
        self._bucket_of: dict[Scope, int] = {}
        self._members: list[list[int]] = []
        for position, policy in enumerate(self._policies):
            bucket = self._bucket_of.setdefault(policy.scope, len(self._members))
            if bucket == len(self._members):
                self._members.append([])
            self._members[bucket].append(position)

    def slice_for(self, principal: EntityRef, action: str, resource: EntityRef) -> SliceKey:
        """Which buckets the request selects. Requests for which no exact policy exists share one key."""
        return tuple(
            bucket
            for who, what, which in product((principal, None), (action, None), (resource, None))
            if (bucket := self._bucket_of.get(Scope(principal=who, action=what, resource=which))) is not None
        )

    def policies_in(self, key: SliceKey) -> tuple[Policy, ...]:
        """The policies of a slice, in the order of the bundle."""
        return tuple(
            self._policies[position] for position in sorted(p for bucket in key for p in self._members[bucket])
        )
