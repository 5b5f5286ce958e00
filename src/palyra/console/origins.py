"""Which call asked for an approval: looked up in the journal, among the newest requests."""

from collections.abc import Sequence

import msgspec

from palyra.journal.rare_kinds import RARE
from palyra.tools.ports import Store

# Requests looked at; one that waits is young, so it is among them.
NEWEST = 2_000


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    run: str = ""
    call: str = ""
    actor: str = ""


class _Payload(msgspec.Struct, frozen=True):
    approval_id: str = ""


def who_asked(store: Store, approval_ids: Sequence[str]) -> dict[str, Asked]:
    wanted = set(approval_ids)
    found: dict[str, Asked] = {}
    if not wanted:
        return found
    rows = store.read(
        f"SELECT run, call, actor, payload FROM events WHERE kind = 'approval.requested' AND {RARE}"  # noqa: S608
        " ORDER BY seq DESC LIMIT ?",
        (NEWEST,),
    )
    for run, call, actor, payload in rows:
        approval_id = msgspec.json.decode(payload, type=_Payload).approval_id
        if approval_id in wanted:
            found[approval_id] = Asked(run=run, call=call, actor=actor)
            if len(found) == len(wanted):
                break
    return found
