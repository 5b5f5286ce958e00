"""What an argument could be, for a client that helps its user to fill one in."""

from collections.abc import Iterable
from typing import Final

from palyra.errors import InvalidInput
from palyra.mcp.resource_uri import CALL_TEMPLATE, PART_TEMPLATE, RUN_TEMPLATE, CallPart

# As many as the protocol lets an answer have.
MAX_SUGGESTIONS: Final = 100
_OWN: Final = {RUN_TEMPLATE: {"run_id"}, CALL_TEMPLATE: {"call_id"}, PART_TEMPLATE: {"call_id", "part"}}


class NothingToComplete(InvalidInput):
    code = "mcp.nothing_to_complete"
    hint = "prompts/list and resources/templates/list tell what has arguments, and which"


def is_own(template: str) -> bool:
    return template in _OWN


def suggestions(template: str, argument: str, begun: str, *, run_id: str, call_ids: Iterable[str]) -> list[str]:
    """For the variable of one of Palyra's own templates: what there is of the session, as far as it begins so."""
    if argument not in _OWN[template]:
        raise NothingToComplete(f"{template} has no variable {argument[:64]!r}")
    known = {"run_id": (run_id,), "call_id": tuple(call_ids), "part": tuple(part.value for part in CallPart)}
    return [each for each in known[argument] if each.startswith(begun)][:MAX_SUGGESTIONS]
