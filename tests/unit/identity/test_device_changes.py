"""The life of a device by generations, against a model: whoever does what in whatever order, in two processes."""

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakes.identity_harness import ACTOR, DeviceKey, IdentityHarness
from palyra.errors import PalyraError
from palyra.identity.device import DeviceId, DeviceKind
from palyra.identity.limits import MAX_LIVE_CERTIFICATES
from palyra.identity.records import IssuedCertificate, PeerIdentity

LIFE = 600
KEYS = [DeviceKey() for _ in range(4)]


class Generations(RuleBasedStateMachine):
    """The model keeps what was issued and by which key, the newest generation used, and how the device stands."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="palyra-generations-"))
        self.harness = IdentityHarness(self.folder)
        self.runner = asyncio.Runner()
        self.managers = [self.harness.manager(certificate_seconds=LIFE) for _ in range(2)]
        self.device_id = DeviceId.new()
        self.issued: list[IssuedCertificate] = []
        self.keys: list[int] = []
        self.used = 0
        self.state = "active"
        self.notified: list[tuple[str, str]] = []
        self.managers[0].on_ended.append(lambda device_id, code: self.notified.append((device_id, code)))

    def teardown(self) -> None:
        self.runner.close()
        self.harness.close()
        shutil.rmtree(self.folder)

    def ended(self, certificate: IssuedCertificate) -> bool:
        return self.harness.clock.now >= certificate.not_after_ms

    def attempt(self, work: Any) -> Any:
        """What came of it: a value, or the code of the refusal."""
        try:
            return self.runner.run(work)
        except PalyraError as refused:
            return refused.code

    def peer(self, certificate: IssuedCertificate) -> PeerIdentity:
        return PeerIdentity(
            device_id=self.device_id,
            kind=DeviceKind.NODE,
            fingerprint=certificate.fingerprint,
            generation=certificate.generation,
            not_after_ms=certificate.not_after_ms,
        )

    @rule(process=st.integers(0, 1), key=st.integers(0, 3))
    def issue(self, process: int, key: int) -> None:
        csr = KEYS[key].csr()
        outcome = self.attempt(self.managers[process].issue(DeviceKind.NODE, self.device_id, csr, actor=ACTOR))
        if not self.issued:
            assert outcome.generation == 1
            self.issued.append(outcome)
            self.keys.append(key)
        elif self.state != "active":
            assert outcome == f"identity.{self.state}"
        elif len(self.issued) > 1 or self.keys[0] != key:
            assert outcome == "identity.already_issued"
        elif self.ended(self.issued[0]):
            assert outcome == "identity.expired"
        else:
            assert outcome.certificate_pem == self.issued[0].certificate_pem

    @precondition(lambda self: self.issued)
    @rule(process=st.integers(0, 1), key=st.integers(0, 3), data=st.data(), back=st.integers(0, 2))
    def renew(self, process: int, key: int, data: st.DataObject, back: int) -> None:
        """Any certificate that was ever issued, also a superseded one, and a message that may say an older number."""
        held = data.draw(st.sampled_from(self.issued[-3:]))
        presented = held.generation - (back if back == 2 else 0)
        newest, count = self.issued[-1], len(self.issued)
        live = len([one for one in self.issued[:-1] if not self.ended(one)]) + 1
        outcome = self.attempt(self.managers[process].renew(self.peer(held), KEYS[key].csr(), presented))
        known = not self.dropped(held)
        if not known:
            assert outcome == "identity.unknown_certificate"
        elif self.state != "active":
            assert outcome == f"identity.{self.state}"
        elif self.ended(held):
            assert outcome == "identity.expired"
        elif presented == count:
            if live >= MAX_LIVE_CERTIFICATES:
                assert outcome == "identity.too_many_certificates"
            else:
                assert outcome.generation == count + 1
                self.issued.append(outcome)
                self.keys.append(key)
        elif presented == count - 1 and self.used < count and self.keys[-1] == key:
            assert outcome.certificate_pem == newest.certificate_pem
        else:
            assert outcome == "identity.stale_generation"
            self.state = "locked"

    def dropped(self, certificate: IssuedCertificate) -> bool:
        """Renewals sweep away what had ended by then; whether one was swept is asked of the table."""
        rows = self.harness._stores[0].read(
            "SELECT 1 FROM identity_certificates WHERE fingerprint = ?", (certificate.fingerprint,)
        )
        assert rows or (self.ended(certificate) and certificate.generation < len(self.issued))
        return not rows

    @precondition(lambda self: self.issued)
    @rule(process=st.integers(0, 1), data=st.data())
    def use(self, process: int, data: st.DataObject) -> None:
        held = data.draw(st.sampled_from(self.issued[-2:]))
        try:
            peer = self.managers[process].identify(held.fingerprint)
        except PalyraError:
            return
        self.runner.run(self.managers[process].used(peer))
        self.used = max(self.used, held.generation)

    @precondition(lambda self: self.issued)
    @rule(seconds=st.sampled_from([1, LIFE // 3, LIFE * 2 // 3, LIFE]))
    def wait(self, seconds: int) -> None:
        self.harness.clock.forward(seconds)

    @precondition(lambda self: self.issued)
    @rule(process=st.integers(0, 1))
    def rotate(self, process: int) -> None:
        outcome = self.attempt(self.managers[process].rotate_authority(actor=ACTOR))
        assert outcome in (None, "identity.rotation_running")

    @precondition(lambda self: len(self.issued) > 2)
    @rule(process=st.integers(0, 1))
    def revoke(self, process: int) -> None:
        self.runner.run(self.managers[process].revoke(self.device_id, reason="lost", actor=ACTOR))
        self.state = "revoked"

    @invariant()
    def every_process_says_the_same_of_every_certificate(self) -> None:
        # More than the time after which another process's change must be seen.
        self.harness.clock.forward(0.5)
        for certificate in self.issued[-4:]:
            gone = self.dropped(certificate)
            for manager in self.managers:
                try:
                    said = manager.identify(certificate.fingerprint).generation
                except PalyraError as refused:
                    said = refused.code
                if gone:
                    # The cache may still know the name of what the table has swept.
                    assert said in ("identity.unknown_certificate", "identity.expired", f"identity.{self.state}")
                elif self.state != "active":
                    assert said == f"identity.{self.state}"
                elif self.ended(certificate):
                    assert said == "identity.expired"
                elif certificate.generation < self.used:
                    assert said == "identity.superseded"
                else:
                    assert said == certificate.generation
        # Whoever did it, the end is told once.
        assert [code for _, code in self.notified] in ([], ["identity.locked"], ["identity.revoked"])
        assert bool(self.notified) == (self.state != "active")


TestGenerations = Generations.TestCase
TestGenerations.settings = settings(
    max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
