"""The browser of one gateway, put together: its questions to policy, its sessions, and the executor of its tools."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from palyra.browser.service.access import SOCKET_FOLDER
from palyra.config.state_dir import StateDir
from palyra.daemon.browserd_supervisor import LOG_FILE
from palyra.daemon.settings import Settings
from palyra.executors.browser.policy_questions import BrowserQuestions, ceiling_of
from palyra.executors.browser.session_registry import SessionRegistry
from palyra.executors.browser.spec import ACT, browser_specs
from palyra.pipeline.domain.call import build_tool_entity
from palyra.pipeline.domain.spec import ToolSpec
from palyra.policy.decision import PolicyPort
from palyra.policy.request import Entity, EntityDirectory
from palyra.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

    from palyra.egress.policy_judge import RevealsSecrets
    from palyra.executors.browser.executor import BrowserTools
    from palyra.executors.browser.operator_service import BrowserOperatorService
    from palyra.executors.browser.session_supervisor import SessionSupervisor


class BrowserTier:
    """The browser tools of a gateway, built in two steps.

    The catalog needs their specs before the rest of the gateway exists. The services are built at their first use.
    """

    def __init__(self, settings: Settings, state: StateDir, file_specs: Callable[[str], ToolSpec]) -> None:
        self._settings = settings
        self._folder: Path = browser_folder(state)
        self._trace: Path = state.path(LOG_FILE)
        self._file_specs = file_specs
        self.registry = SessionRegistry()
        self.ceiling = ceiling_of(settings.browser, settings.egress)
        self.specs = browser_specs(
            BrowserQuestions(settings.browser, self.ceiling, self.registry, file_entity=self._file_entity)
        )

    def _file_entity(self, directory: EntityDirectory, tool: str) -> Entity:
        return build_tool_entity(directory, self._file_specs(tool))

    def join(
        self,
        *,
        store: SqliteStore,
        policy: PolicyPort,
        directory: EntityDirectory,
        secrets: "Callable[[], RevealsSecrets]",
        serving: bool,
        actor: str,
    ) -> None:
        self._store = store
        self._policy = policy
        self._directory = directory
        self._secrets = secrets
        self._serving = serving
        self._actor = actor

    @cached_property
    def supervisor(self) -> "SessionSupervisor":
        from palyra.executors.browser.session_supervisor import SessionSupervisor

        return SessionSupervisor(
            settings=self._settings.browser,
            ceiling=self.ceiling,
            registry=self.registry,
            folder=self._folder,
            trace=self._trace,
            store=self._store,
            policy=self._policy,
            directory=self._directory,
            serving=self._serving,
            actor=self._actor,
        )

    @cached_property
    def tools(self) -> "BrowserTools":
        from palyra.executors.browser.executor import BrowserTools, SessionOpening
        from palyra.executors.browser.secrets_and_files import BrowserSupply

        act = next(spec for spec in self.specs if spec.name == ACT)
        return BrowserTools(
            self.supervisor,
            SessionOpening(self.supervisor, self._policy, self._directory),
            BrowserSupply(
                self._settings.browser,
                self._secrets(),
                self._settings.workspace.protected,
                build_tool_entity(self._directory, act),
            ),
        )

    @cached_property
    def operator_service(self) -> "BrowserOperatorService":
        from palyra.executors.browser.operator_service import BrowserOperatorService

        return BrowserOperatorService(self.supervisor)

    def policy_changed(self) -> None:
        """End the sessions that a new policy does not allow any more."""
        if "supervisor" in self.__dict__:
            self.supervisor.policy_changed()


def browser_folder(state: StateDir) -> "Path":
    """Where the browser daemon of this state directory has its socket."""
    return state.path(SOCKET_FOLDER)
