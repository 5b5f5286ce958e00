"""Sessions that may do less: no scripts, dialogs that answer themselves, few and slow actions."""

from pathlib import Path

import pytest

from fakes.page_scene import page_scene
from palyra.browser.domain.action import (
    BadAction,
    Click,
    ElementTarget,
    Evaluate,
    ExportPdf,
    ObserveAsk,
    SetPermissions,
)
from palyra.browser.domain.budget import BudgetSpent, TooLarge
from palyra.browser.domain.page_errors import EvaluateDenied, UnknownPermission
from palyra.browser.tabs.session_tabs import DialogPolicy, PageSettings

ASKING = "<script>document.title = confirm('sure?') + ' ' + prompt('who?')</script>"


@pytest.mark.parametrize(("policy", "title"), [(DialogPolicy.ACCEPT, "true "), (DialogPolicy.DISMISS, "false null")])
async def test_dialogs_answer_themselves_where_the_session_says_so(
    tmp_path: Path, policy: DialogPolicy, title: str
) -> None:
    async with page_scene(tmp_path) as scene:
        await scene.open(PageSettings(dialogs=policy))
        scene.site.pages["/ask"] = ASKING
        outcome = await scene.go("/ask")
        assert (outcome.title.strip(), outcome.dialog) == (title.strip(), None)
        logged = [entry.text for entry in scene.pages.console_log() if entry.kind == "dialog"]
        assert logged == ["confirm: sure?", "prompt: who?"]


async def test_a_session_does_what_its_settings_and_its_budget_allow(tmp_path: Path) -> None:
    async with page_scene(tmp_path) as scene:
        await scene.open(PageSettings(), max_screenshot_bytes=64, max_actions_per_session=9)
        await scene.go()
        with pytest.raises(EvaluateDenied):
            await scene.pages.perform(Evaluate(expression="1"))
        with pytest.raises(TooLarge):
            await scene.pages.perform(ExportPdf())
        origin = scene.site.url("")
        with pytest.raises(UnknownPermission):
            await scene.pages.perform(SetPermissions(origin=origin, grant=("everything",)))
        for odd in ("shop.test", f"{origin}/path", "file://"):
            with pytest.raises(BadAction):
                await scene.pages.perform(SetPermissions(origin=odd))
        await scene.pages.observe(ObserveAsk())
        # Observations count, and so do actions that were refused by something else.
        await scene.pages.perform(Click(target=ElementTarget(css="h1")))
        with pytest.raises(BudgetSpent):
            await scene.go()
