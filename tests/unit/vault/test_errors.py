import pytest

from palyra.errors import ExitCode, PalyraError
from palyra.vault import errors


@pytest.mark.parametrize(
    ("error", "exit_code", "status"),
    [
        (errors.VaultTampered, ExitCode.FAILED, 409),
        (errors.NoSuchSecret, ExitCode.USAGE, 404),
        (errors.ValueTooLarge, ExitCode.LIMIT, 413),
        (errors.KeyMissing, ExitCode.UNAVAILABLE, 503),
        (errors.KeyUnsafe, ExitCode.DENIED, 403),
        (errors.ScopeDenied, ExitCode.DENIED, 403),
        (errors.UseNeedsApproval, ExitCode.NEEDS_APPROVAL, 202),
    ],
)
def test_each_kind_of_refusal_ends_in_its_own_way(error: type[PalyraError], exit_code: ExitCode, status: int) -> None:
    assert (error.exit_code, error.http_status) == (exit_code, status)
    assert error.code.startswith("vault.") and error("m").hint
