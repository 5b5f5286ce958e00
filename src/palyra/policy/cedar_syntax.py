"""Scanner of Cedar text: statements and tokens with their offsets, and the places of Cedar's errors.

Cedar judges every statement. The scanner finds where each begins and ends, so that an error has a position. It refuses
shapes on which Cedar's recursive parser would crash the process instead of raising.
"""

import re
from collections.abc import Callable, Iterator
from difflib import get_close_matches

import msgspec

from palyra.policy.limits import MAX_CONDITIONALS_PER_POLICY, MAX_NESTING, MAX_TOKENS_PER_POLICY

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
