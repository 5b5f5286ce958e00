"""The browser daemon's answers as results of tools: without empty fields, and marked as a page's own words."""

import base64
import json
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from palyra.browser.domain.action import ActionOutcome, ChromiumObserveSnapshot, TabView
from palyra.browser.domain.download import DownloadRecord, Folder
from palyra.browser.domain.session_api import SessionView
from palyra.executors.browser.arguments import Reach
from palyra.executors.browser.schemas import NOTICE
from palyra.executors.untrusted_text import remove_hidden

UNTRUSTED: Final = {"content_is_untrusted": True, "notice": NOTICE}
# Refusals of one call that its receipt names.
_SHOWN_REFUSALS: Final = 8
_WAIVED: Final = "; the operator allows that it is down"


def outcome_view(outcome: ActionOutcome) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "tab": outcome.tab,
        "url": outcome.url,
        "title": _clean(outcome.title),
        "status": outcome.status,
    }
    if outcome.dialog is not None:
        shown["dialog"] = {
            "kind": outcome.dialog.kind,
            "message": _clean(outcome.dialog.message),
            "default_text": _clean(outcome.dialog.default_text),
        }
    if outcome.new_tabs:
        shown["new_tabs"] = tab_views(outcome.new_tabs)
    for name in ("downloads", "refused"):
        if values := getattr(outcome, name):
            shown[name] = list(values)
    if outcome.console_errors:
        shown["console_errors"] = [_clean(text) for text in outcome.console_errors]
    if outcome.value_json:
        shown["value"] = json.loads(outcome.value_json)
    return shown


def snapshot_view(snapshot: ChromiumObserveSnapshot) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "tab": snapshot.tab,
        "url": snapshot.url,
        "title": _clean(snapshot.title),
        "form": snapshot.form.value,
        "text": _clean(snapshot.text),
        "truncated": snapshot.truncated,
        "refs": snapshot.refs,
        "matches": snapshot.matches,
    }
    if len(snapshot.tabs) > 1:
        shown["tabs"] = tab_views(snapshot.tabs)
    return shown


def tab_views(tabs: Iterable[TabView]) -> list[dict[str, Any]]:
    return [{**msgspec.to_builtins(tab), "title": _clean(tab.title)} for tab in tabs]


def picture_view(outcome: ActionOutcome) -> dict[str, Any]:
    name = "image_base64" if outcome.media_type.startswith("image/") else "pdf_base64"
    return {name: base64.b64encode(outcome.content).decode(), "media_type": outcome.media_type}


def download_view(record: DownloadRecord) -> dict[str, Any]:
    if record.folder is Folder.ALLOWLIST:
        state = "ready" if record.complete else "incomplete"
    else:
        state = "quarantined" if record.folder is Folder.QUARANTINE else "refused"
    return {
        "id": record.id,
        "name": _clean(record.name),
        "size": record.size,
        "digest": record.digest,
        "source": record.source,
        "state": state,
        "reasons": [str(reason) for reason in record.reasons],
    }


def receipt_of(view: SessionView, reach: Reach, refused: Iterable[str] = ()) -> tuple[dict[str, Any], ...]:
    """Describe the isolation layers as they were read off the browser, and the guard's refusals."""
    fences = msgspec.json.decode(view.fences_json) if view.fences_json else {"lines": []}
    lines = [
        {
            "layer": f"browser {line['fence']}",
            "asked": line["asked"],
            "got": line["got"] + (_WAIVED if line["fence"] in view.fences_waived else ""),
        }
        for line in fences["lines"]
    ]
    lines_refused = tuple(refused)
    got = "nothing else was asked for"
    if lines_refused:
        got = f"{len(lines_refused)} refused: {'; '.join(lines_refused[:_SHOWN_REFUSALS])}"
    hosts = {"layer": "browser hosts", "asked": f"only {', '.join(reach.words())}", "got": got}
    return (*lines, hosts)


def _clean(text: str) -> str:
    """Remove characters that a person would not see and a model would."""
    return remove_hidden(text)[0]
