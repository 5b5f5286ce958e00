"""``palyra run --show-plan``: the plan of an isolated program, printed and not carried out."""

from pathlib import Path

import pytest

from fakes.command_line import command_line_in


@pytest.mark.parametrize(("platform", "wanted"), [("linux", "--unshare-user"), ("macos", "(deny default)")])
def test_the_plan_of_a_platform_is_printed_and_nothing_runs(tmp_path: Path, platform: str, wanted: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    palyra = command_line_in(tmp_path)
    words = ("--workspace", str(work), "--show-plan", "--platform", platform, "touch", "made")
    printed = palyra("run", *words)
    assert printed.status == 0 and wanted in printed.out and str(work) in printed.out
    data = palyra("--json", "run", *words).document["data"]
    assert data["platform"] == platform and "\n".join(data["plan"]) == printed.out.strip("\n")
    assert list(work.iterdir()) == []
