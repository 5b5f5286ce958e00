"""The sandbox's own bounds fit each other and the programs they are handed to."""

from palyra import limits as shared
from palyra.sandbox import limits
from palyra.sandbox.domain.launch_spec import LAST_EXTRA_DESCRIPTOR
from palyra.sandbox.domain.network import NetworkPlan
from palyra.sandbox.domain.plan import FIRST_EXTRA_FILE_FD
from palyra.sandbox.network import socket_opener_main

BUBBLEWRAP_ARGUMENTS = 9_000


def test_the_most_mounts_fit_the_arguments_that_bubblewrap_takes() -> None:
    fixed = 500 + 3 * limits.MAX_EXTRA_ENVIRONMENT + 3 * limits.MAX_TOOL_ROOTS + 5 * limits.MAX_EXTRA_FILES
    assert 3 * limits.MAX_UNFOLDED_MOUNTS + fixed < BUBBLEWRAP_ARGUMENTS
    assert limits.MAX_PROTECTED_MOUNTS < limits.MAX_UNFOLDED_MOUNTS


def test_defaults_lie_within_what_may_be_asked() -> None:
    assert limits.MIN_PIDS <= limits.DEFAULT_PIDS <= limits.MAX_PIDS
    assert limits.MIN_OPEN_FILES <= limits.DEFAULT_OPEN_FILES <= limits.MAX_OPEN_FILES
    assert limits.DEFAULT_MEMORY_BYTES <= limits.MAX_BYTES
    assert limits.DEFAULT_OUTPUT_BYTES <= limits.MAX_OUTPUT_BYTES
    assert limits.DEFAULT_TIMEOUT_MS <= limits.MAX_TIMEOUT_MS


def test_the_largest_door_fits_the_helpers_order_and_extra_files_the_launch() -> None:
    widest = NetworkPlan(ports=tuple(range(2000, 2000 + limits.MAX_ALLOWED_PORTS)))
    assert len(widest.listeners()) <= socket_opener_main.MAX_LISTENERS
    assert FIRST_EXTRA_FILE_FD + limits.MAX_EXTRA_FILES - 1 <= LAST_EXTRA_DESCRIPTOR


def test_the_designs_numbers() -> None:
    assert (limits.MAX_COMMAND_BYTES, limits.MAX_ARGUMENTS, limits.MAX_ARGUMENT_BYTES) == (256, 128, 4096)


def test_the_largest_input_fits_a_process_call() -> None:
    encoded = (limits.MAX_STDIN_BYTES + 2) // 3 * 4
    assert encoded + limits.MAX_COMMAND_BYTES < shared.MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES
