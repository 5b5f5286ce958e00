"""Cedar as the policy engine: parsed policy sets and entities are reused, and every failure is a denial."""

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from palyra.policy.bundle import Bundle, Policy
from palyra.policy.cedar_call import NO_POLICIES, NOBODY, Reply, authorize, parse_entities
from palyra.policy.cedar_check import check_bundle
from palyra.policy.cedar_library import cedarpy
from palyra.policy.context_reads import together
from palyra.policy.decision import Answer, Decision, Evaluation, Judgement, MissingGrant, Outcome, judge
from palyra.policy.entities import cedar_value
from palyra.policy.explain import Explanation, determining, memberships_of, reasons_in_words
from palyra.policy.grant import TRIAL_ID, find_missing_grant, find_preapproval
from palyra.policy.index import PolicyIndex, SliceKey
from palyra.policy.limits import (
    MAX_CACHED_ANSWERS,
    MAX_CACHED_ENTITY_BYTES,
    MAX_CACHED_ENTITY_SETS,
    MAX_CACHED_QUESTION_BYTES,
    MAX_CACHED_SHAPES,
    MAX_CACHED_SLICES,
    MAX_REQUEST_BYTES,
    MAX_SETTLED_PER_SLICE,
    MAX_SETTLED_POLICIES,
    MIN_ASKED_TO_SETTLE,
)
from palyra.policy.lru import Lru
from palyra.policy.obligations import Obligations, strictest
from palyra.policy.request import PolicyRequest
from palyra.policy.settled import settle
from palyra.policy.shape import ANY_TEXT, Settled, Shape, asked_of, sample_of

_INVALID_REQUEST: Final = "failed to build request"
_POSITION: Final = len("policy")
_FAILED_POLICY: Final = re.compile(r"\Aerror while evaluating policy `policy([0-9]+)`")
_encode: Final = msgspec.json.Encoder().encode
_ANSWERED: Final = (Answer.ALLOW, Answer.DENY)
# What is raised by a request that has no JSON form, or one that the schema does not know.
_UNREADABLE: Final = (ValueError, TypeError, OverflowError, RecursionError)


class _Slice(msgspec.Struct):
    """A parsed policy set. Cedar names its policies ``policy0``, ``policy1``, … in the order of ``ids``.

    ``settled`` has the same policies with a part of the context settled, by the values of that part.
    """

    handle: Any
    ids: tuple[str, ...]
    reads: frozenset[str] | None = None
    settled: dict[Settled, Any] = {}
    asked: int = 0
    settles: bool = True


# An action, and the principal, the resource and the others with their attributes and sets, as documents.
_Named: TypeAlias = tuple[str | bytes, ...]


class _Parties(msgspec.Struct, frozen=True):
    """Who takes part in a request, ready to be asked about: all of it but the context."""

    slice: SliceKey
    principal: dict[str, str]
    action: dict[str, str]
    resource: dict[str, str]
    entities: Any
    size: int


# Who takes part; what the slice looks at in a context of a shape that the schema admits; and that shape.
_Question: TypeAlias = tuple[_Named, bytes, Settled, Shape]


class CedarEngine:
    """One checked bundle in force. Raises ``BadBundle`` when made of anything else.

    An answer depends on the bundle and on the request alone, so that a question asked before is answered from memory:
    the same slice, principal, action, resource, entities, and everything in the context that the slice looks at.

    The bundle never changes; another bundle is another engine. Safe to use from several threads.
    """

    def __init__(self, bundle: Bundle, *, sliced: bool = True) -> None:
        """Without ``sliced`` every decision looks at every policy: for tests and measurements."""
        checked = check_bundle(bundle)
        self.bundle = bundle
        self.policies: Mapping[str, Policy] = {policy.id: policy for policy in checked.policies}
        self._digest = bundle.digest
        self._schema = checked.schema
        self._index = PolicyIndex(checked.policies)
        self._whole = None if sliced else _parse_slice(checked.policies)
        self._slices: Lru[SliceKey, _Slice] = Lru(MAX_CACHED_SLICES)
        self._parties: Lru[_Named, _Parties] = Lru(MAX_CACHED_ENTITY_SETS)
        self._shapes: Lru[tuple[str, str, str, Shape], bool] = Lru(MAX_CACHED_SHAPES)
        self._answers: Lru[_Question, Evaluation] = Lru(MAX_CACHED_ANSWERS)
        self._obligations_of: Lru[tuple[str, ...], Obligations] = Lru(MAX_CACHED_ANSWERS)

    @property
    def bundle_digest(self) -> str:
        return self._digest

    def decide(self, request: PolicyRequest) -> Decision:
        """Never raises. A denial carries the smallest grant that would lift it."""
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
            reasons=reasons_in_words(judgement, request, self.policies),
            determining=determining(judgement.policies, self.policies),
            permits=determining(judgement.permits, self.policies) if asks else (),
            memberships=memberships_of(request),
            errors=judgement.errors,
            obligations=self._obligations(judgement),
            missing_grant=self._missing_grant(request, judgement),
            without_asking=find_preapproval(request, self) if asks else None,
            bundle_digest=self._digest,
        )

    def evaluate(
        self, request: PolicyRequest, *, added: str = "", narrowed: Mapping[str, str] | None = None
    ) -> Evaluation:
        """One pass of Cedar over the request, as it is, or with a change to the policies that is being tried."""
        try:
            return self._evaluate(request, added, narrowed or {})
        except Exception as error:
            return Evaluation(answer=Answer.FAILED, errors=(f"{type(error).__name__}: {error}",))
        except BaseException as error:
            if not is_panic(error):
                raise
            return Evaluation(answer=Answer.FAILED, errors=(f"the engine panicked: {error}",))

    def _evaluate(self, request: PolicyRequest, added: str, narrowed: Mapping[str, str]) -> Evaluation:
        if added or narrowed or self._whole is not None:
            return self._ask(request, self._changed_slice(request, added, narrowed))
        try:
            named = _named(request)
            parties = self._met(request, named)
            part = self._slice(parties.slice)
            asked, settled, shape = asked_of(request.context, part.reads)
            policies = part.settled.get(settled)
            if policies is None:
                policies = part.handle
                asked.update((name, cedar_value(value)) for name, value in settled)
            context = _encode(asked)
        except _UNREADABLE:
            return self._ask(request, self._slice_of(request))
        small = parties.size + len(context) <= MAX_CACHED_QUESTION_BYTES
        if shape is None or not small:
            return self._ask(request, part)
        question = (named, context, settled, shape)
        answer = self._answers.get(question)
        if answer is None:
            if not self._admits(parties, shape):
                return self._ask(request, part)
            answer = self._ask_admitted(request, parties, part, policies, context)
            if settled and policies is part.handle and part.settles:
                self._settle(part, settled)
            if answer.answer in _ANSWERED:
                self._answers.put(question, answer)
        return answer

    def _ask(self, request: PolicyRequest, part: _Slice) -> Evaluation:
        """The whole request, held against the schema."""
        try:
            context = _encode(cedar_value(request.context))
            parties = self._met(request, _named(request))
        except _UNREADABLE as error:
            return Evaluation(answer=Answer.INVALID, errors=(str(error),))
        if len(context) > MAX_REQUEST_BYTES:
            return Evaluation(answer=Answer.INVALID, errors=(f"the context is larger than {MAX_REQUEST_BYTES} bytes",))
        reply = authorize(
            parties.principal, parties.action, parties.resource, context, part.handle, parties.entities, self._schema
        )
        return _evaluation(reply, part.ids)

    def _ask_admitted(
        self, request: PolicyRequest, parties: _Parties, part: _Slice, policies: Any, context: bytes
    ) -> Evaluation:
        """A request of a shape that the schema admits: only what the slice looks at."""
        reply = authorize(parties.principal, parties.action, parties.resource, context, policies, parties.entities)
        answer = _evaluation(reply, part.ids)
        # An error may speak of what was left out.
        return answer if answer.answer in _ANSWERED else self._ask(request, part)

    def _settle(self, part: _Slice, settled: Settled) -> None:
        """From the next question on, for a slice that is asked again and again."""
        part.asked += 1
        if (
            part.asked < MIN_ASKED_TO_SETTLE
            or len(part.settled) >= MAX_SETTLED_PER_SLICE
            or len(part.ids) > MAX_SETTLED_POLICIES
        ):
            return
        values = {name: cedar_value(value) for name, value in settled}
        try:
            text = cedarpy.policies_to_json_str("\n".join(self.policies[name].text for name in part.ids))
            document = _encode(settle(msgspec.json.decode(text), values))
            part.settled[settled] = cedarpy.PolicySet.from_json_str(document.decode())
        except (ValueError, RecursionError):
            # Nested more deeply than JSON may be: it is asked as it is written.
            part.settles = False

    def _admits(self, parties: _Parties, shape: Shape) -> bool:
        """Whether the schema admits every request of this shape. Cedar is asked, about one that stands for all."""
        kind = (parties.principal["type"], parties.action["id"], parties.resource["type"], shape)
        admitted = self._shapes.get(kind)
        if admitted is None:
            anyone, anything = {**parties.principal, "id": ANY_TEXT}, {**parties.resource, "id": ANY_TEXT}
            reply = authorize(
                anyone, parties.action, anything, _encode(sample_of(shape)), NO_POLICIES, NOBODY, self._schema
            )
            admitted = reply.decision != "NoDecision"
            self._shapes.put(kind, admitted)
        return admitted

    def _met(self, request: PolicyRequest, named: _Named) -> _Parties:
        """Parsed and checked against the schema once for as long as they are cached."""
        parties = self._parties.get(named)
        if parties is None:
            principal, resource = request.principal.uid, request.resource.uid
            document = _entities_document(request)
            parties = _Parties(
                slice=self._index.slice_for(principal, request.action, resource),
                principal={"type": principal.type, "id": principal.id},
                action={"type": "Action", "id": request.action},
                resource={"type": resource.type, "id": resource.id},
                entities=parse_entities(document, self._schema),
                size=len(document),
            )
            if len(document) <= MAX_CACHED_ENTITY_BYTES:
                self._parties.put(named, parties)
        return parties

    def _slice_of(self, request: PolicyRequest) -> _Slice:
        if self._whole is not None:
            return self._whole
        return self._slice(self._index.slice_for(request.principal.uid, request.action, request.resource.uid))

    def _slice(self, key: SliceKey) -> _Slice:
        part = self._slices.get(key)
        if part is None:
            part = _parse_slice(self._index.policies_in(key))
            self._slices.put(key, part)
        return part

    def _changed_slice(self, request: PolicyRequest, added: str, narrowed: Mapping[str, str]) -> _Slice:
        if not narrowed:
            part = self._slice_of(request)
            if not added:
                return part
            return _Slice(part.handle.with_added_str(added), (*part.ids, TRIAL_ID))
        texts, ids = [], []
        for name in self._slice_of(request).ids:
            text = self.policies[name].text
            clause = narrowed.get(name)
            texts.append(f"{text[:-1]}\n{clause};" if clause else text)
            ids.append(name)
        if added:
            texts.append(added)
            ids.append(TRIAL_ID)
        return _Slice(cedarpy.PolicySet.from_str("\n".join(texts)), tuple(ids))

    def _obligations(self, judgement: Judgement) -> Obligations:
        permits = judgement.permits
        found = self._obligations_of.get(permits)
        if found is None:
            found = strictest(self.policies[name].obligations for name in permits)
            self._obligations_of.put(permits, found)
        return found

    def _missing_grant(self, request: PolicyRequest, judgement: Judgement) -> MissingGrant | None:
        if judgement.outcome is not Outcome.DENY or judgement.errors:
            return None
        try:
            return find_missing_grant(request, judgement.policies, self, self.policies)
        except Exception:
            # The denial stands; only the advice is missing.
            return None


def is_panic(error: BaseException) -> bool:
    """Whether this is a fault inside Cedar's Rust code, which does not arrive as an ``Exception``."""
    return type(error).__name__ == "PanicException"


def _parse_slice(policies: tuple[Policy, ...]) -> _Slice:
    handle = cedarpy.PolicySet.from_str("\n".join(policy.text for policy in policies))
    return _Slice(handle, tuple(policy.id for policy in policies), together(policy.reads for policy in policies))


def _entities_document(request: PolicyRequest) -> bytes:
    everyone = request.everyone()
    distinct = {entity.uid: entity for entity in everyone}
    if len(distinct) != len(everyone) and any(distinct[entity.uid] != entity for entity in everyone):
        raise ValueError("the request describes one entity twice, differently")
    document = b"[%b]" % b",".join([entity.document for entity in distinct.values()])
    if len(document) > MAX_REQUEST_BYTES:
        raise ValueError(f"the entities are larger than {MAX_REQUEST_BYTES} bytes")
    return document


def _named(request: PolicyRequest) -> _Named:
    others = [entity.document for entity in request.entities]
    return (request.action, request.principal.document, request.resource.document, *others)


def _evaluation(reply: Reply, ids: tuple[str, ...]) -> Evaluation:
    errors = reply.diagnostics.errors
    if reply.decision == "NoDecision":
        invalid = any(error.startswith(_INVALID_REQUEST) for error in errors)
        return Evaluation(answer=Answer.INVALID if invalid else Answer.FAILED, errors=errors)
    if errors:
        failed = sorted({int(number) for error in errors for number in _FAILED_POLICY.findall(error)})
        return Evaluation(answer=Answer.POLICY_ERRORS, policies=tuple(ids[n] for n in failed), errors=errors)
    answer = Answer.ALLOW if reply.decision == "Allow" else Answer.DENY
    determined = [int(reason[_POSITION:]) for reason in reply.diagnostics.reason]
    determined.sort()
    return Evaluation(answer=answer, policies=tuple([ids[position] for position in determined]))
