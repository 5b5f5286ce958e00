"""Policy engine on Cedar: parsed policy sets and entities are reused, and every failure is a denial."""

import re
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, Final, TypeAlias

import cedarpy
import msgspec

from palyra.policy.bundle import Bundle, Policy
from palyra.policy.bundle_check import check_bundle
from palyra.policy.decision import (
    Answer,
    Decision,
    Evaluation,
    Judgement,
    MissingGrant,
    Obligations,
    Outcome,
    judge,
    strictest,
)
from palyra.policy.explain import (
    TRIAL_ID,
    Explanation,
    describe_reasons,
    determining,
    find_missing_grant,
    find_preapproval,
    memberships_of,
)
from palyra.policy.limits import MAX_CACHED_ENTITY_BYTES, MAX_CACHED_ENTITY_SETS, MAX_CACHED_SLICES, MAX_REQUEST_BYTES
from palyra.policy.request import EntityRef, Lru, PolicyRequest, cedar_value

SliceKey: TypeAlias = tuple[int, ...]
_Head: TypeAlias = tuple[EntityRef | None, str | None, EntityRef | None]
_ANY: Final = (None,)


class PolicyIndex:
    """Index of the policies that a request could match: a decision costs the same with ten policies or ten thousand.

    A policy whose head says ``principal == X`` can only match requests of X; likewise for action and resource. So each
    of the three dimensions of a head is one exact value or "any", and a request selects at most eight buckets. Other
    policies could not match: decisions, determining policies and evaluation errors are those of the whole set.
    """

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
        # Values that some policy names exactly; other values have no bucket.
        self._principals = {head[0] for head in self._bucket_of}
        self._actions = {head[1] for head in self._bucket_of}
        self._resources = {head[2] for head in self._bucket_of}

    def slice_for(self, principal: EntityRef, action: str, resource: EntityRef) -> SliceKey:
        """Select the request's buckets. Requests that no policy names exactly share one key."""
        heads = product(
            (principal, None) if principal in self._principals else _ANY,
            (action, None) if action in self._actions else _ANY,
            (resource, None) if resource in self._resources else _ANY,
        )
        return tuple([bucket for head in heads if (bucket := self._bucket_of.get(head)) is not None])

    def policies_in(self, key: SliceKey) -> tuple[Policy, ...]:
        return tuple(
            self._policies[position] for position in sorted(p for bucket in key for p in self._members[bucket])
        )


_INVALID_REQUEST: Final = "failed to build request"
_POSITION: Final = len("policy")
_FAILED_POLICY: Final = re.compile(r"\Aerror while evaluating policy `policy([0-9]+)`")
_encode: Final = msgspec.json.Encoder().encode
# Errors of a request that has no JSON form or does not fit the schema.
_UNREADABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)


class _Slice(msgspec.Struct, frozen=True):
    """A parsed policy set. Cedar names its policies ``policy0``, ``policy1``, … in the order of ``ids``."""

    handle: Any
    ids: tuple[str, ...]


# The action, and the documents of principal, resource and other entities.
_Named: TypeAlias = tuple[str | bytes, ...]


class _Parties(msgspec.Struct, frozen=True):
    """All of a request but its context, parsed and checked."""

    slice: SliceKey
    principal: dict[str, str]
    action: dict[str, str]
    resource: dict[str, str]
    entities: Any


class CedarEngine:
    """One checked bundle in force. Raises ``BadBundle`` when made of anything else.

    A decision evaluates only the policies that the request could match, and entities that were parsed before are not
    parsed again. Without both, a decision among 1,000 policies takes as long as cedarpy's, ten times longer.

    The bundle never changes; another bundle is another engine. Safe to use from several threads.
    """

    def __init__(self, bundle: Bundle, *, sliced: bool = True) -> None:
        """Check and parse the bundle. Without ``sliced`` every decision evaluates every policy, for tests."""
        checked = check_bundle(bundle)
        self.bundle = bundle
        self.policies: Mapping[str, Policy] = {policy.id: policy for policy in checked.policies}
        self._digest = bundle.digest
        self._schema = checked.schema
        self._index = PolicyIndex(checked.policies)
        self._whole = None if sliced else _parse_slice(checked.policies)
        self._slices: Lru[SliceKey, _Slice] = Lru(MAX_CACHED_SLICES)
        self._parties: Lru[_Named, _Parties] = Lru(MAX_CACHED_ENTITY_SETS)

    @property
    def bundle_digest(self) -> str:
        return self._digest

    def decide(self, request: PolicyRequest) -> Decision:
        """Decide without raising. A denial carries the smallest grant that would lift it."""
        judgement = judge(request, self.evaluate)
        return Decision(
            outcome=judgement.outcome,
            policies=judgement.policies,
            reasons=judgement.reasons,
            obligations=self._obligations(judgement),
            bundle_digest=self._digest,
            missing_grant=self._missing_grant(request, judgement),
        )

    def explain(self, request: PolicyRequest) -> Explanation:
        judgement = judge(request, self.evaluate)
        asks = judgement.outcome is Outcome.NEEDS_APPROVAL
        return Explanation(
            outcome=judgement.outcome,
            principal=str(request.principal.uid),
            action=request.action,
            resource=str(request.resource.uid),
            codes=judgement.reasons,
            reasons=tuple(describe_reasons(judgement, request, self.policies)),
            determining=determining(judgement.policies, self.policies),
            permits=determining(judgement.permits, self.policies) if asks else (),
            memberships=memberships_of(request),
            errors=judgement.errors,
            obligations=self._obligations(judgement),
            missing_grant=self._missing_grant(request, judgement),
            preapproval=find_preapproval(request, self) if asks else None,
            bundle_digest=self._digest,
        )

    def evaluate(
        self, request: PolicyRequest, *, added: str = "", narrowed: Mapping[str, str] | None = None
    ) -> Evaluation:
        """Evaluate the request once, with the policies in force or with a change to them on trial."""
        try:
            return self._evaluate(request, added, narrowed or {})
        except Exception as error:
            return Evaluation(answer=Answer.FAILED, errors=(f"{type(error).__name__}: {error}",))
        except BaseException as error:
            if not is_panic(error):
                raise
            return Evaluation(answer=Answer.FAILED, errors=(f"the engine panicked: {error}",))

    def _evaluate(self, request: PolicyRequest, added: str, narrowed: Mapping[str, str]) -> Evaluation:
        try:
            context = _encode(cedar_value(request.context))
            parties = self._parse_parties(request)
        except _UNREADABLE as error:
            return Evaluation(answer=Answer.INVALID, errors=(str(error),))
        if len(context) > MAX_REQUEST_BYTES:
            return Evaluation(answer=Answer.INVALID, errors=(f"the context is larger than {MAX_REQUEST_BYTES} bytes",))
        part = self._whole or self._slice(parties.slice)
        if added or narrowed:
            part = self._change_slice(part, added, narrowed)
        question = {
            "principal": parties.principal,
            "action": parties.action,
            "resource": parties.resource,
            "context": context.decode(),
        }
        return _evaluation(cedarpy.is_authorized(question, part.handle, parties.entities, self._schema), part.ids)

    def _parse_parties(self, request: PolicyRequest) -> _Parties:
        """Parse the entities and check them against the schema, once while they are cached."""
        named: _Named = (request.action, *[entity.document for entity in request.everyone()])
        parties = self._parties.get(named)
        if parties is None:
            principal, resource = request.principal.uid, request.resource.uid
            document = _entities_document(request)
            parties = _Parties(
                slice=self._index.slice_for(principal, request.action, resource),
                principal={"type": principal.type, "id": principal.id},
                action={"type": "Action", "id": request.action},
                resource={"type": resource.type, "id": resource.id},
                entities=cedarpy.Entities.from_json_str(document.decode(), self._schema),
            )
            if len(document) <= MAX_CACHED_ENTITY_BYTES:
                self._parties.put(named, parties)
        return parties

    def _slice(self, key: SliceKey) -> _Slice:
        part = self._slices.get(key)
        if part is None:
            part = _parse_slice(self._index.policies_in(key))
            self._slices.put(key, part)
        return part

    def _change_slice(self, part: _Slice, added: str, narrowed: Mapping[str, str]) -> _Slice:
        if not narrowed:
            return _Slice(part.handle.with_added_str(added), (*part.ids, TRIAL_ID))
        texts, ids = [], []
        for name in part.ids:
            text = self.policies[name].text
            clause = narrowed.get(name)
            texts.append(f"{text[:-1]}\n{clause};" if clause else text)
            ids.append(name)
        if added:
            texts.append(added)
            ids.append(TRIAL_ID)
        return _Slice(cedarpy.PolicySet.from_str("\n".join(texts)), tuple(ids))

    def _obligations(self, judgement: Judgement) -> Obligations:
        return strictest(self.policies[name].obligations for name in judgement.permits)

    def _missing_grant(self, request: PolicyRequest, judgement: Judgement) -> MissingGrant | None:
        if judgement.outcome is not Outcome.DENY or judgement.errors:
            return None
        try:
            return find_missing_grant(request, judgement.policies, self, self.policies)
        except Exception:
            # The denial stands; only the advice is missing.
            return None


def is_panic(error: BaseException) -> bool:
    """Return whether this is a panic of Cedar's Rust code, which is not an ``Exception``."""
    return type(error).__name__ == "PanicException"


def _parse_slice(policies: tuple[Policy, ...]) -> _Slice:
    handle = cedarpy.PolicySet.from_str("\n".join(policy.text for policy in policies))
    return _Slice(handle, tuple(policy.id for policy in policies))


def _entities_document(request: PolicyRequest) -> bytes:
    everyone = request.everyone()
    distinct = {entity.uid: entity for entity in everyone}
    if len(distinct) != len(everyone) and any(distinct[entity.uid] != entity for entity in everyone):
        raise ValueError("the request describes one entity twice, differently")
    document = b"[%b]" % b",".join([entity.document for entity in distinct.values()])
    if len(document) > MAX_REQUEST_BYTES:
        raise ValueError(f"the entities are larger than {MAX_REQUEST_BYTES} bytes")
    return document


def _evaluation(result: Any, ids: tuple[str, ...]) -> Evaluation:
    decision, errors = result.decision.value, tuple(map(str, result.diagnostics.errors))
    if decision == "NoDecision":
        invalid = any(error.startswith(_INVALID_REQUEST) for error in errors)
        return Evaluation(answer=Answer.INVALID if invalid else Answer.FAILED, errors=errors)
    if errors:
        failed = sorted({int(number) for error in errors for number in _FAILED_POLICY.findall(error)})
        return Evaluation(answer=Answer.POLICY_ERRORS, policies=tuple(ids[n] for n in failed), errors=errors)
    answer = Answer.ALLOW if decision == "Allow" else Answer.DENY
    determined = sorted(int(reason[_POSITION:]) for reason in result.diagnostics.reasons)
    return Evaluation(answer=answer, policies=tuple(ids[position] for position in determined))
