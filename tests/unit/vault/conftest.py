from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.vault_harness import VaultHarness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[VaultHarness]:
    harness = VaultHarness(tmp_path)
    yield harness
    harness.close()
