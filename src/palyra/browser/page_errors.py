"""How the page layer refuses and fails: each with a code that a model can act on."""

from palyra.errors import Failed


class DialogOpen(Failed):
    code = "browser.dialog_open"
    hint = "answer it with handle_dialog first: until then its tab does nothing else"
    http_status = 409


class DocumentGone(Failed):
    code = "browser.document_gone"
    hint = "the page has moved on: look at it again"
    http_status = 409
