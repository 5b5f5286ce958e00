import pytest

from palyra.devicelink.agent.device_folder import FORMAT, DeviceFileBad, DeviceRecord, read_record, write_record
from palyra.secret import Secret

RECORD = DeviceRecord(
    device_name="bench",
    servers=("192.0.2.1:1",),
    device_id="01J",
    key_pem=Secret("the-key"),
    certificate_pem="cert",
    ca_bundle_pem="ca",
    generation=3,
    pending_key_pem=Secret("the-next"),
    pairing={"a": "b"},
)


def test_it_reads_back_as_it_was_and_shows_no_key() -> None:
    assert read_record(write_record(RECORD)) == RECORD and RECORD.paired
    assert "the-key" not in repr(RECORD) and "the-next" not in repr(RECORD)
    assert not DeviceRecord(device_name="", servers=()).paired
    empty = DeviceRecord(device_name="x", servers=())
    assert read_record(write_record(empty)) == empty


@pytest.mark.parametrize("cut", [0, 1, 20, -2])
def test_a_part_of_it_is_refused_without_quoting_it(cut: int) -> None:
    with pytest.raises(DeviceFileBad) as caught:
        read_record(write_record(RECORD)[:cut])
    assert "the-key" not in caught.value.diagnostics() and caught.value.__cause__ is None


def test_other_formats_and_unknown_fields_are_refused() -> None:
    raw = write_record(RECORD)
    for changed in (raw.replace(FORMAT.encode(), b"palyra-node-device/2"), raw.replace(b'"device_name"', b'"name"')):
        with pytest.raises(DeviceFileBad):
            read_record(changed)
