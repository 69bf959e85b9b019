"""What the intervals of a comparison cover, in words: the questions, and the seeds only where there are several."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def remarks(baseline: str, seeds: Mapping[str, Sequence[tuple[int, int]]]) -> Iterator[str]:
    """Sentences about the differences of arms to the baseline.

    `seeds` has for each arm the seeds of the runs that are paired, the baseline's and its own.
    """
    if not any(seeds.values()):
        return
    single = [arm for arm, pairs in seeds.items() if len(pairs) == 1]
    over = "questions" if len(single) == len(seeds) else "questions and seeds"
    yield f"Below each figure is its difference to {baseline}, with interval and p of a paired bootstrap over {over}."
    if single:
        yield (
            f"{', '.join(single)}: one seed is compared with one seed, so the interval and p cover the choice of "
            "questions only. They say nothing about another training; that takes several seeds of each arm."
        )
    for arm, pairs in seeds.items():
        different = [f"{own} with {others}" for others, own in pairs if own != others]
        if different:
            yield (
                f"{arm}: it is not paired by seed, since its seeds are not those of {baseline} (seed "
                f"{', '.join(different)}); only the questions are the same."
            )
