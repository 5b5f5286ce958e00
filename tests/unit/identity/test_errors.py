import inspect

import pytest

from palyra.errors import ExitCode, PalyraError
from palyra.identity import device

OWN = [
    error
    for _, error in inspect.getmembers(device, inspect.isclass)
    if issubclass(error, PalyraError) and error.__module__ == device.__name__
]


@pytest.mark.parametrize("error", OWN)
def test_every_refusal_has_a_code_of_its_own_and_says_what_to_do(error: type[PalyraError]) -> None:
    assert "code" in error.__dict__ and error.code.startswith("identity.")
    assert error("m").hint


@pytest.mark.parametrize(
    ("error", "exit_code", "status"),
    [
        (device.UnknownCertificate, ExitCode.DENIED, 401),
        (device.DeviceRevoked, ExitCode.DENIED, 403),
        (device.StaleGeneration, ExitCode.DENIED, 403),
        (device.UnknownDevice, ExitCode.USAGE, 404),
        (device.CsrTooLarge, ExitCode.LIMIT, 413),
        (device.RotationRunning, ExitCode.DENIED, 409),
        (device.IdentityTampered, ExitCode.FAILED, 409),
        (device.NotOpened, ExitCode.UNAVAILABLE, 503),
    ],
)
def test_each_kind_of_refusal_ends_in_its_own_way(error: type[PalyraError], exit_code: ExitCode, status: int) -> None:
    assert (error.exit_code, error.http_status) == (exit_code, status)


def test_whoever_expects_a_locked_device_also_sees_the_request_that_locked_it() -> None:
    assert issubclass(device.StaleGeneration, device.DeviceLocked)
