"""What settings and policy refused to a skill during one call, for its caller where the skill then fails.

The caller learns which service, the code of the refusal and the host that the skill itself asked for. Why it was
refused, and the names of secrets, channels and stored values, are in the journal for who operates this.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from palyra.errors import Denied, NeedsApproval, PalyraError
from palyra.journal.redact import Redactor
from palyra.wasm.abi import Status
from palyra.wasm.outcome import CapabilityDenied
from palyra.wasm.ports import HostRefusal

# The first few tell what is wrong; a skill that tries again and again is refused again and again.
MAX_TOLD: Final = 8


class SkillRefusals:
    """Of one call."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._noted: dict[tuple[str, str, str, str], None] = {}

    @contextmanager
    def noted(self, service: str, host: str = "", line: str = "") -> Iterator[None]:
        """Notes a refusal on its way to the guest, which learns only that there was one. ``host`` is as the guest wrote
        it, ``line`` as the manifest has it, which a person read before it was approved."""
        try:
            yield
        except HostRefusal as refusal:
            if refusal.status is Status.DENIED:
                self._note(service, CapabilityDenied.code, host, line)
            raise
        except (Denied, NeedsApproval) as refusal:
            self._note(service, refusal.code, host, line)
            raise

    def _note(self, service: str, code: str, host: str, line: str) -> None:
        if len(self._noted) < MAX_TOLD:
            self._noted[(service, code, self._redactor.text(host), self._redactor.text(line))] = None

    def explain(self, failure: PalyraError) -> None:
        """Has the error that ended the call say what was refused before: perhaps that is why."""
        if not self._noted:
            return
        failure.details["refused"] = [_told(service, code, host) for service, code, host, _ in self._noted]
        # A hint is read as Palyra's own words: nothing that the guest wrote is in it.
        words = {f"{service}{f' to {line}' if line else ''} ({code})": None for service, code, _, line in self._noted}
        failure.hint = f"{failure.hint}; before that Palyra refused it {', '.join(words)}"


def _told(service: str, code: str, host: str) -> dict[str, Any]:
    return {"service": service, "code": code} | ({"host": host} if host else {})
