"""The leases that the daemon told this proxy of. Pure: orders and instants in, what to cut out."""

from collections.abc import Iterable

import msgspec

from palyra.workers.egress import limits
from palyra.workers.egress.errors import FenceDiffers, LeaseNotGranted, OtherWorker, TooManyLeases
from palyra.workers.egress.lease_grant import AccessEvent, AccessState, LeaseAccess, LeaseGrant, after


class LeaseRef(msgspec.Struct, frozen=True):
    lease_id: str
    fence: int


class LeaseBook:
    def __init__(self) -> None:
        self._leases: dict[str, LeaseAccess] = {}

    def __len__(self) -> int:
        return len(self._leases)

    def of(self, lease_id: str) -> LeaseAccess | None:
        return self._leases.get(lease_id)

    def ids(self) -> frozenset[str]:
        return frozenset(self._leases)

    def granted(self, grant: LeaseGrant, now_ms: int) -> None:
        """A grant that is known stays as it is: its deadline counts from when it was told first."""
        known = self._leases.get(grant.lease_id)
        if known is not None and known.grant.fence >= grant.fence:
            return
        if known is None and len(self._leases) >= limits.MAX_LEASES_KEPT and not self._drop_ended():
            raise TooManyLeases(f"{limits.MAX_LEASES_KEPT} leases are kept already")
        self._leases[grant.lease_id] = LeaseAccess(
            grant=grant, state=AccessState.GRANTED, ends_ms=now_ms + grant.timeout_ms
        )

    def ended(self, ref: LeaseRef, now_ms: int) -> LeaseAccess | None:
        """The lease as it is now, if this ended it."""
        known = self._leases.get(ref.lease_id)
        if known is None or known.is_over or known.grant.fence > ref.fence:
            return None
        return self._step(known, AccessEvent.END, ended_ms=now_ms)

    def reconciled(self, still_open: Iterable[LeaseRef], now_ms: int) -> list[LeaseAccess]:
        """The daemon's whole list: what is not on it is over. Those that this ended."""
        listed = frozenset(still_open)
        gone = [each for each in self._leases.values() if not each.is_over and _ref(each) not in listed]
        return [self._step(each, AccessEvent.END, ended_ms=now_ms) for each in gone]

    def due(self, now_ms: int) -> list[LeaseAccess]:
        """Those whose deadline passed, ended; and forgets what ended long ago."""
        late = [each for each in self._leases.values() if not each.is_over and now_ms >= each.ends_ms]
        for each in list(self._leases.values()):
            if each.state is AccessState.ENDED and now_ms >= each.ended_ms + limits.ENDED_KEPT_MS:
                del self._leases[each.grant.lease_id]
        return [self._step(each, AccessEvent.END, ended_ms=now_ms) for each in late]

    def require(self, worker_id: str, ref: LeaseRef) -> LeaseAccess:
        """The lease that a worker speaks of, in whatever state; raises for one that the daemon did not grant it."""
        known = self._leases.get(ref.lease_id)
        if known is None:
            raise LeaseNotGranted(f"no grant for the lease {ref.lease_id[:64]!r} is known here")
        if known.grant.worker_id != worker_id:
            raise OtherWorker("the lease was granted to another worker")
        if known.grant.fence != ref.fence:
            raise FenceDiffers(f"the lease has another fencing number than {ref.fence}")
        return known

    def opened(self, access: LeaseAccess) -> LeaseAccess:
        return self._step(access, AccessEvent.OPEN)

    def closed(self, access: LeaseAccess, moved: int) -> LeaseAccess:
        """``moved`` bytes went through the door and are gone from the lease's budget."""
        current = self._leases.get(access.grant.lease_id, access)
        return self._step(current, AccessEvent.CLOSE, spent=current.spent + moved)

    def _step(self, access: LeaseAccess, event: AccessEvent, **facts: int) -> LeaseAccess:
        changed = msgspec.structs.replace(access, state=after(access.state, event), **facts)
        self._leases[access.grant.lease_id] = changed
        return changed

    def _drop_ended(self) -> bool:
        """One that is over, of those that were granted first."""
        oldest = next((key for key, each in self._leases.items() if each.state is AccessState.ENDED), None)
        if oldest is not None:
            del self._leases[oldest]
        return oldest is not None


def _ref(access: LeaseAccess) -> LeaseRef:
    return LeaseRef(access.grant.lease_id, access.grant.fence)
