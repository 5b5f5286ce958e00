import pytest

from palyra.errors import ExitCode, PalyraError
from palyra.vault import key_source


@pytest.mark.parametrize(
    ("error", "exit_code", "status"),
    [
        (key_source.VaultTampered, ExitCode.FAILED, 409),
        (key_source.NoSuchSecret, ExitCode.USAGE, 404),
        (key_source.ValueTooLarge, ExitCode.LIMIT, 413),
        (key_source.KeyMissing, ExitCode.UNAVAILABLE, 503),
        (key_source.KeyUnsafe, ExitCode.DENIED, 403),
        (key_source.ScopeDenied, ExitCode.DENIED, 403),
        (key_source.UseNeedsApproval, ExitCode.NEEDS_APPROVAL, 202),
    ],
)
def test_each_kind_of_refusal_ends_in_its_own_way(error: type[PalyraError], exit_code: ExitCode, status: int) -> None:
    assert (error.exit_code, error.http_status) == (exit_code, status)
    assert error.code.startswith("vault.") and error("m").hint
