import signal

from palyra.doctor.attacks.resource_attempts import RESOURCE_ATTEMPTS
from palyra.sandbox.domain.profile import Layer

BY_NAME = {each.id.removeprefix("resources."): each for each in RESOURCE_ATTEMPTS}


def test_each_asks_for_more_than_its_own_limit() -> None:
    assert BY_NAME["memory"].arguments["most"] > BY_NAME["memory"].limits["memory_bytes"]
    in_sum = BY_NAME["memory_in_sum"]
    assert (
        in_sum.arguments["each"] < in_sum.limits["memory_bytes"] < in_sum.arguments["each"] * in_sum.arguments["count"]
    )
    for name in ("big_file", "sparse_file", "fallocate"):
        assert BY_NAME[name].arguments["most"] > BY_NAME[name].limits["file_bytes"]
    assert BY_NAME["descriptors"].arguments["most"] > BY_NAME["descriptors"].limits["open_files"]
    assert BY_NAME["forks"].arguments["most"] > BY_NAME["forks"].limits["pids"]
    assert BY_NAME["deadline"].arguments["seconds"] * 1000 > BY_NAME["deadline"].limits["timeout_ms"]


def test_the_limit_of_processes_by_rlimit_does_not_count_for_root() -> None:
    assert BY_NAME["forks"].not_for_root == frozenset({Layer.RLIMITS})


def test_being_killed_counts_as_stopped_only_where_a_limit_kills() -> None:
    killed = {name for name, each in BY_NAME.items() if signal.SIGKILL in each.ended_by}
    assert killed == {"forks", "memory", "memory_noreserve", "memory_shared", "memory_in_sum", "processor_time"}
