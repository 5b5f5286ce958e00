"""Files leave the workspace without leaving the verdict on them."""

from pathlib import Path

import pytest

from soak.judge import files_are_as_recorded
from soak.observations import Observations
from soak.shelf import MOST_IN_USE, Shelf


class Written:
    """More files than are in use at once."""

    def __init__(self, root: Path) -> None:
        self.observed, self.shelf = Observations(), Shelf(root / "workspace", root / "shelf")
        self.made = self.shelf.workspace / "made"
        self.made.mkdir(parents=True)
        self.shelf.folder.mkdir()
        (self.shelf.workspace / "greeting.txt").write_text("hello")
        for number in range(MOST_IN_USE + 8):
            self.write(number)

    def write(self, number: int) -> None:
        name = f"made/{number}.txt"
        (self.shelf.workspace / name).write_text("content")
        self.observed.wrote(name, "content", "yes")
        self.shelf.written(name, "content")

    def problems(self) -> list[str]:
        return files_are_as_recorded(self.observed, self.shelf).problems


@pytest.fixture
def written(tmp_path: Path) -> Written:
    return Written(tmp_path)


def test_the_oldest_files_are_put_away_and_all_are_judged(written: Written) -> None:
    assert len(list(written.made.iterdir())) == MOST_IN_USE and len(written.shelf.away) == 8
    assert written.problems() == []
    (written.shelf.folder / "0.txt").write_text("cont")
    (written.shelf.folder / "1.txt").unlink()
    (written.made / "2.txt").write_text("content")
    (written.made / "9.txt").write_text("cont")
    (written.made / "10.txt").unlink()
    written.observed.wrote("made/11.txt", "content", "no")
    (written.made / "other.txt").write_text("content")
    (written.shelf.workspace / ".part").write_text("content")
    assert written.problems() == [
        "made/0.txt is torn: 4 bytes",
        "made/1.txt was written and is not there",
        "made/9.txt is torn: 4 bytes",
        "made/10.txt was written and is not there",
        "made/11.txt is there without a yes",
        "made/2.txt came back to the workspace",
        ".part was left in the workspace",
        "made/other.txt was left in the workspace",
    ]


def test_what_is_not_as_written_is_left_for_the_judge_and_a_full_disk_is_tried_again(written: Written) -> None:
    (written.made / "8.txt").write_text("cont")
    (written.made / "9.txt").unlink()
    (written.shelf.folder).rename(written.shelf.folder.with_name("elsewhere"))
    written.shelf.folder.write_text("no folder, so nothing can be moved to it")
    for number in range(100, 104):
        written.write(number)
    assert len(written.shelf.away) == 8 and (written.made / "10.txt").exists()
    written.shelf.folder.unlink()
    written.shelf.folder.with_name("elsewhere").rename(written.shelf.folder)
    written.write(104)
    written.write(105)
    assert written.problems() == ["made/8.txt is torn: 4 bytes", "made/9.txt was written and is not there"]
    assert len(written.shelf.away) > 8 and len(list(written.made.iterdir())) <= MOST_IN_USE + 1
