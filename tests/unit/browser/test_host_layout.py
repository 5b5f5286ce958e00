"""Finding the programs, and the account."""

import os
from pathlib import Path

import pytest

from palyra.browser.engine.chromium import BadAccount, BrowserMissing, account_of, find_layout


def test_what_is_installed_is_found() -> None:
    layout = find_layout()
    assert Path(layout.chromium).is_file() and Path(layout.bwrap).is_file()
    # A wrapper is a text; the binary itself is called.
    assert Path(layout.chromium).read_bytes()[:4] == b"\x7fELF"
    assert not Path(layout.shell).is_symlink()


@pytest.mark.parametrize("mode", [0o644, 0o757])
def test_a_program_that_cannot_be_run_or_that_anybody_could_have_written_is_not_taken(
    tmp_path: Path, mode: int
) -> None:
    program = tmp_path / "chromium"
    program.write_bytes(b"\x7fELF")
    program.chmod(mode)
    with pytest.raises(BrowserMissing, match=str(program)):
        find_layout(str(program))


def test_a_missing_program_is_told_with_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(BrowserMissing) as missing:
        find_layout(str(tmp_path / "none"))
    assert "apt install" in missing.value.hint


def test_root_runs_it_as_another_and_nobody_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert account_of(61_000).uid == 61_000 and account_of(61_000).dropped
    for uid in (0, -1):
        with pytest.raises(BadAccount):
            account_of(uid)
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert (account_of(61_000).uid, account_of(61_000).dropped) == (1234, False)
