import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.identity_house import IdentityHouse


@pytest.fixture
def house(tmp_path: Path) -> Iterator[IdentityHouse]:
    house = IdentityHouse(tmp_path)
    yield house
    house.close()


@pytest.fixture
def today(tmp_path: Path) -> Iterator[IdentityHouse]:
    """A house whose clock starts at the real time, for what is checked by real TLS."""
    house = IdentityHouse(tmp_path, now_ms=time.time_ns() // 1_000_000)
    yield house
    house.close()
