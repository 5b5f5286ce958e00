import asyncio
import logging

import pytest

from fakes.identity_harness import ACTOR, DAY_SECONDS, DeviceKey, IdentityHarness
from palyra.identity.device import (
    AlreadyIssued,
    CertificateExpired,
    CertificateSuperseded,
    CsrAsksForAuthority,
    DeviceId,
    DeviceKind,
    DeviceLocked,
    DeviceRevoked,
    GenerationAhead,
    SpiffeId,
    StaleGeneration,
    TooManyCertificates,
    TooManyDevices,
    UnknownCertificate,
    UnknownDevice,
    renewal_due_ms,
)
from palyra.identity.identity_manager import IdentityManager
from palyra.identity.limits import CLOCK_SKEW_MS, MAX_LIVE_CERTIFICATES, RECHECK_SECONDS
from palyra.identity.records import IssuedCertificate, PeerIdentity


async def issued(manager: IdentityManager, key: DeviceKey | None = None) -> IssuedCertificate:
    csr = (key or DeviceKey()).csr()
    return await manager.issue(DeviceKind.NODE, DeviceId.new(), csr, actor=ACTOR)


async def connected(manager: IdentityManager, certificate: IssuedCertificate) -> PeerIdentity:
    peer = manager.identify(certificate.fingerprint)
    await manager.used(peer)
    return peer


async def test_a_device_gets_a_certificate_for_its_key(harness: IdentityHarness) -> None:
    from cryptography import x509

    manager, key = harness.manager(), DeviceKey()
    device_id = DeviceId.new()
    made = await manager.issue(DeviceKind.EGRESS, device_id, key.csr(common_name="root"), actor=ACTOR)
    leaf = x509.load_pem_x509_certificate(made.certificate_pem)
    assert leaf.public_key() == key.key.public_key() and "root" not in leaf.subject.rfc4514_string()
    [uri] = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert SpiffeId.parse(uri.value) == SpiffeId(manager.trust_domain, DeviceKind.EGRESS, device_id)
    assert made.ca_bundle_pem == manager.ca_bundle_pem() and made.generation == 1
    assert made.not_after_ms - harness.clock.now == DAY_SECONDS * 1_000
    assert made.not_before_ms == harness.clock.now - CLOCK_SKEW_MS
    peer = manager.identify(made.fingerprint)
    assert (peer.device_id, peer.kind, peer.generation) == (device_id, DeviceKind.EGRESS, 1)
    assert harness.events("identity.certificate_issued")[0][1]["fingerprint"] == made.fingerprint


async def test_the_same_key_gets_the_same_answer_and_another_key_none(harness: IdentityHarness) -> None:
    manager, key = harness.manager(), DeviceKey()
    first = await issued(manager, key)
    again = harness.manager()
    assert await again.issue(first.kind, first.device_id, key.csr(), actor=ACTOR) == first, "also after a restart"
    with pytest.raises(AlreadyIssued):
        await manager.issue(first.kind, first.device_id, DeviceKey().csr(), actor=ACTOR)
    with pytest.raises(AlreadyIssued):
        await manager.issue(DeviceKind.WORKER, first.device_id, key.csr(), actor=ACTOR)
    assert len(harness.events("identity.certificate_issued")) == 1


@pytest.mark.promise("P-device-known")
async def test_one_request_twice_at_once_is_one_certificate(harness: IdentityHarness) -> None:
    one, other, key, device_id = harness.manager(), harness.manager(), DeviceKey(), DeviceId.new()
    answers = await asyncio.gather(
        *(manager.issue(DeviceKind.NODE, device_id, key.csr(), actor=ACTOR) for manager in (one, other) * 4)
    )
    assert len({answer.fingerprint for answer in answers}) == 1


@pytest.mark.promise("P-device-known")
async def test_two_claimants_one_certificate(harness: IdentityHarness) -> None:
    manager, device_id = harness.manager(), DeviceId.new()
    answers = await asyncio.gather(
        *(manager.issue(DeviceKind.NODE, device_id, DeviceKey().csr(), actor=ACTOR) for _ in range(4)),
        return_exceptions=True,
    )
    assert sum(isinstance(answer, AlreadyIssued) for answer in answers) == 3
    assert sum(isinstance(answer, IssuedCertificate) for answer in answers) == 1


async def test_a_bad_request_changes_nothing(harness: IdentityHarness) -> None:
    from cryptography import x509

    manager = harness.manager()
    with pytest.raises(CsrAsksForAuthority):
        csr = DeviceKey().csr(x509.BasicConstraints(ca=True, path_length=None))
        await manager.issue(DeviceKind.NODE, DeviceId.new(), csr, actor=ACTOR)
    assert manager.devices() == []


async def test_an_unknown_certificate_is_nobodys(harness: IdentityHarness) -> None:
    manager = harness.manager()
    with pytest.raises(UnknownCertificate):
        manager.identify("0" * 64)
    made = await issued(manager)
    with pytest.raises(UnknownCertificate):
        manager.identify(made.fingerprint.upper())


async def test_a_made_up_peer_renews_nothing(harness: IdentityHarness) -> None:
    """Another device's id with one's own certificate, or a generation that is not the certificate's."""
    manager = harness.manager()
    mine, theirs = await issued(manager), await issued(manager)
    own = manager.identify(mine.fingerprint)
    for forged in (
        PeerIdentity(
            device_id=theirs.device_id,
            kind=own.kind,
            fingerprint=own.fingerprint,
            generation=1,
            not_after_ms=own.not_after_ms,
        ),
        PeerIdentity(
            device_id=own.device_id,
            kind=own.kind,
            fingerprint=own.fingerprint,
            generation=2,
            not_after_ms=own.not_after_ms,
        ),
    ):
        with pytest.raises(UnknownCertificate):
            await manager.renew(forged, DeviceKey().csr(), 1)
        with pytest.raises(UnknownCertificate):
            await manager.used(forged)
    assert {device.state for device in manager.devices()} == {"active"}


async def test_renewal_goes_on_through_many_lives(harness: IdentityHarness) -> None:
    manager = harness.manager(certificate_seconds=60)
    certificate = await issued(manager)
    for generation in range(1, 16):
        peer = await connected(manager, certificate)
        due = renewal_due_ms(certificate.not_before_ms, certificate.not_after_ms)
        harness.clock.forward((due - harness.clock.now) / 1_000)
        renewed = await manager.renew(peer, DeviceKey().csr(), generation)
        assert renewed.generation == generation + 1
        assert manager.identify(certificate.fingerprint) == peer, "the old one is good until the new one is used"
        await connected(manager, renewed)
        with pytest.raises(CertificateSuperseded):
            manager.identify(certificate.fingerprint)
        certificate = renewed
    assert harness.store().read("SELECT COUNT(*) FROM identity_certificates")[0][0] <= 3
    assert harness.clock.now > 5 * 60_000


@pytest.mark.promise("P-device-known")
async def test_a_lost_answer_is_given_again_to_the_same_key(harness: IdentityHarness) -> None:
    manager, key = harness.manager(), DeviceKey()
    peer = await connected(manager, await issued(manager))
    lost = await manager.renew(peer, key.csr(), 1)
    restarted = harness.manager()
    assert await restarted.renew(peer, key.csr(), 1) == lost
    assert len(harness.events("identity.certificate_renewed")) == 1


@pytest.mark.promise("P-device-known")
async def test_a_copied_key_shows(harness: IdentityHarness) -> None:
    """The thief renews first and uses it. The owner is refused, tries to renew, and so locks both out."""
    manager, ended = harness.manager(), []
    manager.on_ended.append(lambda device_id, code: ended.append((device_id, code)))
    stolen = await issued(manager)
    peer = await connected(manager, stolen)
    thief = await manager.renew(peer, DeviceKey().csr(), 1)
    await connected(manager, thief)
    with pytest.raises(CertificateSuperseded):
        manager.identify(stolen.fingerprint)
    owner = manager.identify_for_renewal(stolen.fingerprint)
    with pytest.raises(StaleGeneration):
        await manager.renew(owner, DeviceKey().csr(), 1)
    assert ended == [(stolen.device_id, "identity.locked")]
    for certificate in (stolen, thief):
        with pytest.raises(DeviceLocked):
            manager.identify(certificate.fingerprint)
        with pytest.raises(DeviceLocked):
            manager.identify_for_renewal(certificate.fingerprint)
    with pytest.raises(DeviceLocked):
        await manager.renew(peer, DeviceKey().csr(), 2 - 1)
    [(_, entry)] = harness.events("identity.device_locked")
    assert (entry["presented"], entry["generation"], entry["fingerprint"]) == (1, 2, stolen.fingerprint)
    assert manager.device(stolen.device_id).reason.startswith("generation 1 was presented")


async def test_another_key_in_the_place_of_a_lost_answer_locks(harness: IdentityHarness) -> None:
    manager = harness.manager()
    peer = await connected(manager, await issued(manager))
    await manager.renew(peer, DeviceKey().csr(), 1)
    with pytest.raises(StaleGeneration):
        await manager.renew(peer, DeviceKey().csr(), 1)
    assert manager.device(peer.device_id).state == "locked"


async def test_an_old_number_in_the_message_locks_and_a_new_one_does_not(harness: IdentityHarness) -> None:
    manager = harness.manager()
    first = await connected(manager, await issued(manager))
    second = await connected(manager, await manager.renew(first, DeviceKey().csr(), 1))
    with pytest.raises(GenerationAhead):
        await manager.renew(second, DeviceKey().csr(), 3)
    assert manager.device(first.device_id).state == "active"
    with pytest.raises(StaleGeneration):
        await manager.renew(second, DeviceKey().csr(), 1)
    assert manager.device(first.device_id).state == "locked"


@pytest.mark.promise("P-device-known")
async def test_revocation_takes_effect_at_once_and_for_good(harness: IdentityHarness) -> None:
    manager, ended, key = harness.manager(), [], DeviceKey()
    manager.on_ended.append(lambda device_id, code: ended.append((device_id, code)))
    made = await issued(manager, key)
    peer = await connected(manager, made)
    await manager.revoke(made.device_id, reason="lost it", actor=ACTOR)
    assert ended == [(made.device_id, "identity.revoked")]
    for refused in (
        manager.renew(peer, DeviceKey().csr(), 1),
        manager.issue(DeviceKind.NODE, made.device_id, key.csr(), actor=ACTOR),
    ):
        with pytest.raises(DeviceRevoked):
            await refused
    with pytest.raises(DeviceRevoked):
        manager.identify(made.fingerprint)
    await manager.revoke(made.device_id, reason="again", actor=ACTOR)
    assert manager.device(made.device_id).reason == "lost it", "the first reason stays"
    assert len(harness.events("identity.device_revoked")) == 1 and len(ended) == 1
    with pytest.raises(UnknownDevice):
        await manager.revoke(DeviceId.new(), reason="x", actor=ACTOR)
    with pytest.raises(UnknownDevice):
        manager.device(DeviceId.new())


@pytest.mark.promise("P-device-known")
async def test_a_revocation_by_another_process_is_seen(harness: IdentityHarness) -> None:
    daemon, other, ended = harness.manager(), harness.manager(), []
    daemon.on_ended.append(lambda device_id, code: ended.append((device_id, code)))
    made = await issued(daemon)
    daemon.identify(made.fingerprint)
    await other.revoke(made.device_id, reason="lost", actor=ACTOR)
    harness.clock.forward(RECHECK_SECONDS)
    with pytest.raises(DeviceRevoked):
        daemon.identify(made.fingerprint)
    assert ended == [(made.device_id, "identity.revoked")]


@pytest.mark.promise("P-device-known")
async def test_silent_streams_are_cut_by_the_tending(harness: IdentityHarness) -> None:
    """Nobody asks ``identify`` here: the one who keeps watch has to see it."""
    daemon, other, ended = harness.manager(), harness.manager(), asyncio.Event()
    daemon.on_ended.append(lambda _id, _code: ended.set())
    made = await issued(daemon)
    keeping = asyncio.create_task(daemon.keep(actor="palyrad"))
    await other.revoke(made.device_id, reason="lost", actor=ACTOR)
    await asyncio.wait_for(ended.wait(), 60)
    keeping.cancel()


async def test_one_listener_that_fails_does_not_keep_the_others_from_hearing(
    harness: IdentityHarness, caplog: pytest.LogCaptureFixture
) -> None:
    manager, ended = harness.manager(), []

    def fails(_device: str, _code: str) -> None:
        raise RuntimeError("a fault")

    manager.on_ended += [fails, lambda device_id, _code: ended.append(device_id)]
    made = await issued(manager)
    with caplog.at_level(logging.ERROR):
        await manager.revoke(made.device_id, reason="x", actor=ACTOR)
    assert ended == [made.device_id] and "a callback failed" in caplog.text


async def test_the_watch_goes_on_after_a_failure(
    harness: IdentityHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    manager, again = harness.manager(), asyncio.Event()
    monkeypatch.setattr("palyra.identity.identity_manager.TEND_SECONDS", 0)
    turns = 0

    async def tend(*, actor: str) -> None:
        nonlocal turns
        turns += 1
        if turns == 1:
            raise UnknownDevice("a fault")
        again.set()

    monkeypatch.setattr(manager, "tend", tend)
    keeping = asyncio.create_task(manager.keep(actor="palyrad"))
    await asyncio.wait_for(again.wait(), 60)
    keeping.cancel()
    assert "could not be tended" in caplog.text


async def test_a_certificate_ends_by_itself(harness: IdentityHarness) -> None:
    manager, key = harness.manager(), DeviceKey()
    made = await issued(manager, key)
    peer = await connected(manager, made)
    harness.clock.forward(DAY_SECONDS)
    with pytest.raises(CertificateExpired):
        manager.identify(made.fingerprint)
    with pytest.raises(CertificateExpired):
        await manager.renew(peer, DeviceKey().csr(), 1)
    with pytest.raises(CertificateExpired):
        await manager.issue(made.kind, made.device_id, key.csr(), actor=ACTOR)
    assert manager.device(made.device_id).state == "active", "late is not stolen"


@pytest.mark.promise("P-limits")
async def test_a_device_cannot_fill_the_store_with_certificates(harness: IdentityHarness) -> None:
    manager = harness.manager()
    certificate = await issued(manager)
    for generation in range(1, MAX_LIVE_CERTIFICATES):
        certificate = await manager.renew(await connected(manager, certificate), DeviceKey().csr(), generation)
    peer = await connected(manager, certificate)
    with pytest.raises(TooManyCertificates):
        await manager.renew(peer, DeviceKey().csr(), MAX_LIVE_CERTIFICATES)
    assert manager.device(peer.device_id).state == "active"


@pytest.mark.promise("P-limits")
async def test_devices_are_bounded_and_a_revoked_one_makes_room(
    harness: IdentityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palyra.identity.device_lifecycle.MAX_DEVICES", 2)
    manager = harness.manager()
    first = await issued(manager)
    await issued(manager)
    with pytest.raises(TooManyDevices):
        await issued(manager)
    await manager.revoke(first.device_id, reason="old", actor=ACTOR)
    await issued(manager)


async def test_asking_who_it_is_reads_nothing_from_the_store(
    harness: IdentityHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = harness.store()
    manager = harness.manager(store)
    made = await issued(manager)
    peer = await connected(manager, made)
    harness.clock.forward(RECHECK_SECONDS)
    manager.identify(made.fingerprint)
    monkeypatch.setattr(type(store), "read", None)
    monkeypatch.setattr(type(store), "transact", None)
    for _ in range(100):
        assert manager.identify(made.fingerprint) is not None
        await manager.used(peer)
