"""How similar the questions of a batch are: pairwise BLEU distances, and the clusters they form (R-Zero 2.2, E.4).

The reference implementation counts the n-grams of both texts anew for each pair. Here each text becomes a set for each
order n: its k-th occurrence of n-gram g is the element (g, k). The clipped match count of two texts, the sum over g of
min(c_i(g), c_j(g)), is then the size of an intersection, and one product of sparse binary matrices gives all of them.
Apart from that, a score depends only on a few small integers. Each distinct combination of these is scored once, with
the same floating-point operations as in the reference. So the distances equal NLTK's to the last bit, and ties are
decided as they are there. One rule is ours: texts of the same words are at distance 0 (see `bleu_distances`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial.distance import squareform

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

ORDERS = 4  # BLEU-4, uniform weights: the default of `sentence_bleu`
EPSILON = 0.1  # what `SmoothingFunction().method1` counts instead of 0 matches
BLOCK_PAIRS = 1 << 20  # pairs that are scored at a time, to bound the memory
TABLE = 1 << 22  # most entries of a look-up table


def bleu_distances(questions: Sequence[str]) -> Floats:
    """Distances (B, B) in [0, 1], symmetric, zero on the diagonal: `1 - BLEU(hypothesis=x_i, reference=x_j)` for i < j.

    BLEU is NLTK's `sentence_bleu` with `SmoothingFunction().method1` over words split at whitespace, without any other
    normalisation (R-Zero E.4). It is not symmetric; as in the released code, the earlier question is the hypothesis.
    An empty question is at distance 1 from every other. Memory: 12·B² bytes.

    Deviation, in every variant of the reward: questions of the same words are at distance 0. Of fewer than four words,
    a text has no 4-gram, and the smoothing counts 0.1 for it: NLTK puts "Find 9!" at 0.68 from itself, and a question
    in a script without spaces, which is one word, at 0.82. So copies of such a question would get no penalty.
    """
    if len(questions) < 2:
        return np.zeros((len(questions), len(questions)))
    distances: Floats = squareform(_condensed_distances(questions), checks=False)
    return distances


def clusters(questions: Sequence[str], threshold: float = 0.5) -> list[int]:
    """A cluster label for each of B questions, 0..K-1 by first appearance (R-Zero 2.2, E.4).

    The partition is that of scikit-learn's `AgglomerativeClustering(metric="precomputed", linkage="average",
    distance_threshold=threshold, n_clusters=None)`, which calls the same `linkage` and undoes the merges at `threshold`
    or above.
    """
    if len(questions) < 2:
        return [0] * len(questions)
    from scipy.cluster.hierarchy import fcluster, linkage  # here, because the import takes a third of a second

    tree = linkage(_condensed_distances(questions), method="average")
    # `fcluster` keeps merges at exactly its limit, scikit-learn undoes them: so the limit is just below `threshold`.
    labels = fcluster(tree, np.nextafter(threshold, -np.inf), criterion="distance")
    numbers: dict[int, int] = {}
    return [numbers.setdefault(label, len(numbers)) for label in labels.tolist()]


def _condensed_distances(questions: Sequence[str]) -> Floats:
    """The upper triangle of the distances, row by row: (B·(B-1)/2,)."""
    split = [tuple(question.split()) for question in questions]
    ids: dict[str, int] = {}  # of words
    words = np.array([ids.setdefault(word, len(ids)) for text in split for word in text], dtype=np.int64)
    lengths = np.array([len(text) for text in split], dtype=np.int64)
    sets = [_occurrence_sets(owner, grams, len(questions)) for owner, grams in _ngrams(words, lengths)]
    sizes, size_of = np.unique(lengths, return_inverse=True)
    brevity = np.ones((len(sizes), len(sizes)))  # the penalty by the hypothesis's size and the reference's
    for h, size in enumerate(sizes.tolist()):
        if size:  # an empty hypothesis matches nothing, so its penalty is not used
            brevity[h, h:] = [math.exp(1 - longer / size) for longer in sizes[h:].tolist()]
    texts: dict[tuple[str, ...], int] = {}
    text_of = np.array([texts.setdefault(text, len(texts)) for text in split])
    distances = np.ones(len(questions) * (len(questions) - 1) // 2)
    first = done = 0
    while first < len(questions):  # blocks of rows that have about BLOCK_PAIRS pairs above the diagonal
        last = min(len(questions), first + max(1, BLOCK_PAIRS // (len(questions) - first)))
        above = np.arange(first, len(questions)) > np.arange(first, last)[:, None]
        overlaps = [(matrix[first:last] @ matrix[first:].T).toarray()[above] for matrix in sets]
        matching = np.flatnonzero(overlaps[0])  # BLEU is 0 without a common word
        hypothesis, reference = (index[matching] for index in np.nonzero(above))
        hypothesis_size, reference_size = size_of[first + hypothesis], size_of[first + reference]
        precision = _mean_precisions(sizes, hypothesis_size, [counts[matching] for counts in overlaps])
        distance = 1 - brevity[hypothesis_size, reference_size] * precision
        distance[text_of[first + hypothesis] == text_of[first + reference]] = 0.0
        distances[done + matching] = distance
        first, done = last, done + len(overlaps[0])
    return distances


def _ngrams(words: Ints, lengths: Ints) -> Iterator[tuple[Ints, Ints]]:
    """For n = 1..4: the index of the question of every n-gram, and the id of the n-gram. `words` are the word ids of
    all questions, concatenated (T,), and `lengths` the number of words of each (B,)."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    words_left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(words))
    start, grams = np.arange(len(words)), words
    for n in range(1, ORDERS + 1):
        if n > 1:
            longer = words_left[start] >= n
            start, grams = start[longer], grams[longer]
            _, grams = np.unique(grams * (len(words) + 1) + words[start + n - 1], return_inverse=True)
        yield owner[start], grams


def _occurrence_sets(owner: Ints, grams: Ints, count: int) -> csr_array:
    """A row per question and a column per (n-gram, k); 1 where the question has the n-gram k times or more."""
    pairs = np.sort(grams * count + owner)
    new = np.flatnonzero(np.diff(pairs, prepend=-1))
    occurrence = np.arange(len(pairs)) - np.repeat(new, np.diff(new, append=len(pairs)))
    grams, owner = np.divmod(pairs, count)
    _, element, holders = np.unique(
        grams * (occurrence.max(initial=0) + 1) + occurrence, return_inverse=True, return_counts=True
    )
    shared = holders[element] > 1  # most long n-grams occur in one question only and match nothing
    owner, element = owner[shared], element[shared]
    return csr_array((np.ones(len(owner), np.int32), (owner, element)), shape=(count, max(1, len(holders))))


def _mean_precisions(sizes: Ints, size_of: Ints, overlaps: Sequence[Ints]) -> Floats:
    """Geometric means of the smoothed n-gram precisions of P pairs, from their match counts of order 1..4 (P,)."""
    # Rows of (hypothesis size, matches of each order so far), and the index of each pair's row.
    signatures, index = sizes[:, None], size_of
    for matches in overlaps:
        base = int(matches.max(initial=0)) + 1
        codes, index = _distinct(index * base + matches, len(signatures) * base)
        signatures = np.column_stack((signatures[codes // base], codes % base))
    hypothesis, *matched = signatures.T
    possible = np.maximum(1, hypothesis - np.arange(ORDERS)[:, None])
    precisions = np.where(matched, matched, EPSILON) / possible
    # `math` instead of numpy, whose logarithms differ in the last bit; `fsum` rounds once.
    logs = [[math.log(precision) / ORDERS for precision in order] for order in precisions.tolist()]
    return np.array(list(map(math.exp, map(math.fsum, zip(*logs, strict=True)))))[index]


def _distinct(codes: Ints, bound: int) -> tuple[Ints, Ints]:
    """The distinct `codes`, ascending, and the index of each code among them; `bound` is above every code."""
    if bound > TABLE:
        distinct, indices = np.unique(codes, return_inverse=True)
        return distinct, indices
    present = np.zeros(bound, dtype=np.bool_)  # a look-up table, because sorting takes several times as long
    present[codes] = True
    distinct, index_of = np.flatnonzero(present), np.empty(bound, dtype=np.int64)
    index_of[distinct] = np.arange(len(distinct))
    return distinct, index_of[codes]
