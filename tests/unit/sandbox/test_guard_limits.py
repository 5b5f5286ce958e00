from palyra import limits as shared
from palyra.sandbox import limits


def test_the_designs_numbers() -> None:
    assert (limits.MAX_COMMAND_BYTES, limits.MAX_ARGUMENTS, limits.MAX_ARGUMENT_BYTES) == (256, 128, 4096)


def test_the_largest_input_fits_a_process_call() -> None:
    encoded = (limits.MAX_STDIN_BYTES + 2) // 3 * 4
    assert encoded + limits.MAX_COMMAND_BYTES < shared.MAX_PROCESS_RUNNER_TOOL_INPUT_BYTES
