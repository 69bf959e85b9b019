from __future__ import annotations

import pytest

from core.methods.evol_rl import EvolRl
from core.methods.rzero import RZero
from core.methods.scrl import Scrl
from core.methods.ttrl import Ttrl
from trainers.base import LOCAL_SIGNALS, TrainError, refuse_unmet


def test_a_method_whose_signal_a_trainer_cannot_give_is_refused_by_name() -> None:
    with pytest.raises(TrainError, match="scrl needs mean_entropy, which a trainer cannot give; it gives label"):
        refuse_unmet(Scrl(), frozenset({"label"}), "a trainer")
    with pytest.raises(TrainError, match="evol_rl needs embeddings, label, which"):
        refuse_unmet(EvolRl(labels="offline"), frozenset({"clusters"}), "a trainer")
    refuse_unmet(RZero(), frozenset({"label"}), "a trainer")
    refuse_unmet(Ttrl(), frozenset(), "a trainer")


def test_the_embedded_trainer_gives_every_signal() -> None:
    for method in (Scrl(), EvolRl(labels="offline")):
        refuse_unmet(method, LOCAL_SIGNALS, "the embedded trainer")
