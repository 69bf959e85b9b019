from __future__ import annotations

import gc

from core.processes.imports import collection_paused


def test_nothing_is_collected_in_the_block_and_what_it_made_is_left_out_of_later_collections() -> None:
    frozen = gc.get_freeze_count()
    with collection_paused():
        assert not gc.isenabled()
        made = [{"a": []} for _ in range(1000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= frozen + len(made)
