"""Audits of pseudo-labels by an oracle that grades a sample: which are drawn, what the share of right ones is over the
whole set, how many a drop takes to be seen, and how far two oracles agree. `docs/audits.md` describes it.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

from core.errors import CoevoError
from core.statistics.estimates import Z95, Estimate, wilson_at
from core.types import OracleVerdict, Verdict

_BINS = 5
_FLOOR = 2  # of every stratum, where it has so many: one alone shows no spread
_CATEGORIES: tuple[OracleVerdict, ...] = ("right", "wrong", "ill_posed")
_MOST_AUDITS = 10**9


class AuditError(CoevoError):
    """An audit that cannot be drawn or planned as it was asked for; says which value, and what was expected."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A question of a sample. `position` counts from 0: the order in which they are asked."""

    question_id: str
    stratum: str
    position: int


@dataclass(frozen=True, slots=True)
class Stratum:
    """Of `size` pseudo-labels, `n` were audited and `right` of these are right. Raises ValueError on other counts."""

    size: int
    n: int
    right: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.n <= self.size:
            raise ValueError(f"stratum: expected 0 <= right <= n <= size, got {self.right}, {self.n}, {self.size}")


def stratum_of(p_hat: float, verdict: Verdict) -> str:
    """`kept 0.4-0.6`, `not kept 0.8-1.0`: the fifth that p_hat is in (its lower end included, 1 in the last) crossed
    with whether the question was kept. Only questions that were voted on and have a pseudo-label are audited.

    Raises:
        ValueError: `p_hat` is not in 0..1.
    """
    if not 0 <= p_hat <= 1:
        raise ValueError(f"p_hat: expected 0..1, got {p_hat}")
    fifth = min(int(p_hat * _BINS), _BINS - 1)
    kept = "kept" if verdict == "kept" else "not kept"
    return f"{kept} {fifth / _BINS:.1f}-{(fifth + 1) / _BINS:.1f}"


def in_order(names: Iterable[str]) -> list[str]:
    """Strata by p_hat, so that those side by side are alike: what `stratified_share` merges by."""
    return sorted(names, key=lambda name: (name.split()[-1], name))


def draw(rows: Sequence[tuple[str, float, Verdict]], size: int, seed: int) -> list[Drawn]:
    """A stratified random sample of (question id, p_hat, verdict), in order of position; all of them where they are
    fewer than `size`.

    There is one sequence for a seed and a set of rows, in whatever order these come, and a sample is its first `size`:
    so a larger one keeps the places of a smaller one, and an audit can be extended. Within a stratum the order is
    that of a hash of seed and id. The sequence begins with one of every stratum and then a second, the largest
    stratum first; each further place goes to the stratum with the largest size / (2 drawn + 1), which is
    Sainte-Laguë's proportional allocation: it never takes back what it gave.

    Raises:
        AuditError: `size` is not positive.
    """
    if size < 1:
        raise AuditError(f"size: expected at least 1, got {size}")
    seeded, named = hashlib.sha256(f"{seed}/".encode()), cache(stratum_of)  # there may be a million rows
    members: dict[str, list[tuple[bytes, str]]] = {}
    for question_id, p_hat, verdict in rows:
        hashed = seeded.copy()
        hashed.update(question_id.encode())
        members.setdefault(named(p_hat, verdict), []).append((hashed.digest(), question_id))
    waiting = {name: iter(sorted(ids)) for name, ids in members.items()}
    sequence = _allocation({name: len(ids) for name, ids in members.items()}, min(size, len(rows)))
    return [Drawn(next(waiting[name])[1], name, position) for position, name in enumerate(sequence)]


def _allocation(sizes: Mapping[str, int], size: int) -> Iterator[str]:
    """Which stratum each place goes to."""

    def turn(name: str, drawn: int) -> tuple[int, float, str]:
        return (drawn, -sizes[name], name) if drawn < _FLOOR else (_FLOOR, -sizes[name] / (2 * drawn + 1), name)

    drawn = Counter[str]()
    heap = [turn(name, 0) for name in sizes]
    heapq.heapify(heap)
    for _ in range(size):
        *_, name = heapq.heappop(heap)
        yield name
        drawn[name] += 1
        if drawn[name] < sizes[name]:
            heapq.heappush(heap, turn(name, drawn[name]))


def stratified_share(strata: Sequence[Stratum]) -> Estimate | None:
    """The share of right pseudo-labels over the whole set, each stratum weighing what it holds of it, with a 95%
    interval; `n` are the audits. None where nothing was audited.

    The interval is Wilson's at the effective number of audits: the n of a simple random sample that would have the
    variance of this one, which is sum W² (1 - n/size) p q / n over the strata (Cochran 1977, 5.6) and p q / N for the
    set of N itself, since what is estimated is how often labels made like these are right. A stratum's p is moved
    towards the whole's by one imagined audit: two audits that agree do not mean that all would. So with one stratum, or
    with everything audited, it is `core.statistics.estimates.share`. By simulation it covers 95% -+ 2 of sets of seven
    strata, some of two audits, at 100 to 400 audits (tests/core/test_audits.py); less, like Wilson's own, where few
    audits are nearly all right (91% for 50 of labels of which 98% are).

    A stratum with no audit says nothing: it is counted to its nearest neighbour that has some, the one before at
    equal distance, and is taken to be like it. So give them `in_order`.
    """
    parts = _merged(strata)
    total, n = sum(part.size for part in parts), sum(part.n for part in parts)
    if n == 0:
        return None
    weights = [part.size / total for part in parts]
    value = math.fsum(weight * part.right / part.n for weight, part in zip(weights, parts, strict=True))
    whole = (value * n + 1) / (n + 2)  # neither 0 nor 1, where no variance could be told
    near = [(part.right + whole) / (part.n + 1) for part in parts]
    variance = math.fsum(
        weight * weight * (1 - part.n / part.size) * p * (1 - p) / part.n
        for weight, part, p in zip(weights, parts, near, strict=True)
    )
    middle = math.fsum(weight * p for weight, p in zip(weights, near, strict=True))
    spread = middle * (1 - middle)
    lo, hi = wilson_at(value, spread / (variance + spread / total))
    return Estimate(value, lo, hi, n)


def _merged(strata: Sequence[Stratum]) -> list[Stratum]:
    audited = [i for i, stratum in enumerate(strata) if stratum.n]
    sizes = Counter[int]()
    for i, stratum in enumerate(strata):
        if audited:
            sizes[min(audited, key=lambda other: abs(other - i))] += stratum.size
    return [Stratum(sizes[i], strata[i].n, strata[i].right) for i in audited]


def audits_needed(
    drop: float, accuracy: float, power: float = 0.8, confidence: float = 0.95, reference_n: int | None = None
) -> int:
    """How many audits it takes to see label accuracy fall from `accuracy` by `drop` (0.05 are five points).

    The two-sided two-proportion test at `confidence`, normal approximation with the pooled variance under no change
    (Fleiss, Levin and Paik 2003, 4.3), finds the drop with probability `power`. The reference has `reference_n`
    audits, or as many as are asked for: 1,251 each for 0.75 to 0.70. Simple random samples are assumed; a stratified
    one needs no more.

    Raises:
        AuditError: a value out of range, or a reference too small for any number of audits.
    """
    _require_plan(accuracy, power, confidence, reference_n)
    if not 0 < drop <= accuracy:
        raise AuditError(f"drop: expected more than 0 and at most the accuracy, {accuracy:g}, got {drop:g}")
    if _power(_MOST_AUDITS, reference_n, drop, accuracy, confidence) < power:
        raise AuditError(
            f"reference_n: expected more than {reference_n} audits to compare with: against so few, none finds a "
            f"drop of {drop:g} from {accuracy:g} with power {power:g}"
        )
    low, high = 0, _MOST_AUDITS  # `low` is too few
    while high - low > 1:
        middle = (low + high) // 2
        enough = _power(middle, reference_n, drop, accuracy, confidence) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def detectable_drop(
    n: int, accuracy: float, power: float = 0.8, confidence: float = 0.95, reference_n: int | None = None
) -> float | None:
    """The smallest drop that `n` audits find: the inverse of `audits_needed`. None where not even a fall to 0 is.

    Raises:
        AuditError: a value out of range.
    """
    _require_plan(accuracy, power, confidence, reference_n)
    if n < 1:
        raise AuditError(f"n: expected at least 1 audit, got {n}")
    if _power(n, reference_n, accuracy, accuracy, confidence) < power:
        return None
    low, high = 0.0, accuracy
    while high - low > 1e-9:
        middle = (low + high) / 2
        enough = _power(n, reference_n, middle, accuracy, confidence) >= power
        low, high = (low, middle) if enough else (middle, high)
    return high


def _power(n: int, reference_n: int | None, drop: float, accuracy: float, confidence: float) -> float:
    other = n if reference_n is None else reference_n
    after = accuracy - drop
    pooled = (other * accuracy + n * after) / (other + n)
    no_change = math.sqrt(pooled * (1 - pooled) * (1 / other + 1 / n))
    change = math.sqrt(accuracy * (1 - accuracy) / other + after * (1 - after) / n)
    margin = drop - NormalDist().inv_cdf((1 + confidence) / 2) * no_change
    return NormalDist().cdf(margin / change) if change else float(margin > 0)


def _require_plan(accuracy: float, power: float, confidence: float, reference_n: int | None) -> None:
    if not 0 < accuracy <= 1:
        raise AuditError(f"accuracy: expected more than 0 and at most 1, got {accuracy:g}")
    if not 0.5 <= power < 1:
        raise AuditError(f"power: expected 0.5 to less than 1, got {power:g}")
    if not 0.5 <= confidence < 1:
        raise AuditError(f"confidence: expected 0.5 to less than 1, got {confidence:g}")
    if reference_n is not None and reference_n < 1:
        raise AuditError(f"reference_n: expected at least 1 audit, got {reference_n}")


Said = tuple[OracleVerdict, OracleVerdict]


def kappa(pairs: Mapping[Said, int] | Iterable[Said]) -> Estimate | None:
    """Cohen's kappa (1960) of what two oracles said of the same pseudo-labels, over right, wrong and ill_posed: how
    far they agree beyond chance, with a 95% interval; 1 is complete agreement, 0 is chance.

    `pairs` are the pairs, or how often each occurs. One with `unknown` in it is left out, and not in n. The interval
    is normal, with the large-sample error of Fleiss, Cohen and Everitt (1969), within -1..1; where all agree, that
    error is 0 and would promise too much, so there the lower end is kappa at the lower end of Wilson's interval of
    the agreement. None without pairs, and where both said one and the same of everything: chance explains all.
    """
    counts = {pair: count for pair, count in Counter(pairs).items() if "unknown" not in pair and count}
    n = sum(counts.values())
    if n == 0:
        return None
    share = {(a, b): counts.get((a, b), 0) / n for a in _CATEGORIES for b in _CATEGORIES}
    first = {a: math.fsum(share[a, b] for b in _CATEGORIES) for a in _CATEGORIES}
    second = {b: math.fsum(share[a, b] for a in _CATEGORIES) for b in _CATEGORIES}
    observed = sum(counts.get((a, a), 0) for a in _CATEGORIES) / n
    chance = math.fsum(first[a] * second[a] for a in _CATEGORIES)
    if len(counts) == 1 and observed == 1:
        return None
    value = (observed - chance) / (1 - chance)
    if observed == 1:
        return Estimate(value, (wilson_at(1.0, n)[0] - chance) / (1 - chance), 1.0, n)
    agreed = math.fsum(share[a, a] * ((1 - chance) - (first[a] + second[a]) * (1 - observed)) ** 2 for a in _CATEGORIES)
    differed = (1 - observed) ** 2 * math.fsum(
        share[a, b] * (second[a] + first[b]) ** 2 for a in _CATEGORIES for b in _CATEGORIES if a != b
    )
    variance = (agreed + differed - (observed * chance - 2 * chance + observed) ** 2) / (n * (1 - chance) ** 4)
    half = Z95 * math.sqrt(max(0.0, variance))
    return Estimate(value, max(-1.0, value - half), min(1.0, value + half), n)
