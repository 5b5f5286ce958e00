"""Starts a call that a person has to approve: at once where that was done, else when it is, if its caller waits.

Other policies may come meanwhile. Then nobody can say yes to what was asked for, and the call has to be judged again.
"""

import msgspec

from palyra.clock import Clock
from palyra.ids import ApprovalId
from palyra.policy.port import PolicyPort
from palyra.tools import call_entries, sqlite_approvals, sqlite_calls
from palyra.tools.approval import Approval, ApprovalBinding, ApprovalState
from palyra.tools.asking import Asked
from palyra.tools.call import CallDenied, CallState, ToolCallConfig
from palyra.tools.ports import Store
from palyra.tools.record import CallRecord
from palyra.tools.sqlite_calls import Started, Waiting
from palyra.tools.waiting import Waiter, WaitingRoom, asks_for


class ApprovalWait:
    def __init__(
        self, config: ToolCallConfig, *, policy: PolicyPort, store: Store, clock: Clock, room: WaitingRoom
    ) -> None:
        self._workspace = config.workspace
        self._ttl_ms = config.approval_ttl_ms
        self._max_waiting = config.max_concurrent_calls
        self._policy = policy
        self._store = store
        self._clock = clock
        self._room = room
        # Whose caller waits, by the call's id. One that is to be judged again stays, and keeps its place.
        self.waiting: dict[str, Waiter] = {}

    def question(self, asked: Asked) -> Approval:
        """What a person is asked about this call."""
        now = self._clock.now_ms()
        return Approval(
            id=str(ApprovalId.new()),
            state=ApprovalState.PENDING,
            binding=ApprovalBinding(
                principal=asked.record.principal,
                tool=asked.record.tool,
                argument_digest=asked.arguments.digest,
                bundle_digest=asked.decision["bundle_digest"],
                workspace=self._workspace,
                skill=asked.entry.spec.digest,
            ),
            session=asked.context.session,
            arguments=asked.arguments.value,
            touches=msgspec.to_builtins(asked.touches),
            policies=tuple(asked.decision["policies"]),
            created_ms=now,
            expires_ms=now + self._ttl_ms,
        )

    async def start_or_wait(self, asked: Asked, question: Approval, until: float) -> Started | CallRecord | None:
        """Starts the call under an approval that covers it, or waits for one.

        Returns None when other policies came while it waited: the call has to be judged by those."""
        while True:
            begun = await self._store.transact(lambda tx: sqlite_calls.start_approved_or_wait(tx, asked, question))
            if isinstance(begun, Started):
                return begun
            self._room.ring(begun.approval.id)
            left = until - self._clock.monotonic()
            decided = begun.approval
            waiter = self.waiting.get(asked.record.call_id)
            if left > 0 and not self._room.closed and (waiter or len(self.waiting) < self._max_waiting):
                waiter = self.waiting[asked.record.call_id] = waiter or Waiter()
                waiter.outdated = self._policy.bundle_digest != question.binding.bundle_digest
                judge_again = False
                try:
                    decided = await self._room.wait(begun.approval.id, left, waiter)
                    stays = not self._room.closed and not waiter.gone
                    judge_again = stays and await self._outdated(waiter, asked, decided)
                finally:
                    if not judge_again:
                        del self.waiting[asked.record.call_id]
                if judge_again:
                    return None
            if decided.state is not ApprovalState.APPROVED:
                return await self._answer_undecided(begun, decided)

    async def _outdated(self, waiter: Waiter, asked: Asked, approval: Approval) -> bool:
        """Whether other policies came while it waited. Then nobody can say yes to the request, so it goes."""
        if self._policy.bundle_digest == approval.binding.bundle_digest:
            return waiter.outdated
        actor = asked.record.actor
        await self._store.transact(lambda tx: sqlite_approvals.withdraw_outdated(tx, approval.id, actor=actor))
        self._room.ring(approval.id)
        return True

    async def _answer_undecided(self, begun: Waiting, approval: Approval) -> CallRecord:
        if approval.state is ApprovalState.PENDING:
            return msgspec.structs.replace(begun.record, error=asks_for(approval).as_dict())
        error = CallDenied(
            f"the request for approval was {approval.state.value}"
            + (f": {approval.reason}" if approval.reason else ""),
            hint="change the call, or ask again",
            approval_id=approval.id,
        )
        denied = msgspec.structs.replace(
            begun.record, state=CallState.DENIED, error=error.as_dict(), ended_ms=self._clock.now_ms()
        )
        return await self._store.transact(lambda tx: call_entries.note_refused(tx, denied))
