"""The browser tools in the catalog: the resources they access, their policy questions, and their budget."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from palyra.executors.browser import arguments as tool_arguments
from palyra.executors.browser.policy_questions import BrowserQuestions
from palyra.executors.browser.schemas import TOOLS
from palyra.ids import ToolName
from palyra.pipeline.domain.budget import BudgetKind
from palyra.pipeline.domain.spec import (
    AccessedResources,
    Asker,
    BrowserOfCall,
    ToolCapability,
    ToolMetadata,
    ToolSpec,
    ToolTier,
    leave_unchanged,
)

Question = Callable[[Asker, Mapping[str, Any]], BrowserOfCall]
BROWSER_EXECUTOR: Final = "browser"
OPEN, NAVIGATE, ACT, DOWNLOADS = "browser.open", "browser.navigate", "browser.act", "browser.downloads"
# Every connection of a session is judged and no file is written but by approval, whatever policy demands of these.
_ENFORCEABLE: Final = frozenset(("timeout_ms", "max_output_bytes", "egress", "read_only"))
_BROWSER: Final = frozenset({ToolCapability.BROWSER})
_CAPABILITIES: Final[dict[str, frozenset[ToolCapability]]] = {
    OPEN: _BROWSER | {ToolCapability.NETWORK},
    NAVIGATE: _BROWSER | {ToolCapability.NETWORK},
    ACT: _BROWSER | {ToolCapability.NETWORK, ToolCapability.SECRETS_READ, ToolCapability.FILESYSTEM_READ},
    DOWNLOADS: _BROWSER | {ToolCapability.FILESYSTEM_WRITE},
}
# Reads what the session has anyway: it counts for nothing in the browser.
_FREE: Final = frozenset(("browser.close", "browser.tabs", "browser.logs", DOWNLOADS, "browser.handoff"))


def browser_specs(questions: BrowserQuestions | None) -> list[ToolSpec]:
    asks: dict[str, Question] = {}
    usual: Question | None = None
    if questions is not None:
        usual = questions.of_session
        asks = {
            OPEN: questions.of_open,
            NAVIGATE: questions.of_navigate,
            ACT: questions.of_act,
            DOWNLOADS: questions.of_downloads,
        }
    return [
        ToolSpec(
            name=ToolName(name),
            title=text.title,
            description=text.description,
            input_schema=text.input_schema,
            output_schema=text.output_schema,
            metadata=ToolMetadata(capabilities=_CAPABILITIES.get(name, _BROWSER)),
            tier=ToolTier.BROWSER,
            executor=BROWSER_EXECUTOR,
            browser=asks.get(name, usual),
            complete=_completed(name),
            enforceable=_ENFORCEABLE,
            touches=_resource_finder(name),
            reserves=_reserves(name),
        )
        for name, text in TOOLS.items()
    ]


def _completed(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return tool_arguments.add_hosts if name == OPEN else leave_unchanged


def _resource_finder(name: str) -> Callable[[Mapping[str, Any]], AccessedResources]:
    """Raise for arguments that cannot be executed, so that nobody is asked to approve them."""

    def touches(arguments: Mapping[str, Any]) -> AccessedResources:
        match name:
            case "browser.open":
                everywhere = (tool_arguments.ANY_PUBLIC_HOST,) if arguments.get("any_public_host") else ()
                return AccessedResources(hosts=(*arguments["hosts"], *everywhere))
            case "browser.navigate":
                tool_arguments.require_one_way(arguments)
                return AccessedResources(hosts=_hosts((arguments["url"],) if "url" in arguments else ()))
            case "browser.act":
                steps = tool_arguments.steps_of(arguments)
                return AccessedResources(
                    hosts=_hosts(tool_arguments.addresses_of(steps)),
                    secrets=tool_arguments.secrets_of(steps),
                    paths=tool_arguments.paths_of(steps),
                )
            case "browser.downloads":
                tool_arguments.require_save(arguments)
                return AccessedResources(paths=(arguments["path"],) if "path" in arguments else ())
        return AccessedResources()

    return touches


def _hosts(urls: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tool_arguments.host_words(tool_arguments.target_of(url)) for url in urls))


def _reserves(name: str) -> Callable[[Mapping[str, Any]], Mapping[BudgetKind, int]]:
    def reserves(arguments: Mapping[str, Any]) -> Mapping[BudgetKind, int]:
        most = actions_of(name, arguments)
        return {BudgetKind.BROWSER_ACTIONS: most} if most else {}

    return reserves


def actions_of(name: str, arguments: Mapping[str, Any]) -> int:
    if name in _FREE:
        return 0
    after = 1 if arguments.get("snapshot") else 0
    if name == ACT:
        return len(arguments["actions"]) + after
    if name == "browser.screenshot":
        # Taken once more, smaller, where it does not fit.
        return 2
    # Opening counts for itself: a browser is started.
    return 1 + after + (1 if name == OPEN and "url" in arguments else 0)
