"""Records of downloads survive their JSON form; ids are names of files and nothing else."""

import msgspec
import pytest

from palyra.browser.domain.download import DownloadId, DownloadRecord, Folder, Reason
from palyra.ids import InvalidId


def test_a_record_reads_back_as_it_was_written() -> None:
    record = DownloadRecord(
        id=str(DownloadId.new()),
        name="a.csv",
        source="https://shop.test/a",
        declared_type=None,
        detail="text",
        size=3,
        digest="0" * 64,
        folder=Folder.QUARANTINE,
        reasons=(Reason.DECLARED,),
    )
    assert msgspec.json.decode(msgspec.json.encode(record), type=DownloadRecord) == record


@pytest.mark.parametrize("raw", ["../x", "", "a/b", "01ARZ3NDEKTSV4RRFFQ69G5FA\n"])
def test_an_id_is_no_path(raw: str) -> None:
    with pytest.raises(InvalidId):
        DownloadId.parse(raw)
