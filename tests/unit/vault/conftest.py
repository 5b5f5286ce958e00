from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.vault_house import VaultHouse


@pytest.fixture
def house(tmp_path: Path) -> Iterator[VaultHouse]:
    house = VaultHouse(tmp_path)
    yield house
    house.close()
