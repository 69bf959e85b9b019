"""What is stored of a run and of its fork, in a form in which the iterations that both have made are equal."""

from __future__ import annotations

import re
from collections import Counter

from orchestrator.installation.home import Home
from storage.session import Store
from tests.chaos.contents import Contents, contents_of

_ALERT_ID = re.compile(r'^\{"id": "[0-9a-f]{16}"')  # of the run's name, too
_OF_THE_RUN = ("runs", "inherited_iterations")  # tables whose rows are not of an iteration


def contents(store: Store, home: Home, run: str, of: str) -> Contents:
    """The rows and texts of a run's own iterations, with one name for it and for the run `of` that it began with."""
    with store.read() as session:
        stored = contents_of(session, home.texts, run)
    named = {
        name.replace(of, "RUN"): [_ALERT_ID.sub("", row.replace(of, "RUN")) for row in rows]
        for name, rows in stored.items()
    }
    return {name: sorted(rows) for name, rows in named.items() if rows and name not in _OF_THE_RUN}


def difference(more: Contents, less: Contents) -> Contents:
    """The rows that only the first one has."""
    rows = {name: Counter(rows) - Counter(less.get(name, ())) for name, rows in more.items()}
    return {name: sorted(left.elements()) for name, left in rows.items() if left}
