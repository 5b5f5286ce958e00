"""Splits Cedar text into statements and tokens, with their offsets, without understanding them.

Cedar judges every statement; this only finds where each begins and ends, so that an error has a position, and refuses
shapes on which Cedar's recursive parser would crash the process instead of raising.
"""

import re
from collections.abc import Iterator

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
        """The statement's text up to and including its first ``count`` tokens."""
        return self.text[: self.tokens[count - 1].end - self.start] if count else ""


class TooComplex(msgspec.Struct, frozen=True):
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
    """Every statement of a file, in order. Text after the last semicolon is a statement too: Cedar will refuse it."""
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


def complexity_of(statement: Statement) -> TooComplex | None:
    """Whether the statement has a shape that must not reach Cedar's parser, and where."""
    depth = conditionals = 0
    for count, token in enumerate(statement.tokens, start=1):
        if token.text in _OPENING:
            depth += 1
        elif token.text in _CLOSING:
            depth -= 1
        elif token.text == "if":
            conditionals += 1
        if depth > MAX_NESTING:
            return TooComplex(token.start, f"nested deeper than {MAX_NESTING} brackets")
        if conditionals > MAX_CONDITIONALS_PER_POLICY:
            return TooComplex(token.start, f"more than {MAX_CONDITIONALS_PER_POLICY} conditionals in one policy")
        if count > MAX_TOKENS_PER_POLICY:
            return TooComplex(token.start, f"longer than {MAX_TOKENS_PER_POLICY} words and symbols in one policy")
    return None
