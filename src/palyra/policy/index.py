"""Chooses the policies a request could match, so that a decision costs the same with ten policies or ten thousand.

A policy whose head says ``principal == X`` can only match requests of X; likewise for action and resource. Each of
the three dimensions of a policy's head is therefore either one exact value or "any", and a request selects at most
eight buckets: its own value or "any" in each dimension. A policy that is left out could not have matched, so
decisions, determining policies and evaluation errors are those of the whole set.
"""

from collections.abc import Sequence
from itertools import product
from typing import Final, TypeAlias

from palyra.policy.bundle import Policy
from palyra.policy.entities import EntityRef

SliceKey: TypeAlias = tuple[int, ...]
_Head: TypeAlias = tuple[EntityRef | None, str | None, EntityRef | None]
_ANY: Final = (None,)


class PolicyIndex:
    def __init__(self, policies: Sequence[Policy]) -> None:
        self._policies = tuple(policies)
        self._bucket_of: dict[_Head, int] = {}
        self._members: list[list[int]] = []
        for position, policy in enumerate(self._policies):
            scope = policy.scope
            head = (scope.principal, scope.action, scope.resource)
            bucket = self._bucket_of.setdefault(head, len(self._members))
            if bucket == len(self._members):
                self._members.append([])
            self._members[bucket].append(position)
        # What any policy names exactly: of other values there is no bucket to look for.
        self._principals = {head[0] for head in self._bucket_of}
        self._actions = {head[1] for head in self._bucket_of}
        self._resources = {head[2] for head in self._bucket_of}

    def slice_for(self, principal: EntityRef, action: str, resource: EntityRef) -> SliceKey:
        """Which buckets the request selects. Requests for which no exact policy exists share one key."""
        heads = product(
            (principal, None) if principal in self._principals else _ANY,
            (action, None) if action in self._actions else _ANY,
            (resource, None) if resource in self._resources else _ANY,
        )
        return tuple([bucket for head in heads if (bucket := self._bucket_of.get(head)) is not None])

    def policies_in(self, key: SliceKey) -> tuple[Policy, ...]:
        """The policies of a slice, in the order of the bundle."""
        return tuple(
            self._policies[position] for position in sorted(p for bucket in key for p in self._members[bucket])
        )
