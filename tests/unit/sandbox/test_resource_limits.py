from palyra.sandbox.domain.launch_spec import CPU_GRACE_SECONDS, ordinary_rlimits


def test_every_limit_is_there_and_the_processor_warns_first() -> None:
    made = ordinary_rlimits(cpu_seconds=3, memory_bytes=1000, pids=5, open_files=40, file_bytes=7, tasks_of_user=100)
    found = {limit.name: (limit.soft, limit.hard) for limit in made}
    assert found["CPU"] == (3, 3 + CPU_GRACE_SECONDS)
    assert found["NPROC"] == (105, 105) and found["AS"] == (1000, 1000)
    assert found["CORE"] == (1, 1) and found["NOFILE"] == (40, 40) and found["FSIZE"] == (7, 7)


def test_memory_is_left_to_a_control_group_where_there_is_one() -> None:
    made = ordinary_rlimits(cpu_seconds=3, memory_bytes=None, pids=5, open_files=40, file_bytes=7, tasks_of_user=0)
    assert "AS" not in {limit.name for limit in made}
