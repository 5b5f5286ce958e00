"""The errors of the page layer, each with a code that a model can act on."""

from palyra.errors import Denied, Failed, InvalidInput, LimitExceeded, Unavailable


class StaleRef(Failed):
    code = "browser.stale_ref"
    hint = "the page changed since it was looked at: use the candidate that is named, or look again"
    http_status = 409


class UnknownRef(InvalidInput):
    code = "browser.unknown_ref"
    hint = "refs are those of the last observations of this very tab; look again"


class NoMatch(Failed):
    code = "browser.no_match"
    hint = "use one of the elements that are named, or look at the page"
    http_status = 404


class SeveralMatch(InvalidInput):
    code = "browser.several_match"
    hint = "use the ref of the one that is meant"


class BadSelector(InvalidInput):
    code = "browser.bad_selector"
    hint = "give a CSS selector, a text, or a role with a name"


class ElementHidden(Failed):
    code = "browser.element_hidden"
    hint = "something has to be opened or scrolled first, or another element is meant: look at the page"


class ElementCovered(Failed):
    code = "browser.element_covered"
    hint = "close or answer what is in front of it first"


class ElementDisabled(Failed):
    code = "browser.element_disabled"
    hint = "the page wants something else first, such as a required field"


class ElementMoving(LimitExceeded):
    code = "browser.element_moving"
    hint = "wait until the page has come to rest"


class NotEditable(Failed):
    code = "browser.not_editable"
    hint = "type into a text field; press buttons, choose options of a select"


class NotSelectable(InvalidInput):
    code = "browser.not_selectable"
    hint = "select works on a native select and the options it has; a list made by the page is clicked"


class NotFileInput(InvalidInput):
    code = "browser.not_file_input"
    hint = "name the file input itself or its label"


class UploadRefused(InvalidInput):
    code = "browser.upload_refused"
    hint = "give fewer or smaller files, with plain names"


class SecretWrongOrigin(Denied):
    code = "browser.secret_wrong_origin"
    hint = "this secret is for other sites; look at the address before typing secrets"


class InputStrayed(Failed):
    """An input event would have reached another element, and was stopped."""

    code = "browser.input_strayed"
    hint = "nothing was done; look at the page again"
    http_status = 409


class PageScriptFailed(Failed):
    code = "browser.page_script_failed"
    hint = "the page cannot be read this way; a picture may tell more"


class WaitTimedOut(LimitExceeded):
    code = "browser.wait_timed_out"
    hint = "look at the page: what was waited for may be called otherwise"


class BadKey(InvalidInput):
    code = "browser.bad_key"
    hint = "a key is one character or a name such as Enter, Tab or ArrowDown, with modifiers before it: Control+a"


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
