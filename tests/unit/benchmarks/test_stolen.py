from benchmarks.stolen import ProcessorTime, processor_time


def test_of_what_was_wanted_the_share_that_others_got(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    before.write_text("cpu  100 0 50 1000 20 0 10 40 0 0\ncpu0 1 2 3\n")
    after.write_text("cpu  160 0 70 5000 90 0 10 60 0 0\ncpu0 1 2 3\n")
    assert processor_time(after).stolen_since(processor_time(before)) == 20 / 100


def test_where_the_kernel_does_not_tell_nothing_was_stolen(tmp_path):
    (tmp_path / "short").write_text("cpu  100 0 50\n")
    (tmp_path / "other").write_text("what is this\n")
    for name in ("short", "other", "missing"):
        assert processor_time(tmp_path / name) == ProcessorTime(0, 0)
    assert ProcessorTime(0, 0).stolen_since(ProcessorTime(0, 0)) == 0


def test_this_machine_tells():
    assert processor_time().wanted > 0
