"""The last change of the profiles that palyrad received, in its own database, out of the browser daemon's reach."""

from palyra.browser.domain.session_api import ProfilesHead
from palyra.store.port import Store, Transaction


def read_last_head(store: Store) -> ProfilesHead:
    """Return a head without a mark if no change was received yet."""
    rows = store.read("SELECT generation, mark FROM browser_profiles_heard")
    return ProfilesHead(generation=rows[0][0], mark=rows[0][1]) if rows else ProfilesHead()


def put_last_head(tx: Transaction, head: ProfilesHead) -> None:
    """Store a change, unless a newer one is stored. Numbers only grow, also when an older copy is accepted."""
    tx.execute(
        """INSERT INTO browser_profiles_heard VALUES (1, ?, ?) ON CONFLICT (one) DO UPDATE
        SET generation = excluded.generation, mark = excluded.mark WHERE excluded.generation > generation""",
        (head.generation, head.mark),
    )


SCHEMA = (
    """CREATE TABLE IF NOT EXISTS browser_profiles_heard (
        one INTEGER PRIMARY KEY CHECK (one = 1), generation INTEGER NOT NULL, mark TEXT NOT NULL) STRICT""",
)
