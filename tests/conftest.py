"""Generated examples are the same in every ordinary run, so that a red run is about the change in hand.

`PALYRA_RANDOM_EXAMPLES=1` draws new ones; `make soak-tests` does.
"""

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

from fakes.order_of_files import put_in_order
from fakes.started_warm import begin_test

# How fast a machine makes examples says nothing about the code: others may be using it.
settings.register_profile("same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("random", settings.get_profile("same"), derandomize=False, max_examples=500)
settings.load_profile("random" if os.environ.get("PALYRA_RANDOM_EXAMPLES") == "1" else "same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    put_in_order(items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    begin_test(item.nodeid)


def pytest_collection_finish() -> None:
    """Every test of every file is in memory by now and stays there: no need to look through it again and again."""
    gc.collect()
    gc.freeze()
