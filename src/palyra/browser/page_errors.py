"""How the page layer refuses and fails: each with a code that a model can act on."""

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, Unavailable


class BadAddress(InvalidInput):
    code = "browser.bad_address"
    hint = "give a whole address, such as https://example.com/page, without spaces or control characters"


class SchemeRefused(Denied):
    code = "browser.scheme_refused"
    hint = (
        "a tab shows http and https pages and about:blank; data: and blob: only within a page, and nothing else at all"
    )


class NavigationFailed(Failed):
    code = "browser.navigation_failed"
    hint = "the site did not answer, or the network guard refused it: check the address and the session's policy"
    http_status = 502


class NavigationTimeout(LimitExceeded):
    code = "browser.navigation_timeout"
    hint = "look at the page as it is, wait for a lesser state (committed, content), or try again"
    http_status = 504


class PageTimeout(LimitExceeded):
    code = "browser.page_timeout"
    hint = "the page may be busy: look at it, wait, or try again"
    http_status = 504


class NoHistory(InvalidInput):
    code = "browser.no_history"
    hint = "there is no page in that direction; navigate to an address instead"


class UnknownTab(InvalidInput):
    code = "browser.unknown_tab"
    hint = "list the tabs: ids are given once, and a closed tab's id is never used again"
    http_status = 404


class TabCrashed(Unavailable):
    code = "browser.tab_crashed"
    hint = "navigate in this tab again, or close it"


class DialogOpen(Failed):
    code = "browser.dialog_open"
    hint = "answer it with handle_dialog first: until then its tab does nothing else"
    http_status = 409


class NoDialog(InvalidInput):
    code = "browser.no_dialog"
    hint = "no dialog is open in this tab"
    http_status = 409


class DocumentGone(Failed):
    code = "browser.document_gone"
    hint = "the page has moved on: look at it again"
    http_status = 409


class EvaluateDenied(Denied):
    code = "browser.evaluate_denied"
    hint = "this session may not run scripts: use actions and observations, or ask the operator for the right"


class ScriptFailed(Failed):
    code = "browser.script_failed"
    hint = "the script raised an error, or returned what has no JSON form"
    http_status = 422


class UnknownPermission(InvalidInput):
    code = "browser.unknown_permission"
    hint = "the reference of browser tools lists the permissions that can be granted"


class TakenOver(Unavailable):
    code = "browser.taken_over"
    hint = "a person has this session now; try again when it was handed back"
    http_status = 409


class NotTakenOver(InvalidInput):
    code = "browser.not_taken_over"
    hint = "take the session over before you operate it"
    http_status = 409
