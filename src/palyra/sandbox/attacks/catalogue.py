"""All attempts, in the order in which they are made and shown."""

from typing import Final

from palyra.sandbox.attacks.attempt import Attempt
from palyra.sandbox.attacks.file_attempts import FILE_ATTEMPTS
from palyra.sandbox.attacks.guard_attempts import GUARD_ATTEMPTS
from palyra.sandbox.attacks.kernel_attempts import KERNEL_ATTEMPTS
from palyra.sandbox.attacks.resource_attempts import RESOURCE_ATTEMPTS
from palyra.sandbox.attacks.world_attempts import NETWORK_ATTEMPTS, PROCESS_ATTEMPTS
from palyra.sandbox.profile import SandboxTier

ATTEMPTS: Final[tuple[Attempt, ...]] = (
    *FILE_ATTEMPTS,
    *KERNEL_ATTEMPTS,
    *PROCESS_ATTEMPTS,
    *NETWORK_ATTEMPTS,
    *RESOURCE_ATTEMPTS,
    *GUARD_ATTEMPTS,
)


def attempts_in(tier: SandboxTier) -> tuple[Attempt, ...]:
    return tuple(attempt for attempt in ATTEMPTS if attempt.promise(tier) is not None)
