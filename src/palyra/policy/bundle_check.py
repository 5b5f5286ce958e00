"""Strict check of a bundle: it returns parsed policies, or all problems with their places.

Cedar judges every statement. The scanner here finds where each begins and ends, so that an error has a position. It
refuses shapes on which Cedar's recursive parser would crash the process instead of raising.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any

import cedarpy
import msgspec

from palyra.policy.bundle import BadBundle, Bundle, Policy, Problem, Scope, SourceText
from palyra.policy.decision import parse_obligations
from palyra.policy.limits import (
    MAX_BUNDLE_BYTES,
    MAX_CONDITIONALS_PER_POLICY,
    MAX_NESTING,
    MAX_POLICIES,
    MAX_POLICY_FILE_BYTES,
    MAX_POLICY_FILES,
    MAX_POLICY_LEVELS,
    MAX_PROBLEMS,
    MAX_TOKENS_PER_POLICY,
)

# Cedar ends a comment at a carriage return too: a scanner that did not would hide the policy after it.
_TRIVIA = re.compile(r"(?:\s+|//[^\n\r]*)+")
_TOKEN = re.compile(
    r'"[^"\\]*(?:\\.[^"\\]*)*"'  # a string, which may span lines
    r'|".*'  # a string that never ends takes the rest of the file, once, so that scanning stays linear
    r"|[A-Za-z_][A-Za-z0-9_]*"
    r"|[0-9]+"
    r"|::|==|!=|<=|>=|&&|\|\|"
    r"|.",
    re.DOTALL,
)
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


class Token(msgspec.Struct, frozen=True):
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """One policy as written, annotations and closing semicolon included. ``start`` is its offset in the file."""

    start: int
    text: str
    tokens: tuple[Token, ...]

    def prefix(self, count: int) -> str:
        return self.text[: self.tokens[count - 1].end - self.start] if count else ""


class Blame(msgspec.Struct, frozen=True):
    """An error with its ``offset`` in the file."""

    offset: int
    message: str


def tokens(text: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        if trivia := _TRIVIA.match(text, position):
            position = trivia.end()
            continue
        match = _TOKEN.match(text, position)
        if match is None:  # unreachable: the last alternative takes any character
            return
        yield Token(match[0], position)
        position = match.end()


def statements(text: str) -> Iterator[Statement]:
    """Yield every statement of a file. Text after the last semicolon is one too: Cedar will refuse it."""
    pending: list[Token] = []
    for token in tokens(text):
        pending.append(token)
        if token.text == ";":
            yield _statement(text, pending)
            pending = []
    if pending:
        yield _statement(text, pending)


def _statement(text: str, found: list[Token]) -> Statement:
    start, end = found[0].start, found[-1].end
    return Statement(start=start, text=text[start:end], tokens=tuple(found))


def complexity_of(statement: Statement) -> Blame | None:
    """Return the place of a shape that must not reach Cedar's parser, if there is one."""
    depth = conditionals = 0
    for count, token in enumerate(statement.tokens, start=1):
        if token.text in _OPENING:
            depth += 1
        elif token.text in _CLOSING:
            depth -= 1
        elif token.text == "if":
            conditionals += 1
        if depth > MAX_NESTING:
            return Blame(token.start, f"nested deeper than {MAX_NESTING} brackets")
        if conditionals > MAX_CONDITIONALS_PER_POLICY:
            return Blame(token.start, f"more than {MAX_CONDITIONALS_PER_POLICY} conditionals in one policy")
        if count > MAX_TOKENS_PER_POLICY:
            return Blame(token.start, f"longer than {MAX_TOKENS_PER_POLICY} words and symbols in one policy")
    return None


# The place of a syntax error: the parser gets prefixes of the statement's tokens, each closed with a semicolon. The
# shortest with the same error as the whole ends at the wrong token. Any other error quotes a name, and its place is
# where the policy uses the name.

UNFINISHED = "unexpected end of input"
UNREADABLE = "invalid token"
_UNEXPECTED = re.compile(r"unexpected token `(.*)`", re.DOTALL)
_QUOTED = re.compile(r"`([^`]+)`")
_AFTER_COLON = re.compile(r": (@?\w+)\Z")
_POLICY_PREFIX = re.compile(r"\Afor policy `[^`]*`, ")
_IMPOSSIBLE = "unable to find an applicable action given the policy scope constraints"


def blame_syntax(statement: Statement, error_of: Callable[[str], str | None]) -> Blame:
    """Return the first syntax error. ``error_of`` returns the parser's message for a text, or None."""
    message = error_of(statement.text) or ""
    last = statement.tokens[-1]
    if message == UNFINISHED:
        return Blame(last.end - 1, "the policy is not finished here: a `;`, or something before it, is missing")
    unexpected = _UNEXPECTED.search(message)
    if unexpected is None and message != UNREADABLE:
        return Blame(place_of_names(statement, message), message)
    if unexpected is not None and unexpected[1] == ";":
        return Blame(last.start, message)
    sound, wrong = 0, len(statement.tokens)
    while wrong - sound > 1:
        middle = (sound + wrong) // 2
        # The semicolon ends what Cedar would otherwise call unfinished, because it looks for a way to go on.
        if error_of(statement.prefix(middle) + " ;") == message:
            wrong = middle
        else:
            sound = middle
    return Blame(statement.tokens[wrong - 1].start, message)


def blame_validation(statement: Statement, messages: list[str], vocabulary: frozenset[str]) -> list[Blame]:
    """Return one entry per distinct error, without those that only follow from another."""
    plain = list(dict.fromkeys(_POLICY_PREFIX.sub("", message) for message in messages))
    specific = [message for message in plain if message != _IMPOSSIBLE]
    if not specific:
        return [
            Blame(
                statement.tokens[head_of(statement)].start,
                "this policy can never match: no action applies to the principal and resource its head names",
            )
        ]
    return [
        Blame(place_of_names(statement, message), message + _suggestion(message, vocabulary)) for message in specific
    ]


def head_of(statement: Statement) -> int:
    """Return the index of the ``permit`` or ``forbid`` token, after the annotations; 0 without one."""
    previous = ""
    for index, token in enumerate(statement.tokens):
        if token.text in ("permit", "forbid") and previous != "@":
            return index
        previous = token.text
    return 0


def place_of_names(statement: Statement, message: str) -> int:
    """Return the first use, after the annotations, of a name that the message quotes; else the policy's start."""
    for name in _names_in(message):
        spellings = (f".{name}", name, f'"{name}"') if "attribute" in message else (name, f'"{name}"')
        for spelling in spellings:
            if (offset := find(statement, spelling)) is not None:
                return offset + (1 if spelling == f".{name}" else 0)
    return statement.start


def find(statement: Statement, spelling: str) -> int | None:
    """Return the offset of these tokens in the statement: in head and body, else in annotations and strings."""
    wanted = [token.text for token in tokens(spelling)]
    written = [token.text for token in statement.tokens]
    for first in (head_of(statement), 0):
        for index in range(first, len(written) - len(wanted) + 1):
            if wanted and written[index : index + len(wanted)] == wanted:
                return statement.tokens[index].start
    inside = statement.text.find(spelling)
    return statement.start + inside if inside >= 0 else None


def _names_in(message: str) -> Iterator[str]:
    yield from _QUOTED.findall(message)
    if trailing := _AFTER_COLON.search(message):
        yield trailing[1]


def _suggestion(message: str, vocabulary: frozenset[str]) -> str:
    if not message.startswith(("unrecognized", "attribute")):
        return ""
    name = next(_names_in(message), "").removeprefix('Action::"').removesuffix('"')
    near = [] if name in vocabulary else get_close_matches(name, sorted(vocabulary), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}")


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
