import inspect

import pytest

from palyra.errors import ExitCode, PalyraError
from palyra.identity import errors

OWN = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, PalyraError) and error.__module__ == errors.__name__
]


@pytest.mark.parametrize("error", OWN)
def test_every_refusal_has_a_code_of_its_own_and_says_what_to_do(error: type[PalyraError]) -> None:
    assert "code" in error.__dict__ and error.code.startswith("identity.")
    assert error("m").hint


@pytest.mark.parametrize(
    ("error", "exit_code", "status"),
    [
        (errors.UnknownCertificate, ExitCode.DENIED, 401),
        (errors.DeviceRevoked, ExitCode.DENIED, 403),
        (errors.StaleGeneration, ExitCode.DENIED, 403),
        (errors.UnknownDevice, ExitCode.USAGE, 404),
        (errors.CsrTooLarge, ExitCode.LIMIT, 413),
        (errors.RotationRunning, ExitCode.DENIED, 409),
        (errors.IdentityTampered, ExitCode.FAILED, 409),
        (errors.NotOpened, ExitCode.UNAVAILABLE, 503),
    ],
)
def test_each_kind_of_refusal_ends_in_its_own_way(error: type[PalyraError], exit_code: ExitCode, status: int) -> None:
    assert (error.exit_code, error.http_status) == (exit_code, status)


def test_whoever_expects_a_locked_device_also_sees_the_request_that_locked_it() -> None:
    assert issubclass(errors.StaleGeneration, errors.DeviceLocked)
