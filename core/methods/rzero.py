"""R-Zero (Huang et al., arXiv 2508.05004): the Challenger's reward, the Solver's, and its baseline on true labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar, Literal

from core.methods.base import Method, Objective
from core.types import PseudoLabel, QuestionFormat, Score
from core.validation.bounds import Answers, Factor


class ChallengerReward(Objective):
    """The Challenger's reward (R-Zero 2.2). `variant="official"` is that of the released code, which differs.

    `format` says what the format check expects of a rollout, which is malformed otherwise: the question's tags, or also
    a final `\\boxed{}` after them. The default is the paper's. Its section 2.2 names the tags only, although the prompt
    asks for an answer too (E.2). The released reward has the same effect. It was meant to require an answer, but the
    `extract_boxed_content` that it calls returns "None", which is a text, where there is no `\\boxed{}`.
    """

    rollouts: ClassVar[int] = 4

    # A.1: z-scores and no entropy bonus; and a rollout that is not trained on would be paid for in vain, because the
    # Challenger's do not vote.
    advantage: ClassVar[Literal["zscore"]] = "zscore"
    entropy_coefficient: ClassVar[float] = 0.0
    trained_share: ClassVar[float] = 1.0
    bleu_distance: ClassVar[float] = 0.5  # tau_BLEU, 2.2

    variant: Literal["paper", "official"] = "paper"
    format: QuestionFormat = "tags"
    votes: Answers = 10  # m, the Solver's answers to a question
    repetition_weight: Factor = 1.0  # lambda; with 0 there is no repetition penalty, an ablation of Table 3

    def scores(self, questions: Sequence[str | None], labels: Sequence[PseudoLabel | None]) -> list[Score]:
        """The rewards (B,) of a batch of Challenger rollouts, from their questions and the Solver's votes on them.

        A malformed rollout is None in both. `C_k` is the BLEU cluster of a question, B the size of the whole batch.

        `variant="paper"` (R-Zero 2.2, E.4; range [0, 1]): `max(0, 1 - 2|p_hat - 1/2| - lambda |C_k|/B)`. A malformed
        rollout gets 0. It is in no cluster, but counts in B.

        `variant="official"` (the released code; range [-2, 1/2]): `min(p_hat, 1 - p_hat) - |C_k|/B`. The uncertainty is
        half of the paper's, the penalty is not halved, and the reward is not cut off at 0. A malformed rollout gets
        `-1 - |C_k|/B` and is clustered as an empty question, which is alone in its cluster, because it is at distance 1
        from every other. The release has no lambda; ours, 1 by default, scales its penalty.

        `Score.parts`: `uncertainty` and `repetition` as they enter the reward, `p_hat` (0 if no rollout has an answer),
        `malformed` (0 or 1), `cluster_size` |C_k| (0 for a rollout in no cluster).

        Raises:
            ValueError: `labels` does not have a label exactly where there is a question.
        """
        well_formed, labelled = [text is not None for text in questions], [label is not None for label in labels]
        if well_formed != labelled:
            raise ValueError(
                "labels: expected a pseudo-label for each well-formed question and None for each malformed one, got "
                f"{sum(labelled)} labels for {sum(well_formed)} well-formed of {len(questions)} questions"
            )
        paper = self.variant == "paper"
        clustered = [i for i, question in enumerate(questions) if question is not None or not paper]
        # Imported here, because every command imports the methods, and only the Challenger's reward needs SciPy.
        from core.questions.similarity import clusters

        cluster_of = dict(
            zip(clustered, clusters([questions[i] or "" for i in clustered], self.bleu_distance), strict=True)
        )
        sizes, scores = Counter(cluster_of.values()), list[Score]()
        for i, label in enumerate(labels):
            size = sizes[cluster_of[i]] if i in cluster_of else 0
            penalty, p_hat = self.repetition_weight * (size / len(questions)), label.p_hat if label else 0.0
            if paper:
                uncertainty = 1 - 2 * abs(p_hat - 0.5)
                reward = max(0.0, uncertainty - penalty)
            else:
                uncertainty = min(p_hat, 1 - p_hat)
                reward = uncertainty - penalty - (label is None)
            parts = {"uncertainty": uncertainty, "repetition": penalty, "p_hat": p_hat}
            scores.append(Score(reward, {**parts, "malformed": float(label is None), "cluster_size": float(size)}))
        return scores


class RZero(Method):
    """R-Zero 2.4: agreement with the label that the Solver of the previous iteration voted for.

    The stage `label_questions` makes the label once, with S(t-1). A rollout without an answer gets 0.
    """

    rollouts: ClassVar[int] = 5

    type: Literal["rzero"] = "rzero"
    labels: Literal["offline"] = "offline"


class Supervised(Method):
    """R-Zero's GRPO on true labels (B.3): the reward is agreement with them."""

    rollouts: ClassVar[int] = 5

    type: Literal["supervised"] = "supervised"
    labels: Literal["offline"] = "offline"
