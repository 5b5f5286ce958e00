"""The checks in their order, over values: whatever else is wrong too, the first that fails is the refusal."""

from itertools import product
from typing import Any

import pytest

from palyra.devicelink.server.peer_checks import (
    NoCertificate,
    OtherDevice,
    Outward,
    UnpairedDevice,
    UnreadableCertificate,
    WrongKind,
    check_peer,
    fingerprint_of_peer,
    outward,
)
from palyra.errors import PalyraError
from palyra.identity.device import (
    CertificateExpired,
    CertificateSuperseded,
    DeviceId,
    DeviceKind,
    DeviceLocked,
    DeviceRevoked,
    UnknownCertificate,
)
from palyra.identity.records import PeerIdentity

ME, OTHER = DeviceId("01ARZ3NDEKTSV4RRFFQ69G5FAV"), DeviceId("01BX5ZZKBKACTAV9WEVGEMMVRZ")
PEER = PeerIdentity(device_id=ME, kind=DeviceKind.NODE, fingerprint="ab", generation=1, not_after_ms=1)


def refuse(error: PalyraError) -> Any:
    def identify(_fingerprint: str) -> PeerIdentity:
        raise error

    return identify


def test_a_peer_that_passes_all_is_who_its_certificate_says() -> None:
    found = check_peer("ab", identify=lambda _: PEER, kinds={DeviceKind.NODE}, is_paired=lambda _: True, claimed=ME)
    assert found is PEER


@pytest.mark.promise("P-device-known")
def test_the_order_holds_for_every_combination_of_faults() -> None:
    for bad, wrong_kind, unpaired, claims_other in product((False, True), repeat=4):
        expected = (
            DeviceRevoked
            if bad
            else WrongKind
            if wrong_kind
            else UnpairedDevice
            if unpaired
            else OtherDevice
            if claims_other
            else None
        )
        arguments: dict[str, Any] = {
            "identify": refuse(DeviceRevoked("gone")) if bad else lambda _: PEER,
            "kinds": {DeviceKind.WORKER} if wrong_kind else {DeviceKind.NODE},
            "is_paired": (lambda _: False) if unpaired else (lambda _: True),
            "claimed": OTHER if claims_other else ME,
        }
        if expected is None:
            assert check_peer("ab", **arguments) is PEER
        else:
            with pytest.raises(expected):
                check_peer("ab", **arguments)


@pytest.mark.parametrize("claimed", ["", ME.lower(), ME + " ", f"{ME}\0", "node/" + ME])
def test_a_device_id_has_one_spelling(claimed: str) -> None:
    with pytest.raises(OtherDevice):
        check_peer("ab", identify=lambda _: PEER, kinds={DeviceKind.NODE}, is_paired=lambda _: True, claimed=claimed)


@pytest.mark.parametrize("certificate", [None, b""])
def test_a_connection_without_a_certificate_is_refused_first(certificate: bytes | None) -> None:
    with pytest.raises(NoCertificate):
        fingerprint_of_peer(certificate, lambda raw: "never asked")


def test_what_is_no_certificate_is_refused_and_what_the_digest_refuses_stays_so() -> None:
    def broken(_raw: bytes) -> str:
        raise ValueError("not base 64")

    def refusing(_raw: bytes) -> str:
        raise UnknownCertificate("no")

    with pytest.raises(UnreadableCertificate):
        fingerprint_of_peer(b"x", broken)
    with pytest.raises(UnknownCertificate):
        fingerprint_of_peer(b"x", refusing)
    assert fingerprint_of_peer(b"x", lambda raw: raw.hex()) == "78"


def test_outside_there_are_two_words() -> None:
    unknown = [NoCertificate, UnreadableCertificate, UnknownCertificate, DeviceRevoked, DeviceLocked]
    unknown += [CertificateExpired, CertificateSuperseded]
    assert {outward(kind("x")) for kind in unknown} == {Outward.UNAUTHENTICATED}
    assert {outward(kind("x")) for kind in (WrongKind, UnpairedDevice, OtherDevice)} == {Outward.PERMISSION_DENIED}
