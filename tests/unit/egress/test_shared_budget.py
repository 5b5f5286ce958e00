"""A budget that several processes spend: never a byte more, and hardly any left behind."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from palyra.egress.domain.grant import Meter
from palyra.egress.domain.refusal import ByteBudgetSpent
from palyra.egress.limits import MIN_LEASE_BYTES, SHARES_OF_THE_REST
from palyra.egress.proxy.standalone_main import BudgetFile, LeasedBudget
from palyra.limits import MIB

TOTAL = 8 * MIB


@pytest.fixture
def file() -> Iterator[BudgetFile]:
    made = BudgetFile.create(TOTAL)
    yield made
    made.close()


def spend_all(meter: Meter) -> int:
    while (left := meter.left()) > 0:
        meter.count_down(min(left, 65_536))
    return meter.down


def test_one_process_alone_spends_all_of_it(file: BudgetFile) -> None:
    meter = Meter(LeasedBudget(file))
    assert spend_all(meter) == TOTAL
    with pytest.raises(ByteBudgetSpent, match=str(TOTAL)):
        meter.spend_up(1)


def test_a_process_that_is_idle_keeps_little_from_the_others(file: BudgetFile) -> None:
    idle, busy = Meter(LeasedBudget(file)), Meter(LeasedBudget(file))
    kept = idle.left()
    assert 0 < kept <= TOTAL // SHARES_OF_THE_REST + MIN_LEASE_BYTES
    assert spend_all(busy) == TOTAL - kept
    assert spend_all(idle) == kept


def test_what_must_go_at_once_takes_several_portions(file: BudgetFile) -> None:
    meter = Meter(LeasedBudget(file))
    meter.spend_up(TOTAL - 1)
    meter.spend_up(1)
    with pytest.raises(ByteBudgetSpent):
        meter.spend_up(1)
    assert meter.up == TOTAL


def test_a_door_that_closes_takes_no_more(file: BudgetFile) -> None:
    budget = LeasedBudget(file)
    meter = Meter(budget)
    meter.spend_up(10)
    budget.limit = budget.spent
    assert meter.left() == 0
    assert not meter.covers(1)


SPENDER = """
import sys
from palyra.egress.domain.grant import Meter
from palyra.egress.proxy.standalone_main import BudgetFile, LeasedBudget
meter = Meter(LeasedBudget(BudgetFile(int(sys.argv[1]), int(sys.argv[2]))))
while (left := meter.left()) > 0:
    meter.count_down(min(left, 1000))
print(meter.down)
"""


@pytest.mark.promise("P-floods")
def test_processes_at_once_spend_exactly_all_of_it(file: BudgetFile) -> None:
    command = [sys.executable, "-c", SPENDER, str(TOTAL), str(file.descriptor)]
    spenders = [
        subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[file.descriptor], env=dict(os.environ))
        for _ in range(3)
    ]
    assert sum(int(spender.communicate(timeout=120)[0]) for spender in spenders) == TOTAL
