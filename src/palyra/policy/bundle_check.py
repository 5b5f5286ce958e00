"""Strict check of a bundle. It returns parsed policies, or all problems with their places."""

import re
from collections.abc import Iterator
from typing import Any

import cedarpy
import msgspec

from palyra.policy.bundle import BadBundle, Bundle, Policy, Problem, Scope, SourceText
from palyra.policy.cedar_syntax import (
    Blame,
    Statement,
    blame_syntax,
    blame_validation,
    complexity_of,
    find,
    statements,
    tokens,
)
from palyra.policy.decision import parse_obligations
from palyra.policy.limits import (
    MAX_BUNDLE_BYTES,
    MAX_POLICIES,
    MAX_POLICY_FILE_BYTES,
    MAX_POLICY_FILES,
    MAX_POLICY_LEVELS,
    MAX_PROBLEMS,
)

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")
_QUOTED = re.compile(r"`([^`]+)`")


class CheckedBundle(msgspec.Struct, frozen=True, kw_only=True):
    bundle: Bundle
    schema: Any
    policies: tuple[Policy, ...]


def check_bundle(bundle: Bundle) -> CheckedBundle:
    _refuse(_find_oversized(bundle))
    schema = _parse_schema(bundle)
    checker = _Checker(schema, _vocabulary(bundle.schema))
    problems: list[Problem] = []
    policies: list[Policy] = []
    for source in bundle.sources():
        for result in checker.check(source):
            (problems if isinstance(result, Problem) else policies).append(result)  # type: ignore[arg-type]
            if len(problems) >= MAX_PROBLEMS:
                _refuse(problems)
    _refuse(problems)
    return CheckedBundle(bundle=bundle, schema=schema, policies=tuple(policies))


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise BadBundle(tuple(problems))


def _find_oversized(bundle: Bundle) -> list[Problem]:
    if len(bundle.files) > MAX_POLICY_FILES:
        name, text = bundle.files[MAX_POLICY_FILES]
        return [SourceText(name=name, text=text).problem(0, f"more than {MAX_POLICY_FILES} policy files")]
    total = 0
    for source in bundle.sources():
        size = len(source.text.encode(errors="surrogatepass"))
        total += size
        if size > MAX_POLICY_FILE_BYTES:
            return [Problem(file=source.name, line=1, column=1, message=f"larger than {MAX_POLICY_FILE_BYTES} bytes")]
        if total > MAX_BUNDLE_BYTES:
            message = f"the policy files together are larger than {MAX_BUNDLE_BYTES} bytes"
            return [Problem(file=source.name, line=1, column=1, message=message)]
    return []


def _parse_schema(bundle: Bundle) -> Any:
    try:
        return cedarpy.Schema.from_str(bundle.schema)
    except ValueError as error:
        message = str(error)
        source = SourceText(name=bundle.schema_name, text=bundle.schema)
        names = [*_QUOTED.findall(message), *message.rpartition(": ")[2].split(", ")]
        places = [token.start for token in tokens(bundle.schema) if token.text in names]
        raise BadBundle((source.problem(places[0] if places else 0, f"schema: {message}"),)) from error


def _vocabulary(schema: str) -> frozenset[str]:
    return frozenset(
        token.text.strip('"') for token in tokens(schema) if token.text[0] == '"' or token.text[0].isalpha()
    )


class _Checker:
    """Checker of the files in order; ids are unique over all of them."""

    def __init__(self, schema: Any, vocabulary: frozenset[str]) -> None:
        self._schema = schema
        self._vocabulary = vocabulary
        self._placed: dict[str, str] = {}

    def check(self, source: SourceText) -> Iterator[Policy | Problem]:
        found = list(statements(source.text))
        sound = True
        for statement in found:
            for result in self._check_statement(source, statement):
                sound = sound and isinstance(result, Policy)
                yield result
        if sound and found and len(_parse(source.text)["staticPolicies"]) != len(found):
            yield source.problem(0, "Cedar reads another number of policies in this file than Palyra does")

    def _check_statement(self, source: SourceText, statement: Statement) -> Iterator[Policy | Problem]:
        if len(self._placed) >= MAX_POLICIES:
            yield source.problem(statement.start, f"more than {MAX_POLICIES} policies")
            return
        if excess := complexity_of(statement):
            yield source.problem(excess.offset, excess.message)
            return
        try:
            document: dict[str, Any] | None = _parse(statement.text)
        except ValueError:
            blame = blame_syntax(statement, _syntax_error)
            yield source.problem(blame.offset, blame.message)
            return
        except RecursionError:
            document = None
        if document is None or _is_too_deep(statement, document):
            yield source.problem(statement.start, "too many chained conditions; write them as a set with `contains`")
            return
        if document["templates"]:
            slot = find(statement, "?") or statement.start
            yield source.problem(slot, "templates (`?principal`, `?resource`) are not supported: write the policy out")
            return
        yield from self._judge(source, statement, next(iter(document["staticPolicies"].values())))

    def _judge(self, source: SourceText, statement: Statement, policy: dict[str, Any]) -> Iterator[Policy | Problem]:
        annotations = {name: text or "" for name, text in policy.get("annotations", {}).items()}
        policy_id = annotations.get("id", "")
        obligations, faults = parse_obligations(annotations, policy["effect"])
        blames = [
            *self._blame_id(source, statement, policy_id),
            *(Blame(find(statement, _QUOTED.findall(fault)[0]) or statement.start, fault) for fault in faults),
            *self._blame_schema(statement, policy),
        ]
        for blame in blames:
            yield source.problem(blame.offset, blame.message, policy=policy_id)
        if not blames:
            yield Policy(
                id=policy_id,
                effect=policy["effect"],
                location=source.locate(statement.start),
                text=statement.text,
                scope=Scope.from_cedar_json(policy),
                obligations=obligations,
            )

    def _blame_id(self, source: SourceText, statement: Statement, policy_id: str) -> Iterator[Blame]:
        if not policy_id:
            yield Blame(statement.start, 'the policy has no name: put @id("a-unique-name") before it')
        elif not _ID.fullmatch(policy_id):
            place = find(statement, "@id") or statement.start
            yield Blame(
                place,
                "an @id has letters, digits and . _ : / - only, at most 128, and starts with one of the first two",
            )
        elif policy_id in self._placed:
            place = find(statement, "@id") or statement.start
            yield Blame(place, f"@id {policy_id} is already used at {self._placed[policy_id]}")
        else:
            self._placed[policy_id] = str(source.locate(statement.start))

    def _blame_schema(self, statement: Statement, policy: dict[str, Any]) -> Iterator[Blame]:
        result = cedarpy.validate_policies(statement.text, self._schema)
        if not result.validation_passed:
            errors = [error.error for error in result.errors] or ["the policy does not fit the schema"]
            yield from blame_validation(statement, errors, self._vocabulary)
        # Cedar types `has` on an unknown attribute as false: after a renaming, a forbid would quietly stop forbidding.
        for name in dict.fromkeys(_list_tested_attributes(policy["conditions"])):
            if name not in self._vocabulary:
                message = f"attribute `{name}` is declared nowhere in the schema, so this test is never true"
                yield from blame_validation(statement, [message], self._vocabulary)


def _syntax_error(text: str) -> str | None:
    try:
        cedarpy.policies_to_json_str(text)
    except ValueError as error:
        return str(error)
    return None


def _parse(text: str) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(cedarpy.policies_to_json_str(text))
    return document


def _is_too_deep(statement: Statement, document: dict[str, Any]) -> bool:
    if len(statement.tokens) < MAX_POLICY_LEVELS // 2:
        # One word or symbol makes at most two levels.
        return False
    level: list[Any] = [document]
    for _ in range(MAX_POLICY_LEVELS):
        parts = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list))]
        if not parts:
            return False
        level = [part for each in parts for part in each]
    return True


def _list_tested_attributes(conditions: list[Any]) -> Iterator[str]:
    pending: list[Any] = [condition["body"] for condition in conditions]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            tested = node.get("has")
            if isinstance(tested, dict) and isinstance(tested.get("attr"), str):
                yield tested["attr"]
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
