import base64
import hashlib
from pathlib import Path

import pytest

from fakes.workspace_harness import call, refused
from palyra.executors.files import operations
from palyra.workspace.root import open_workspace


def test_reads_whole_and_in_part(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("héllo")
    digest = hashlib.sha256("héllo".encode()).hexdigest()
    with open_workspace(tmp_path, ()) as workspace:
        whole = call(workspace, "fs.read", path="./f")
        assert whole == {
            "path": "f",
            "content": "héllo",
            "encoding": "utf-8",
            "offset": 0,
            "bytes": 6,
            "size": 6,
            "truncated": False,
            "sha256": digest,
            "sha256_of": "file",
        }
        part = call(workspace, "fs.read", path="f", offset=3, limit=2)
        assert (part["content"], part["truncated"], part["sha256"]) == ("ll", True, digest)
        assert call(workspace, "fs.read", path="f", offset=99)["content"] == ""
        raw = call(workspace, "fs.read", path="f", encoding="base64", limit=2)
        assert base64.b64decode(raw["content"]) == b"h\xc3"


def test_a_character_is_never_cut_in_two(tmp_path: Path) -> None:
    text = "aé日🙂" * 50
    (tmp_path / "f").write_text(text)
    with open_workspace(tmp_path, ()) as workspace:
        for limit in range(4, 12):
            offset, parts, more = 0, [], True
            while more:
                part = call(workspace, "fs.read", path="f", offset=offset, limit=limit)
                parts.append(part["content"])
                offset += part["bytes"]
                more = part["truncated"] or offset < part["size"]
            assert "".join(parts) == text


@pytest.mark.parametrize("data", [b"\xff", b"ok \xc3", b"\xc3\x28 later"])
def test_bytes_that_are_not_text_are_refused_with_advice(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    with open_workspace(tmp_path, ()) as workspace:
        assert refused(workspace, "fs.read", path="f") == "workspace.not_text"
        assert base64.b64decode(call(workspace, "fs.read", path="f", encoding="base64")["content"]) == data


def test_a_large_file_has_the_digest_of_the_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "WHOLE_FILE_BYTES", 10)
    (tmp_path / "f").write_text("0123456789X")
    with open_workspace(tmp_path, ()) as workspace:
        part = call(workspace, "fs.read", path="f", offset=2, limit=3)
        assert (part["sha256_of"], part["sha256"]) == ("part", hashlib.sha256(b"234").hexdigest())
        assert (part["truncated"], part["size"]) == (True, 11)
        assert not call(workspace, "fs.read", path="f", offset=8, limit=3)["truncated"]


def test_a_file_whose_size_lies_is_read_to_its_end() -> None:
    with open_workspace(Path("/proc/self"), ()) as workspace:
        assert "Name:" in call(workspace, "fs.read", path="status")["content"]


def test_links_that_stay_beneath_are_read(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "f").write_text("x")
    (tmp_path / "d" / "l").symlink_to("../f")
    with open_workspace(tmp_path, ()) as workspace:
        assert call(workspace, "fs.read", path="d/l")["content"] == "x"
        assert refused(workspace, "fs.read", path="d") == "workspace.not_regular"
        assert refused(workspace, "fs.read", path="f/x") == "workspace.not_directory"
        assert refused(workspace, "fs.read", path="nope") == "workspace.not_found"
