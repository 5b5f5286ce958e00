"""Starred rules held against the Public Suffix List: names beneath which strangers register names of their own.

The list comes with the package ``publicsuffixlist`` and is read where it lies: its parser takes 30 ms, a search of its
text 1 ms, and a command that reads settings should start at once. Nothing is fetched.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from palyra.egress.domain.rules import HostRule
from palyra.errors import InvalidInput

_END_OF_REGISTRIES: Final = b"// ===END ICANN DOMAINS==="
# RFC 8375 gives it to the network of each home.
_AT_HOME: Final = "home.arpa"


class SharedSuffix(InvalidInput):
    code = "egress.shared_suffix"
    hint = "name the hosts one by one, or a name that one owner has, as *.example.co.uk"


def refuse_shared(rules: Iterable[HostRule], accepted: Iterable[str] = ()) -> None:
    """Raise ``SharedSuffix`` for a rule ``*.NAME`` where anybody may get a name beneath NAME.

    ``accepted`` are names that the operator opens all the same. No registry's suffix can be one of them.
    """
    open_names = frozenset(accepted)
    for rule in rules:
        if not rule.below or rule.host == _AT_HOME:
            continue
        by_registry = _find_suffix(rule.host)
        if by_registry is None or (not by_registry and rule.host in open_names):
            continue
        if by_registry:
            raise SharedSuffix(f"{rule} would allow every site of {rule.host}: anybody can register a name there")
        raise SharedSuffix(
            f"{rule} would allow the sites of strangers: {rule.host} gives names to anybody",
            hint=f'name the hosts one by one; to allow them all, set egress.shared_suffixes = ["{rule.host}"]',
        )


@cache
def _find_suffix(name: str) -> bool | None:
    """Return None if one owner has all names beneath; else whether a registry gives them to anybody, or a provider."""
    text = _read_list()
    try:
        spelled = name.encode().decode("idna").encode()
    except UnicodeError:
        # A label of a newer IDNA: the list has none.
        spelled = name.encode()
    parent = spelled.partition(b".")[2]
    # The name is on the list, or is one of a whole level on it, or there are names of the list beneath it.
    wanted = [b"\n%b\n" % spelled, b".%b\n" % spelled]
    if text.find(b"\n!%b\n" % spelled) < 0:
        wanted.append(b"\n*.%b\n" % parent)
    found = [at for at in map(text.find, wanted) if at >= 0]
    return min(found) < text.find(_END_OF_REGISTRIES) if found else None


@cache
def _read_list() -> bytes:
    import publicsuffixlist

    return b"\n" + Path(publicsuffixlist.PSLFILE).read_bytes()
