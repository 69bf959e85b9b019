"""What the intervals of a comparison cover, in words: the seeds where there are several, and the questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from core.statistics.seeds import LEAST_SEEDS, Difference


def remarks(
    baseline: str, seeds: Mapping[str, Sequence[int]], differences: Mapping[str, Mapping[str, Difference]]
) -> Iterator[str]:
    """Sentences about the differences of arms to the baseline.

    `seeds` has those of each arm's runs, and `differences` the figures of each arm that is compared.
    """
    if not differences:
        return
    tests = {arm: next(iter(figures.values())).over_seeds for arm, figures in differences.items()}
    over_seeds = ", with its 95% interval over seeds (Student's t)" if any(tests.values()) else ""
    yield f"Below each accuracy is its difference to {baseline}{over_seeds}."
    few = [arm for arm, test in tests.items() if test is not None and test.p is None]
    if few:
        yield (
            f"There is no p below {LEAST_SEEDS} seeds an arm ({', '.join(few)}): with so few, the interval over seeds "
            "is wide, and it alone says whether the arms differ."
        )
    yield (
        "The interval over the choice of questions is that of these very trainings: it says how precisely they were "
        "measured, and nothing about another seed."
    )
    single = [arm for arm, test in tests.items() if test is None]
    if single:
        yield (
            f"{', '.join(single)}: a single run is compared, so there is no interval over seeds, and nothing is known "
            "about another training. That takes several seeds of each arm."
        )
    unpaired = [arm for arm, figures in differences.items() if not next(iter(figures.values())).by_seed]
    if unpaired:
        arms = ", ".join(f"{arm} ({_listed(seeds[arm])})" for arm in unpaired)
        yield (
            f"Not paired by seed, since their seeds are not those of {baseline} ({_listed(seeds[baseline])}): {arms}; "
            "only the questions are the same."
        )


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
