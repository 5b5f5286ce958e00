import msgspec
import pytest

from fakes.identity_harness import IdentityHarness
from palyra.identity import tables as sqlite_identity
from palyra.identity.device import DeviceId, DeviceKind, DeviceState, IdentityTampered
from palyra.identity.records import AuthorityRow, AuthorityState, CertificateRow, DeviceRow
from palyra.identity.tables import IdentityTables
from palyra.store.sqlite.store import SqliteStore
from palyra.vault.key_source import KeyRecord

DEVICE = DeviceRow(
    device_id=DeviceId("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
    kind=DeviceKind.NODE,
    state=DeviceState.ACTIVE,
    generation=1,
    used_generation=0,
    reason="",
    created_ms=1,
    changed_ms=2,
)
AUTHORITY = AuthorityRow(
    authority_id="a" * 64,
    state=AuthorityState.CURRENT,
    certificate_der=b"certificate",
    cross_der=b"",
    key_id="kek:1",
    sealed_key=b"sealed",
    created_ms=1,
    not_before_ms=0,
    not_after_ms=9,
)


def certificate(generation: int, not_after_ms: int, authority_id: str = "a" * 64) -> CertificateRow:
    return CertificateRow(
        fingerprint=f"f{generation}",
        device_id=DEVICE.device_id,
        generation=generation,
        key_sha256="k",
        authority_id=authority_id,
        certificate_der=b"c",
        not_before_ms=0,
        not_after_ms=not_after_ms,
    )


@pytest.fixture
def store(harness: IdentityHarness) -> SqliteStore:
    store = harness.store()
    store.transact_blocking(lambda tx: IdentityTables(tx).create("palyra-x"))
    return store


def test_rows_come_back_as_they_went_in(store: SqliteStore) -> None:
    def work(tx: object) -> None:
        tables = IdentityTables(tx)  # type: ignore[arg-type]
        assert tables.trust_domain() == "palyra-x"
        tables.put_device(DEVICE)
        assert tables.device(DEVICE.device_id) == DEVICE and tables.count_active() == 1
        tables.add_certificate(certificate(1, 9))
        assert tables.certificate(DEVICE.device_id, 1) == certificate(1, 9)
        assert tables.certificate(DEVICE.device_id, 2) is None and tables.device("other") is None
        tables.add_authority(AUTHORITY)
        assert tables.authorities() == [AUTHORITY]
        record = KeyRecord(key_id="kek:1", source="file", parameters={"salt": "x"})
        tables.put_key(record)
        tables.put_key(record)
        assert tables.key("kek:1") == record

    store.transact_blocking(work)
    assert sqlite_identity.trust_domain_of(store) == "palyra-x"
    assert sqlite_identity.list_devices(store)[0].fingerprint == "f1"
    assert sqlite_identity.list_devices(store, "other") == []


def test_only_what_changed_is_read_again(store: SqliteStore) -> None:
    start = sqlite_identity.revision_of(store)
    other = msgspec.structs.replace(DEVICE, device_id=DeviceId("01BX5ZZKBKACTAV9WEVGEMMVRZ"))
    store.transact_blocking(lambda tx: IdentityTables(tx).put_device(DEVICE))
    store.transact_blocking(lambda tx: IdentityTables(tx).add_certificate(certificate(1, 9)))
    middle = sqlite_identity.revision_of(store)
    store.transact_blocking(lambda tx: IdentityTables(tx).put_device(other))
    assert start < middle < sqlite_identity.revision_of(store)
    devices, certificates = sqlite_identity.changed_since(store, start)
    assert {row.device_id for row in devices} == {DEVICE.device_id, other.device_id}
    assert [one.fingerprint for one in certificates] == ["f1"]
    assert sqlite_identity.changed_since(store, middle) == ([other], [])


def test_an_authority_is_needed_as_long_as_its_certificates_may_be_used(store: SqliteStore) -> None:
    def needed() -> int:
        return store.transact_blocking(lambda tx: IdentityTables(tx).needed_until_ms(AUTHORITY.authority_id))

    store.transact_blocking(lambda tx: IdentityTables(tx).add_authority(AUTHORITY))
    assert needed() == 0
    store.transact_blocking(lambda tx: IdentityTables(tx).put_device(DEVICE))
    store.transact_blocking(lambda tx: IdentityTables(tx).add_certificate(certificate(1, 50)))
    store.transact_blocking(lambda tx: IdentityTables(tx).add_certificate(certificate(2, 90, "b" * 64)))
    assert needed() == 50, "the next one is by another authority and not used yet"
    used = msgspec.structs.replace(DEVICE, generation=2, used_generation=2)
    store.transact_blocking(lambda tx: IdentityTables(tx).put_device(used))
    assert needed() == 0
    store.transact_blocking(lambda tx: IdentityTables(tx).put_device(DEVICE))
    revoked = msgspec.structs.replace(DEVICE, state=DeviceState.REVOKED)
    store.transact_blocking(lambda tx: IdentityTables(tx).put_device(revoked))
    assert needed() == 0
    assert sqlite_identity.list_authorities(store)[0].needed_until_ms == 0


def test_a_destroyed_key_leaves_nothing_in_its_row(store: SqliteStore) -> None:
    store.transact_blocking(lambda tx: IdentityTables(tx).add_authority(AUTHORITY))
    store.transact_blocking(lambda tx: IdentityTables(tx).destroy_authority_key(AUTHORITY.authority_id))
    assert store.read("SELECT sealed_key FROM identity_authorities") == [(b"",)]


def test_certificates_that_have_ended_go_and_the_newest_stays(store: SqliteStore) -> None:
    rows = [certificate(generation, ends) for generation, ends in ((1, 10), (2, 20), (3, 5))]

    def fill(tx: object) -> None:
        for row in rows:
            IdentityTables(tx).add_certificate(row)  # type: ignore[arg-type]

    store.transact_blocking(fill)
    left = store.transact_blocking(
        lambda tx: IdentityTables(tx).drop_ended_certificates(DEVICE.device_id, below=3, now_ms=10)
    )
    assert left == 2
    assert store.read("SELECT generation FROM identity_certificates ORDER BY 1") == [(2,), (3,)]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE identity_devices SET state = 'trusted'",
        "UPDATE identity_devices SET kind = 'daemon'",
        "UPDATE identity_authorities SET state = 'eternal'",
        "UPDATE identity_keys SET parameters = '['",
        "DELETE FROM identity_keys",
        "DELETE FROM identity_state",
    ],
)
def test_rows_that_nobody_here_wrote_are_not_believed(store: SqliteStore, change: str) -> None:
    def fill(tx: object) -> None:
        tables = IdentityTables(tx)  # type: ignore[arg-type]
        tables.put_device(DEVICE)
        tables.add_authority(AUTHORITY)
        tables.put_key(KeyRecord(key_id="kek:1", source="file"))

    def read(tx: object) -> None:
        tables = IdentityTables(tx)  # type: ignore[arg-type]
        tables.device(DEVICE.device_id)
        tables.authorities()
        tables.key("kek:1")
        tables.next_revision()

    store.transact_blocking(fill)
    store.transact_blocking(read)
    store.transact_blocking(lambda tx: tx.execute(change))
    with pytest.raises(IdentityTampered):
        store.transact_blocking(read)


def test_unused_keys_are_told_once(store: SqliteStore) -> None:
    record = KeyRecord(key_id="kek:2", source="file")
    store.transact_blocking(lambda tx: IdentityTables(tx).add_authority(AUTHORITY))
    store.transact_blocking(lambda tx: IdentityTables(tx).put_key(KeyRecord(key_id="kek:1", source="file")))
    store.transact_blocking(lambda tx: IdentityTables(tx).put_key(record))
    assert store.transact_blocking(lambda tx: IdentityTables(tx).drop_unused_keys()) == [record]
    assert store.transact_blocking(lambda tx: IdentityTables(tx).drop_unused_keys()) == []
