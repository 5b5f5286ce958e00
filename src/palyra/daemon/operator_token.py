"""The token of the person who owns the state directory: made at first start, kept in a file only they can read."""

import contextlib

from palyra.clock import SystemClock
from palyra.config.state_dir import StateDir
from palyra.daemon.settings import Settings
from palyra.errors import PalyraError
from palyra.identity.api_tokens import TokenScope, authenticate, create_token
from palyra.ids import Principal
from palyra.secret import Secret
from palyra.store.port import Store

FILE = "operator.token"
DEFAULT_OPERATOR = "user:operator"


def operator_token(store: Store, state: StateDir, settings: Settings) -> Secret:
    """Return the token in the file if it still works, else a new one in its place."""
    path = state.path(FILE)
    if path.exists():
        kept = Secret(path.read_text().strip())
        with contextlib.suppress(PalyraError):
            authenticate(store, kept.reveal(), SystemClock().now_ms())
            return kept
    owner = Principal.parse(settings.access.operators[0] if settings.access.operators else DEFAULT_OPERATOR)
    _, token = store.transact_blocking(
        lambda tx: create_token(
            tx, owner, (TokenScope.CALL, TokenScope.OPERATE), actor="palyrad", label="owner of the state directory"
        )
    )
    state.write_atomic(FILE, token.reveal().encode() + b"\n")
    return token
