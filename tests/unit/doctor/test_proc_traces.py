import os
import subprocess
import sys
from pathlib import Path

from palyra.doctor.attacks.decoys import attributes, describe, find_planted, find_survivors, find_touch, limits_of

NAMED = """
import ctypes, sys
ctypes.CDLL(None).prctl(15, ctypes.c_char_p(sys.argv[1].encode()), 0, 0, 0)
print("named", flush=True)
sys.stdin.read()
"""


def test_a_process_is_found_by_its_name_also_when_it_is_dead() -> None:
    name = f"pt{os.getpid()}"
    argv = [sys.executable, "-I", "-S", "-c", NAMED, name]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        process.stdout.readline()
        (seen,) = find_survivors(name)
        assert seen.startswith(f"process {process.pid} outlived the call (state ")
        assert find_touch(process.pid, limits_of(process.pid)) == ""
        assert "limits" in find_touch(process.pid, "others")
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert list(find_survivors(name)) == [f"process {process.pid} outlived the call (state Z)"]
    assert list(find_survivors(name)) == []


def test_a_file_is_described_by_content_and_rights(tmp_path: Path) -> None:
    path = tmp_path / "x"
    assert describe(str(path)) is None
    path.write_text("a")
    before = describe(str(path))
    path.chmod(0o400)
    assert describe(str(path)) != before
    assert attributes(str(path)) == []


def test_programs_with_rights_are_found_and_directories_are_none(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d").chmod(0o2755)
    (tmp_path / "d" / "x").write_text("")
    assert list(find_planted(str(tmp_path))) == []
    (tmp_path / "d" / "x").chmod(0o2755)
    assert list(find_planted(str(tmp_path))) == ["a file with mode 2755 was left in the workspace: x"]
