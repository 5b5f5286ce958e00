"""The browser of one gateway, put together: its questions to policy, its sessions, and the executor of its tools."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from palyra.browser.socket_place import SOCKET_FOLDER
from palyra.config.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.daemons.browser_policy import BrowserQuestions, ceiling_of
from palyra.daemons.browser_sessions import SessionBook
from palyra.daemons.browser_specs import ACT, browser_specs
from palyra.daemons.local_browser import LOG_FILE
from palyra.journal.sqlite import SqliteStore
from palyra.policy.entities import Entity, EntityDirectory
from palyra.policy.port import PolicyPort
from palyra.tools.call import tool_entity
from palyra.tools.spec import ToolSpec

if TYPE_CHECKING:
    from pathlib import Path

    from palyra.daemons.browser_desk import BrowserDesk
    from palyra.daemons.browser_parts import BrowserParts
    from palyra.daemons.browser_supply import RevealsSecrets
    from palyra.daemons.browser_tools import BrowserTools


class BrowserTier:
    """Made in steps: its specs belong to the catalog, which the rest of a gateway is made from, and what works with
    browsers is made when somebody does."""

    def __init__(self, settings: Settings, state: StateDir, file_specs: Callable[[str], ToolSpec]) -> None:
        self._settings = settings
        self._folder: Path = browser_folder(state)
        self._trace: Path = state.path(LOG_FILE)
        self._file_specs = file_specs
        self.book = SessionBook()
        self.ceiling = ceiling_of(settings.browser, settings.egress)
        self.specs = browser_specs(
            BrowserQuestions(settings.browser, self.ceiling, self.book, file_entity=self._file_entity)
        )

    def _file_entity(self, directory: EntityDirectory, tool: str) -> Entity:
        return tool_entity(directory, self._file_specs(tool))

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
    def parts(self) -> "BrowserParts":
        from palyra.daemons.browser_parts import BrowserParts

        return BrowserParts(
            self._settings.browser,
            self.ceiling,
            self.book,
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
        from palyra.daemons.browser_opening import SessionOpening
        from palyra.daemons.browser_supply import BrowserSupply
        from palyra.daemons.browser_tools import BrowserTools

        act = next(spec for spec in self.specs if spec.name == ACT)
        return BrowserTools(
            self.parts,
            SessionOpening(self.parts, self._policy, self._directory),
            BrowserSupply(
                self._settings.browser,
                self._secrets(),
                self._settings.workspace.protected_names,
                tool_entity(self._directory, act),
            ),
        )

    @cached_property
    def desk(self) -> "BrowserDesk":
        from palyra.daemons.browser_desk import BrowserDesk

        return BrowserDesk(self.parts)

    def policy_changed(self) -> None:
        """Sessions that a new policy does not allow any more end; where none was ever opened there are none."""
        if "parts" in self.__dict__:
            self.parts.policy_changed()


def browser_folder(state: StateDir) -> "Path":
    """Where the browser daemon of this state directory has its socket."""
    return state.path(SOCKET_FOLDER)
