import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.identity_harness import IdentityHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[IdentityHarness]:
    harness = IdentityHarness(tmp_path)
    yield harness
    harness.close()


@pytest.fixture
def today(tmp_path: Path) -> Iterator[IdentityHarness]:
    """A harness whose clock starts at the real time, for what is checked by real TLS."""
    harness = IdentityHarness(tmp_path, now_ms=time.time_ns() // 1_000_000)
    yield harness
    harness.close()
