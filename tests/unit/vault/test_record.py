import msgspec

from palyra.vault.reference import RotationReport, SecretInfo, UseNote, VaultStatus


def test_no_record_has_room_for_a_value() -> None:
    fields = {field for kind in (SecretInfo, UseNote, RotationReport, VaultStatus) for field in kind.__struct_fields__}
    assert not fields & {"value", "secret", "plaintext"}
    assert "Secret'" not in str([msgspec.structs.fields(kind) for kind in (SecretInfo, UseNote)])
