"""The browser of one gateway, put together: its questions to policy, its sessions, and the executor of its tools."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from palyra.browser.socket_place import SOCKET_FOLDER
from palyra.config.settings import Settings
from palyra.config.state_dir import StateDir
from palyra.daemons.browser_desk import BrowserDesk
from palyra.daemons.browser_opening import SessionOpening
from palyra.daemons.browser_parts import BrowserParts
from palyra.daemons.browser_policy import BrowserQuestions, ceiling_of
from palyra.daemons.browser_sessions import SessionBook
from palyra.daemons.browser_specs import ACT, browser_specs
from palyra.daemons.browser_supply import BrowserSupply, RevealsSecrets
from palyra.daemons.browser_tools import BrowserTools
from palyra.daemons.local_browser import LOG_FILE
from palyra.journal.sqlite import SqliteStore
from palyra.policy.entities import Entity, EntityDirectory
from palyra.policy.port import PolicyPort
from palyra.tools.call import tool_entity
from palyra.tools.spec import ToolSpec

if TYPE_CHECKING:
    from pathlib import Path


class BrowserTier:
    """Made in two steps: its specs belong to the catalog, which the rest of a gateway is made from."""

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
        secrets: RevealsSecrets,
        serving: bool,
        actor: str,
    ) -> None:
        self.parts = BrowserParts(
            self._settings.browser,
            self.ceiling,
            self.book,
            folder=self._folder,
            trace=self._trace,
            store=store,
            policy=policy,
            directory=directory,
            serving=serving,
            actor=actor,
        )
        act = next(spec for spec in self.specs if spec.name == ACT)
        self.tools = BrowserTools(
            self.parts,
            SessionOpening(self.parts, policy, directory),
            BrowserSupply(
                self._settings.browser,
                secrets,
                self._settings.workspace.protected_names,
                tool_entity(directory, act),
            ),
        )
        self.desk = BrowserDesk(self.parts)


def browser_folder(state: StateDir) -> "Path":
    """Where the browser daemon of this state directory has its socket."""
    return state.path(SOCKET_FOLDER)
