"""Measures the cost of the repetition penalty: BLEU distances and clusters, compared with NLTK and scikit-learn.

The reference is R-Zero E.4. The questions are drawn with a fixed seed. Half are the tiny world's expressions and
stories. The others are competition problems of 15 to 120 words, whose phrases recur like those of a Challenger.
"""

from __future__ import annotations

import json
import random
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

import numpy as np
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from numpy.typing import NDArray
from sklearn.cluster import AgglomerativeClustering

from core.questions.similarity import bleu_distances, clusters
from trainers.micro.world import make_problem

BATCH, CANDIDATES = 512, 8000
THRESHOLD = 0.5
SEED = 20
REPEATS = 5

_SETTINGS = (
    "Let $n$ be a positive integer such that $n + {a}$ is divisible by {b} and $n - {c}$ is a perfect square.",
    "Let $f(x) = {a}x^2 - {b}x + {c}$ for all real numbers $x$.",
    "A circle of radius ${a}$ is inscribed in triangle $ABC$, where $AB = {b}$ and $BC = {c}$.",
    "The sequence $a_1, a_2, a_3, \\dots$ satisfies $a_1 = {a}$ and $a_{{n+1}} = {b}a_n - {c}$ for every $n \\ge 1$.",
    "A {thing} holds {a} red balls, {b} blue balls and {c} green balls, and two balls are drawn without replacement.",
    "In the coordinate plane, the line $y = {a}x + {b}$ meets the parabola $y = x^2 - {c}$ at points $P$ and $Q$.",
    "Suppose that $x$ and $y$ are real numbers with $x + y = {a}$ and $xy = {b}$.",
    "The polynomial $P(x) = x^3 - {a}x^2 + {b}x - {c}$ has three distinct roots $r$, $s$ and $t$.",
    "{Name} and {Other} play a game in which they take turns removing between 1 and {a} stones from a {thing} of {b}.",
    "A train leaves the station at {a} miles per hour, and {b} minutes later another follows at {c} miles per hour.",
    "{Name} writes the integers from 1 to {b} on a board and erases every multiple of {a}.",
    "A regular polygon with {a} sides has side length ${b}$, and every {thing} on it is painted one of {c} colors.",
)
_CONDITIONS = (
    "Assume that no two of them are equal.",
    "The order in which they are chosen does not matter.",
    "It is known that the remainder upon division by {a} is {b}.",
    "Each {thing} is equally likely to be selected, independently of the others.",
    "Here $\\lfloor x \\rfloor$ denotes the greatest integer less than or equal to $x$.",
    "{Name} claims that at least {a} of these values must be even, while {Other} believes that all of them are odd.",
    "Moreover, the angle at the vertex $A$ measures ${a}^\\circ$ and the altitude from $C$ has length ${b}$.",
    "After {a} such steps the process is repeated with {b} in place of {c}, until nothing changes any more.",
)
_QUESTIONS = (
    "Find the sum of all possible values of ${x}$.",
    "What is the smallest positive integer ${x}$ for which this is possible?",
    "How many such {thing}s are there?",
    "Compute the value of ${x}^2 + {a}{x} + {b}$.",
    "Determine the remainder when ${x}$ is divided by {a}.",
    "If the probability can be written as $\\frac{{m}}{{n}}$ in lowest terms, find $m + n$.",
    "Find the area of the region enclosed by the {thing}, and express your answer in terms of $\\pi$.",
    "What is the maximum possible value of the product of the {a} largest terms?",
)
_THINGS = ("bag", "grid", "set", "path", "pile", "triangle", "number", "arrangement", "box", "subset")
_PEOPLE = ("Alice", "Bob", "Carla", "Dmitri", "Elena", "Farid", "Grace", "Hiro")


def run() -> dict[str, object]:
    """Measure. NLTK scores all 130,816 pairs of the batch, which takes half a minute."""
    large_seconds, large_peak_mb = _cluster_in_new_process(CANDIDATES)
    questions = make_questions(BATCH, SEED)
    expected, nltk_seconds = _nltk_distances(questions)
    repeats = [_timed_distances(questions) for _ in range(1 + REPEATS)][1:]  # the first one is a warm-up
    return {
        "n": BATCH,
        "speedup_vs_nltk": round(nltk_seconds / statistics.median(seconds for _, seconds in repeats), 1),
        "max_abs_diff": float(np.abs(repeats[0][0] - expected).max()),
        "same_clusters": _same_partition(clusters(questions, THRESHOLD), _sklearn_labels(expected)),
        "n8000_seconds": round(large_seconds, 2),
        "n8000_peak_mb": round(large_peak_mb, 1),
    }


def make_questions(count: int, seed: int) -> list[str]:
    """`count` seeded questions of the two kinds that the module's docstring describes."""
    rng = random.Random(seed)
    return [make_problem(rng).text if rng.random() < 0.5 else _competition(rng) for _ in range(count)]


def _competition(rng: random.Random) -> str:
    conditions = rng.sample(_CONDITIONS, rng.choice((0, 0, 1, 1, 2, 3)))
    settings = rng.sample(_SETTINGS, rng.choice((1, 1, 1, 2)))
    name, other = rng.sample(_PEOPLE, 2)
    return " ".join(
        sentence.format(
            a=rng.randint(2, 30), b=rng.randint(2, 200), c=rng.randint(1, 99), x=rng.choice("xnkm"),
            thing=rng.choice(_THINGS), Name=name, Other=other, m="m", n="n",
        )
        for sentence in (*settings, *conditions, rng.choice(_QUESTIONS))
    )  # fmt: skip


def _timed_distances(questions: Sequence[str]) -> tuple[NDArray[np.float64], float]:
    start = time.perf_counter()
    distances = bleu_distances(questions)
    return distances, time.perf_counter() - start


def _nltk_distances(questions: Sequence[str]) -> tuple[NDArray[np.float64], float]:
    """BLEU distances (N, N) and the seconds they took, with the loop of R-Zero's released code over all pairs."""
    distances = np.zeros((len(questions), len(questions)))
    smoothing = SmoothingFunction().method1
    start = time.perf_counter()
    for i, hypothesis in enumerate(questions):
        for j in range(i + 1, len(questions)):
            score = sentence_bleu([questions[j].split()], hypothesis.split(), smoothing_function=smoothing)
            distances[i, j] = distances[j, i] = 1 - score
    return distances, time.perf_counter() - start


def _sklearn_labels(distances: NDArray[np.float64]) -> list[int]:
    model = AgglomerativeClustering(
        metric="precomputed", linkage="average", distance_threshold=THRESHOLD, n_clusters=None
    )
    labels: list[int] = model.fit_predict(distances).tolist()
    return labels


def _same_partition(labels: Sequence[int], others: Sequence[int]) -> bool:
    """Whether two cluster labellings are equal except for the numbers of the clusters."""
    return len(set(zip(labels, others, strict=True))) == len(set(labels)) == len(set(others))


def _cluster_in_new_process(count: int) -> tuple[float, float]:
    """`cluster_once` in a new process, so that nothing else counts in its peak memory."""
    program = f"import json; from benchmarks.similarity import cluster_once; print(json.dumps(cluster_once({count})))"
    process = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    seconds, peak_mb = json.loads(process.stdout)
    return seconds, peak_mb


def cluster_once(count: int) -> tuple[float, float]:
    """The seconds to cluster `count` questions, and the peak memory of this process in megabytes (10^6 bytes)."""
    questions = make_questions(count, SEED)
    start = time.perf_counter()
    clusters(questions, THRESHOLD)
    seconds = time.perf_counter() - start
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux kilobytes
    return seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
