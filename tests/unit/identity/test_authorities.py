"""The authority's key at rest and under attack, and its replacement."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from fakes.identity_harness import ACTOR, DAY_SECONDS, DeviceKey, IdentityHarness
from palyra.errors import PalyraError
from palyra.identity.device import DeviceId, DeviceKind, IdentityTampered, NoAuthority, NotOpened, RotationRunning
from palyra.identity.limits import AUTHORITY_LIFE_MS
from palyra.vault.key_source import KeyMissing


async def test_nothing_is_made_before_it_is_needed(harness: IdentityHarness) -> None:
    manager = harness.manager()
    assert (manager.devices(), manager.authorities(), manager.known_trust_domain()) == ([], [], "")
    assert not harness.key_file.exists() and harness.events() == []
    for ask in (manager.ca_bundle_pem, manager.ca_hash, lambda: manager.trust_domain):
        with pytest.raises(NotOpened):
            ask()
    with pytest.raises(NoAuthority):
        await manager.rotate_authority(actor=ACTOR)
    assert not harness.key_file.exists()


async def test_the_first_use_makes_it_and_the_next_process_finds_it(harness: IdentityHarness) -> None:
    first, second = harness.manager(), harness.manager()
    await first.open()
    await second.open()
    assert (first.trust_domain, first.ca_hash(), first.ca_bundle_pem()) == (
        second.trust_domain,
        second.ca_hash(),
        second.ca_bundle_pem(),
    )
    [(kind, payload)] = harness.events()
    assert kind == "identity.authority_created"
    assert (payload["trust_domain"], payload["authority_id"]) == (first.trust_domain, first.ca_hash())


async def test_however_many_start_at_once_there_is_one_authority_and_one_key(harness: IdentityHarness) -> None:
    managers = [harness.manager() for _ in range(4)]
    await asyncio.gather(*(manager.open() for manager in managers))
    assert len({manager.ca_hash() for manager in managers}) == 1
    assert harness.key_file.read_text().count('"id"') == 1
    assert len(harness.events("identity.authority_created")) == 1


@pytest.mark.promise("P-device-known")
async def test_the_private_key_is_nowhere_in_the_state(harness: IdentityHarness) -> None:
    manager = harness.manager()
    await manager.open()
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = manager._authorities.in_force()[0].signer._key
    number = key.private_numbers().private_value.to_bytes(32, "big")
    assert number in key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    for file in harness.state.iterdir():
        assert number not in file.read_bytes(), file.name


async def test_without_the_key_file_nothing_is_signed(harness: IdentityHarness) -> None:
    await harness.manager().open()
    harness.key_file.unlink()
    with pytest.raises(KeyMissing):
        await harness.manager().issue(DeviceKind.NODE, DeviceId.new(), DeviceKey().csr(), actor=ACTOR)


def attack(harness: IdentityHarness, *statements: str) -> None:
    """Somebody with the file in hand, and without the key."""
    with closing(sqlite3.connect(harness.journal.database)) as connection, connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.promise("P-device-known")
@pytest.mark.parametrize("place", [0, 1, 12, 13, 40, -1])
async def test_a_flipped_bit_in_the_stored_key_is_found(harness: IdentityHarness, place: int) -> None:
    await harness.manager().open()
    [(sealed,)] = harness.store().read("SELECT sealed_key FROM identity_authorities")
    changed = bytearray(sealed)
    changed[place] ^= 1
    attack(harness, f"UPDATE identity_authorities SET sealed_key = x'{changed.hex()}'")
    await refused_by_a_new_process(harness)


@pytest.mark.parametrize(
    "change", ["certificate = x'3000'", "authority_id = replace(authority_id, substr(authority_id, 1, 1), 'x')"]
)
async def test_a_certificate_is_the_one_it_was_made_with(harness: IdentityHarness, change: str) -> None:
    await harness.manager().open()
    attack(harness, f"UPDATE identity_authorities SET {change}")
    await refused_by_a_new_process(harness)


async def test_a_whole_foreign_authority_does_not_open(harness: IdentityHarness, tmp_path_factory) -> None:
    """Certificate, id and sealed key that fit each other, from another installation with another key."""
    await harness.manager().open()
    other = IdentityHarness(tmp_path_factory.mktemp("other"))
    await other.manager().open()
    [(authority_id, certificate, sealed)] = other.store().read(
        "SELECT authority_id, certificate, sealed_key FROM identity_authorities"
    )
    other.close()
    attack(
        harness,
        f"UPDATE identity_authorities SET authority_id = '{authority_id}', certificate = x'{certificate.hex()}',"
        f" sealed_key = x'{sealed.hex()}'",
    )
    await refused_by_a_new_process(harness)


@pytest.mark.promise("P-device-known")
async def test_a_second_authority_cannot_be_added(harness: IdentityHarness, tmp_path_factory) -> None:
    """As outgoing it would never sign, only be trusted: that is all an attacker wants."""
    await harness.manager().open()
    other = IdentityHarness(tmp_path_factory.mktemp("other"))
    await other.manager().open()
    [(authority_id, certificate, sealed)] = other.store().read(
        "SELECT authority_id, certificate, sealed_key FROM identity_authorities"
    )
    other.close()
    attack(
        harness,
        "INSERT INTO identity_authorities"
        f" SELECT '{authority_id}', 'outgoing', x'{certificate.hex()}', x'', key_id, x'{sealed.hex()}',"
        " created_ms, not_before_ms, not_after_ms FROM identity_authorities",
    )
    await refused_by_a_new_process(harness)


@pytest.mark.promise("P-device-known")
async def test_the_keys_of_two_authorities_cannot_be_swapped(harness: IdentityHarness) -> None:
    manager = harness.manager()
    await manager.issue(DeviceKind.NODE, DeviceId.new(), DeviceKey().csr(), actor=ACTOR)
    await manager.rotate_authority(actor=ACTOR)
    rows = harness.store().read("SELECT authority_id, key_id, sealed_key FROM identity_authorities")
    assert len(rows) == 2
    (one, one_key, one_sealed), (two, two_key, two_sealed) = rows
    swap = "UPDATE identity_authorities SET key_id = '{}', sealed_key = x'{}' WHERE authority_id = '{}'"
    attack(harness, swap.format(two_key, two_sealed.hex(), one), swap.format(one_key, one_sealed.hex(), two))
    await refused_by_a_new_process(harness)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE identity_state SET trust_domain = 'palyra-other'",
        "UPDATE identity_authorities SET state = 'outgoing'",
        "UPDATE identity_authorities SET state = 'retired'",
        "DELETE FROM identity_authorities",
        "DELETE FROM identity_keys",
        "UPDATE identity_authorities SET sealed_key = x''",
        "UPDATE identity_authorities SET sealed_key = substr(sealed_key, 1, 20)",
    ],
)
async def test_whatever_else_was_changed_is_found(harness: IdentityHarness, statement: str) -> None:
    await harness.manager().open()
    attack(harness, statement)
    await refused_by_a_new_process(harness)


async def refused_by_a_new_process(harness: IdentityHarness) -> None:
    manager = harness.manager()
    for _ in range(3):
        with pytest.raises(PalyraError) as found:
            await manager.issue(DeviceKind.NODE, DeviceId.new(), DeviceKey().csr(), actor=ACTOR)
        assert isinstance(found.value, IdentityTampered)
    with pytest.raises(NotOpened):
        manager.ca_bundle_pem()
    assert len(harness.events("identity.tamper_found")) == 1, "once, however often it is found"


async def test_rotation_overlaps_and_ends(harness: IdentityHarness) -> None:
    manager, key = harness.manager(), DeviceKey()
    issued = await manager.issue(DeviceKind.NODE, DeviceId.new(), key.csr(), actor=ACTOR)
    before = manager.ca_hash()
    await manager.rotate_authority(actor=ACTOR)
    assert manager.ca_hash() != before and manager.ca_bundle_pem().count(b"BEGIN") == 2
    with pytest.raises(RotationRunning):
        await manager.rotate_authority(actor=ACTOR)
    assert harness.key_file.read_text().count('"id"') == 2, "a refused rotation leaves no key behind"
    current, outgoing = manager.authorities()
    assert (current.state, outgoing.state) == ("current", "outgoing")
    assert outgoing.needed_until_ms == issued.not_after_ms and outgoing.authority_id == before
    # A day later nothing by the old one is left.
    harness.clock.forward(DAY_SECONDS - 1)
    await manager.tend(actor="palyrad")
    assert manager.ca_bundle_pem().count(b"BEGIN") == 2
    harness.clock.forward(1)
    await manager.tend(actor="palyrad")
    assert manager.ca_bundle_pem().count(b"BEGIN") == 1
    assert [kind for kind, _ in harness.events() if "authority" in kind] == [
        "identity.authority_created",
        "identity.authority_rotated",
        "identity.authority_retired",
    ]
    assert harness.store().read("SELECT length(sealed_key) FROM identity_authorities WHERE state = 'retired'") == [(0,)]
    assert harness.key_file.read_text().count('"id"') == 1, "the key it was sealed with is destroyed"
    await manager.rotate_authority(actor=ACTOR)


async def test_another_process_signs_with_the_new_authority_at_once(harness: IdentityHarness) -> None:
    one, other = harness.manager(), harness.manager()
    await one.issue(DeviceKind.NODE, DeviceId.new(), DeviceKey().csr(), actor=ACTOR)
    await other.open()
    await one.rotate_authority(actor=ACTOR)
    issued = await other.issue(DeviceKind.NODE, DeviceId.new(), DeviceKey().csr(), actor=ACTOR)
    assert other.ca_hash() == one.ca_hash() and issued.ca_bundle_pem == one.ca_bundle_pem()
    # And one that only looks on sees it when it next tends.
    third = harness.manager()
    await third.open()
    harness.clock.forward(DAY_SECONDS)
    await one.tend(actor="palyrad")
    assert third.ca_bundle_pem().count(b"BEGIN") == 2
    await third.tend(actor="palyrad")
    assert third.ca_bundle_pem().count(b"BEGIN") == 1


async def test_two_rotations_at_once_are_one(harness: IdentityHarness) -> None:
    one, other = harness.manager(), harness.manager()
    await one.issue(DeviceKind.NODE, DeviceId.new(), DeviceKey().csr(), actor=ACTOR)
    await other.open()
    ends = await asyncio.gather(
        one.rotate_authority(actor=ACTOR), other.rotate_authority(actor=ACTOR), return_exceptions=True
    )
    refused = [end for end in ends if end is not None]
    assert len(refused) == 1 and isinstance(refused[0], PalyraError)
    assert refused[0].code in ("identity.rotation_running", "identity.authority_unavailable")
    assert len(harness.events("identity.authority_rotated")) == 1
    assert harness.key_file.read_text().count('"id"') == 2


async def test_an_authority_is_replaced_before_it_ends(harness: IdentityHarness) -> None:
    manager = harness.manager()
    await manager.open()
    before = manager.ca_hash()
    harness.clock.forward(AUTHORITY_LIFE_MS / 1_000 * 2 / 3 - 10)
    await manager.tend(actor="palyrad")
    assert manager.ca_hash() == before
    harness.clock.forward(20)
    await manager.tend(actor="palyrad")
    assert manager.ca_hash() != before and manager.ca_bundle_pem().count(b"BEGIN") == 1
