"""Pages of the documentation, followed word by word: every command works, and a transcript is what is printed."""

from pathlib import Path

import pytest

from fakes.daemon import Place
from fakes.page_reader import FOLLOWED, ROOT, Reader, blocks_of, check


@pytest.mark.promise("P-documented")
@pytest.mark.timeout(400)
@pytest.mark.parametrize("page", FOLLOWED)
def test_every_command_of_the_page_works_as_printed(page: str, tmp_path: Path) -> None:
    assert check(ROOT / page, Reader(tmp_path / "you")) > 0


def test_the_python_client_does_what_its_page_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All examples of the page, one after the other."""
    place = Place(tmp_path)
    with place.daemon() as daemon:
        scope: dict[str, object] = {}
        for block in blocks_of(ROOT / "docs" / "how-to" / "use-the-python-client.md"):
            code = block.text.replace("http://127.0.0.1:7142", daemon.url).replace("plr_…", daemon.token)
            exec(compile(code, block.page.name, "exec"), scope)  # the page's own code
        scope["client"].close()  # type: ignore[attr-defined]
    said = capsys.readouterr().out
    assert "{'text': 'hi'} ('baseline.allowed-tools',)" in said or "baseline.allowed-tools" in said
    assert "ask a person about" in said and "'used': 1" in said and "call.finished" in said
