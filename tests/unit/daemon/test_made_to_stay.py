import gc

import pytest

from palyra.daemon.process_setup import made_to_stay


def test_collecting_goes_on_afterwards_and_leaves_out_what_was_made() -> None:
    try:
        with made_to_stay():
            assert not gc.isenabled()
            kept = [[number] for number in range(100)]
        assert gc.isenabled() and gc.get_freeze_count() >= len(kept)
        with pytest.raises(ZeroDivisionError), made_to_stay():
            raise ZeroDivisionError
        assert gc.isenabled()
    finally:
        gc.unfreeze()
