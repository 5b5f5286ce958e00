import gc
import sys

import pytest

from palyra.daemon.process_setup import TURN_SECONDS, YOUNG_OBJECTS, settle_in


class Ring:
    def __init__(self) -> None:
        self.itself = self


def test_what_was_built_is_not_looked_at_again_and_what_comes_later_is_still_collected() -> None:
    before, made, turn = gc.get_threshold(), gc.get_freeze_count(), sys.getswitchinterval()
    try:
        settle_in()
        assert gc.get_freeze_count() > made and gc.get_threshold() == (YOUNG_OBJECTS, *before[1:])
        assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)
        for _ in range(10):
            Ring()
        assert gc.collect() >= 10
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        sys.setswitchinterval(turn)
