"""What the host needs of the machine it runs on, declared by who uses it."""

from typing import Any, Protocol

from palyra.nodes.host.command_plan import CommandPlan
from palyra.nodes.host.messages import Dispatch, Outcome


class Person(Protocol):
    """Whoever is at the device."""

    async def allows(self, capability: str, shown_input: str) -> bool:
        """What they say; no where nobody is there. Being cancelled takes the question back."""

    def notify(self, title: str, text: str) -> bool:
        """Whether it could be shown on a terminal."""

    def tell(self, text: str) -> None:
        """A line of the host's own log."""


class CommandRunner(Protocol):
    """Runs one command of the device's configuration in the sandbox."""

    async def run(
        self, plan: CommandPlan, words: tuple[str, ...], *, timeout_ms: int, max_output_bytes: int
    ) -> dict[str, Any]: ...


class Performer(Protocol):
    async def perform(self, dispatch: Dispatch, *, timeout_ms: int, max_result_bytes: int) -> Outcome: ...
