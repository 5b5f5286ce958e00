"""Sessions that may do less: no scripts, dialogs that answer themselves, few and slow actions."""

from pathlib import Path

import pytest

from fakes.page_harness import page_harness
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


async def test_a_session_does_what_its_settings_and_its_budget_allow(tmp_path: Path) -> None:
    async with page_harness(tmp_path) as harness:
        await harness.open(allow_evaluate=False, max_screenshot_bytes=64, max_actions_per_session=9)
        await harness.go()
        with pytest.raises(EvaluateDenied):
            await harness.pages.perform(Evaluate(expression="1"))
        with pytest.raises(TooLarge):
            await harness.pages.perform(ExportPdf())
        origin = harness.site.url("")
        with pytest.raises(UnknownPermission):
            await harness.pages.perform(SetPermissions(origin=origin, grant=("everything",)))
        for odd in ("shop.test", f"{origin}/path", "file://"):
            with pytest.raises(BadAction):
                await harness.pages.perform(SetPermissions(origin=odd))
        await harness.pages.observe(ObserveAsk())
        # Observations count, and so do actions that were refused by something else.
        await harness.pages.perform(Click(target=ElementTarget(css="h1")))
        with pytest.raises(BudgetSpent):
            await harness.go()
