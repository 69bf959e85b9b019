"""Audits of pseudo-labels by an oracle that grades a sample.

The functions here draw the sample, estimate the share of right labels in the whole set, and say how many audits a drop
takes to be detected. `docs/audits.md` describes audits.
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
from core.statistics.estimates import Estimate, wilson_at
from core.types import Verdict

_BINS = 5
_FLOOR = 2  # questions that are drawn from every stratum that has so many: a single one shows no spread
_MOST_AUDITS = 10**9


class AuditError(CoevoError):
    """An audit that cannot be drawn or planned as requested. The message names the value and what was expected."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A question of a sample. `position` is its index in the sample, from 0."""

    question_id: str
    stratum: str
    position: int


@dataclass(frozen=True, slots=True)
class Stratum:
    """Of `size` pseudo-labels, `n` were audited and `right` of these are right. Raises `ValueError` on other counts."""

    size: int
    n: int
    right: int

    def __post_init__(self) -> None:
        if not 0 <= self.right <= self.n <= self.size:
            counts = f"right = {self.right}, n = {self.n}, size = {self.size}"
            raise ValueError(f"stratum: expected 0 <= right <= n <= size, got {counts}")


def stratum_of(p_hat: float, verdict: Verdict) -> str:
    """The stratum of a question: `kept 0.4-0.6` or `not kept 0.8-1.0`, for example.

    It is the fifth of the range that p_hat is in (with its lower end; 1 is in the last), and whether the question was
    kept. Only questions that have a pseudo-label are audited.

    Raises:
        ValueError: `p_hat` is not in 0..1.
    """
    if not 0 <= p_hat <= 1:
        raise ValueError(f"p_hat: expected 0..1, got {p_hat}")
    fifth = min(int(p_hat * _BINS), _BINS - 1)
    kept = "kept" if verdict == "kept" else "not kept"
    return f"{kept} {fifth / _BINS:.1f}-{(fifth + 1) / _BINS:.1f}"


def in_order(names: Iterable[str]) -> list[str]:
    """Sort the names of strata by p_hat, so that neighbours are alike, as `stratified_share` expects."""
    return sorted(names, key=lambda name: (name.split()[-1], name))


def draw(rows: Sequence[tuple[str, float, Verdict]], size: int, seed: int) -> list[Drawn]:
    """Draw a stratified random sample from rows of (question id, p_hat, verdict), in order of position.

    If there are fewer rows than `size`, all are drawn. A seed and a set of rows determine one sequence, whatever the
    order of the rows, and a sample is the first `size` of it. So a larger sample keeps the positions of a smaller one,
    and an audit can be extended. Within a stratum the order is that of a hash of seed and id. The sequence begins with
    one question of every stratum and then a second, the largest stratum first. Each further position goes to the
    stratum with the largest size / (2 drawn + 1). This is Sainte-Laguë's proportional allocation, in which a larger
    sample never takes a position away from a stratum.

    Raises:
        AuditError: `size` is not positive.
    """
    if size < 1:
        raise AuditError(f"size: expected at least 1, got {size}")
    seed_hash, cached_stratum_of = hashlib.sha256(f"{seed}/".encode()), cache(stratum_of)  # for up to a million rows
    members: dict[str, list[tuple[bytes, str]]] = {}
    for question_id, p_hat, verdict in rows:
        row_hash = seed_hash.copy()
        row_hash.update(question_id.encode())
        members.setdefault(cached_stratum_of(p_hat, verdict), []).append((row_hash.digest(), question_id))
    undrawn = {name: iter(sorted(ids)) for name, ids in members.items()}
    names = _allocation({name: len(ids) for name, ids in members.items()}, min(size, len(rows)))
    return [Drawn(next(undrawn[name])[1], name, position) for position, name in enumerate(names)]


def _allocation(sizes: Mapping[str, int], size: int) -> Iterator[str]:
    """The stratum of each position of a sample."""

    def priority(name: str, drawn: int) -> tuple[int, float, str]:
        return (drawn, -sizes[name], name) if drawn < _FLOOR else (_FLOOR, -sizes[name] / (2 * drawn + 1), name)

    drawn = Counter[str]()
    heap = [priority(name, 0) for name in sizes]
    heapq.heapify(heap)
    for _ in range(size):
        *_, name = heapq.heappop(heap)
        yield name
        drawn[name] += 1
        if drawn[name] < sizes[name]:
            heapq.heappush(heap, priority(name, drawn[name]))


def stratified_share(strata: Sequence[Stratum]) -> Estimate | None:
    """The share of right pseudo-labels in the whole set, with a 95% interval; `n` is the number of audits.

    Each stratum is weighted by its share of the set. None if nothing was audited.

    The interval is `wilson_at`'s at the effective number of audits, which is the n of a simple random sample with the
    same variance. The variance is the sum of W² (1 - n/size) p q / n over the strata (Cochran 1977, 5.6), plus p q / N
    for the set of N itself, because the estimate is of how often labels made in this way are right. A stratum's p is
    moved towards that of the whole by one imagined audit, because two audits that agree do not mean that all would. So
    with one stratum, or all audited, the result is that of `core.statistics.estimates.share`. In simulations on
    sets of two to seven strata, some with two audits, the interval contains the truth in 95% -+ 2 of cases at 100 to
    400 audits (tests/core/test_audits.py). Like Wilson's own, it does so less often if few audits are nearly all right
    (91% for 50 audits of labels of which 98% are right).

    A stratum without an audit is merged with the nearest one that has some (of two, the one before) and taken to be
    like it. So the strata must come sorted by `in_order`.
    """
    # A stratum without an audit is merged with the nearest one that has some.
    audited = [i for i, stratum in enumerate(strata) if stratum.n]
    sizes = Counter[int]()
    for i, stratum in enumerate(strata):
        if audited:
            sizes[min(audited, key=lambda other: abs(other - i))] += stratum.size
    parts = [Stratum(sizes[i], strata[i].n, strata[i].right) for i in audited]
    total, n = sum(part.size for part in parts), sum(part.n for part in parts)
    if n == 0:
        return None
    weights = [part.size / total for part in parts]
    value = math.fsum(weight * part.right / part.n for weight, part in zip(weights, parts, strict=True))
    overall = (value * n + 1) / (n + 2)  # never 0 or 1, where the variance would be 0
    shrunk = [(part.right + overall) / (part.n + 1) for part in parts]
    variance = math.fsum(
        weight * weight * (1 - part.n / part.size) * p * (1 - p) / part.n
        for weight, part, p in zip(weights, parts, shrunk, strict=True)
    )
    mean = math.fsum(weight * p for weight, p in zip(weights, shrunk, strict=True))
    spread = mean * (1 - mean)
    lo, hi = wilson_at(value, spread / (variance + spread / total), n)
    return Estimate(value, lo, hi, n, "count" if len(parts) == 1 or n == total else "share")


def n_text(accuracy: Estimate) -> str:
    """The n of a `stratified_share` for a reader: `n = 8`, or `n = 8, weighted` if the share is not a number of audits
    divided by n, because its strata have other weights than in the sample."""
    right = accuracy.value * accuracy.n
    return f"n = {accuracy.n:,}" + ("" if math.isclose(right, round(right), abs_tol=1e-6) else ", weighted")


def questions_text(accuracy: Estimate) -> str:
    """The n of a share of the labels of a training. These are more than n, since a question has one at each step."""
    return f"n = {accuracy.n:,} questions"


def audits_needed(
    drop: float, accuracy: float, power: float = 0.8, confidence: float = 0.95, reference_n: int | None = None
) -> int:
    """How many audits it takes to detect that label accuracy falls from `accuracy` by `drop` (0.05 is five points).

    The two-sided two-proportion test at `confidence`, in the normal approximation with the pooled variance under no
    change (Fleiss, Levin and Paik 2003, 4.3), detects the drop with probability `power`. The reference has
    `reference_n` audits, or by default as many as the result: 1,251 each for a drop from 0.75 to 0.70. Simple random
    samples are assumed; a stratified sample needs no more.

    Raises:
        AuditError: a value is out of range, or the reference is too small for any number of audits.
    """
    _require_plan(accuracy, power, confidence, reference_n)
    if not 0 < drop <= accuracy:
        raise AuditError(f"drop: expected more than 0 and at most the accuracy, {accuracy:g}, got {drop:g}")
    if _power(_MOST_AUDITS, reference_n, drop, accuracy, confidence) < power:
        raise AuditError(
            f"reference_n: expected more than {reference_n} audits to compare with: against so few, no number of "
            f"audits detects a drop of {drop:g} from {accuracy:g} with power {power:g}"
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
    """The smallest drop that `n` audits detect, the inverse of `audits_needed`. None if they miss even a fall to 0.

    Raises:
        AuditError: a value is out of range.
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
    """The probability that `n` audits detect the drop; the other parameters are those of `audits_needed`."""
    before_n = n if reference_n is None else reference_n
    after = accuracy - drop
    pooled = (before_n * accuracy + n * after) / (before_n + n)
    error_under_no_change = math.sqrt(pooled * (1 - pooled) * (1 / before_n + 1 / n))
    error = math.sqrt(accuracy * (1 - accuracy) / before_n + after * (1 - after) / n)
    margin = drop - NormalDist().inv_cdf((1 + confidence) / 2) * error_under_no_change
    return NormalDist().cdf(margin / error) if error else float(margin > 0)


def _require_plan(accuracy: float, power: float, confidence: float, reference_n: int | None) -> None:
    if not 0 < accuracy <= 1:
        raise AuditError(f"accuracy: expected more than 0 and at most 1, got {accuracy:g}")
    if not 0.5 <= power < 1:
        raise AuditError(f"power: expected 0.5 to less than 1, got {power:g}")
    if not 0.5 <= confidence < 1:
        raise AuditError(f"confidence: expected 0.5 to less than 1, got {confidence:g}")
    if reference_n is not None and reference_n < 1:
        raise AuditError(f"reference_n: expected at least 1 audit, got {reference_n}")
