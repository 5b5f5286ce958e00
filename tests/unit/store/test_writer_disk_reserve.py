from fakes.journal_harness import StillClock
from palyra.store.sqlite.writer import DiskReserve

SIZE = 64 * 1024


def test_space_is_really_taken_and_given_back(tmp_path):
    reserve = DiskReserve(tmp_path / "b", SIZE, StillClock())
    assert not reserve.is_held()
    assert reserve.secure() and reserve.is_held()
    assert (tmp_path / "b").stat().st_blocks * 512 >= SIZE
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o600
    reserve.release()
    reserve.release()
    assert not reserve.is_held() and not (tmp_path / "b").exists()


def test_a_hole_of_the_right_size_is_not_space(tmp_path):
    with (tmp_path / "b").open("wb") as file:
        file.truncate(SIZE)
    reserve = DiskReserve(tmp_path / "b", SIZE, StillClock())
    assert not reserve.is_held()
    assert reserve.secure() and reserve.is_held()


def test_a_failed_attempt_is_repeated_at_most_once_a_second(tmp_path):
    clock = StillClock()
    reserve = DiskReserve(tmp_path / "missing" / "b", SIZE, clock)
    assert not reserve.secure()
    (tmp_path / "missing").mkdir()
    assert not reserve.secure()
    clock.seconds += 1
    assert reserve.secure()


def test_a_link_in_its_place_is_not_followed(tmp_path):
    (tmp_path / "target").write_bytes(b"precious")
    (tmp_path / "b").symlink_to(tmp_path / "target")
    assert not DiskReserve(tmp_path / "b", SIZE, StillClock()).secure()
    assert (tmp_path / "target").read_bytes() == b"precious"


def test_more_than_the_disk_has_is_not_held(tmp_path):
    reserve = DiskReserve(tmp_path / "b", 2**60, StillClock())
    assert not reserve.secure()
    assert not (tmp_path / "b").exists()
