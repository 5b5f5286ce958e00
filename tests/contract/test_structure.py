"""The sizes that keep the code base readable for a newcomer."""

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "palyra"
# Written by protoc.
GENERATED = SOURCE / "wire"


def count_lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def hand_written() -> list[Path]:
    return [path for path in SOURCE.rglob("*.py") if GENERATED not in path.parents and path.name != "__init__.py"]


def test_no_folder_has_more_than_25_modules() -> None:
    crowded = {folder: count for folder, count in Counter(path.parent for path in hand_written()).items() if count > 25}
    assert crowded == {}


def test_no_module_has_more_than_500_lines() -> None:
    assert [path for path in hand_written() if count_lines(path) > 500] == []


def test_there_are_at_most_600_modules() -> None:
    assert len(hand_written()) <= 600


def test_contracts_and_pages_stay_short() -> None:
    contracts = ROOT / ".importlinter"
    assert count_lines(contracts) <= 120
    assert "ignore_imports" not in contracts.read_text(encoding="utf-8"), "a contract has no exceptions"
    assert count_lines(ROOT / "SPECIFICATION.md") <= 200
    assert count_lines(ROOT / "README.md") <= 150
