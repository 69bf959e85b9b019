r"""Whether two normalised answers are equal, by text, by exact quantities, and for lists by their members.

A symbolic judge decides the rest. It is a parameter: the calling process passes `no_judge`, which only reports that a
judge is needed, and a grading worker passes the real one, so both decide by the same rules. *Unequal* is only said of
two answers that were both read. Nothing here has side effects, and the work is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction

from core.grading import points
from core.grading.answers import answer_key
from core.grading.lists import List, as_list, as_matrix, is_bare_matrix, split
from core.grading.outcomes import EQUAL, NEEDS_JUDGE, UNEQUAL, Outcome, all_of, any_of
from core.grading.quantities import Quantity, parse_number, read_clock, read_endless, read_quantity, read_ratio
from core.grading.readings import is_ambiguous, is_date, may_be_number, readings
from core.grading.relations import INEQUALITY, RELATION, alternatives, sides, statement, without_variable
from core.grading.words import certainly_differ, is_words, same_words

Judge = Callable[[str, str], Outcome]
_CompareMembers = Callable[[str, str, int], Outcome]

MAX_COMPARISONS = 100  # of the members of two sets; more would use up the deadline, so the outcome is unknown
_ALL_COMPARISONS = 1_000  # of the members of sets within sets; also a process without a deadline compares them
MAX_NESTING = 2  # lists within lists

_SET = re.compile(r"\\(?:cup|cap|setminus|mathbb|emptyset)(?![A-Za-z])")
# Four letters are a word, and not a product of variables; so are two in front of a space and a number.
_PROSE = re.compile(r"(?<![\\A-Za-z{])(?:[A-Za-z]{4,}|[A-Za-z]{2,} [0-9])|\\text\{|^(?:\([A-J]\)|[A-J]\.)[0-9$\\]")
_DIGITS_APART = re.compile(r"[0-9] (?:[A-Za-z] )?[0-9]")
# What may stand for a tuple: a vector in unit vectors, a matrix times a number, a named point, `\binom` as a column.
_TUPLE_LIKE = re.compile(r"\\begin|\\binom|\\hat|\^\{T\}|i.*j|^[A-Z]\(")


def decide(a: str, b: str, judge: Judge, nesting: int = 0, comparisons: int = _ALL_COMPARISONS) -> Outcome:
    """The outcome for two normalised texts. The order of the two does not matter if it does not matter to `judge`.

    At most `comparisons` members of sets are compared, and of the sets in them.
    """
    if points.is_curve(a) or points.is_curve(b):
        verdict = points.compare(a, b)
        return Outcome(verdict, "not rational numbers" if verdict == "unknown" else None)
    if a == b:
        return EQUAL
    (a, variable_a), (b, variable_b) = statement(a), statement(b)
    if variable_a != variable_b and variable_a and variable_b:
        # Relations in one variable each, and not the same one: `x>2` says nothing about y.
        if variable_a.casefold() == variable_b.casefold():
            return Outcome("unknown", "variables differ in case")
        reads = all_of(_read(text, judge, nesting) for text in (a, b))
        return UNEQUAL if reads == EQUAL else reads
    a, b = without_variable(a, b)
    readings_a, readings_b = readings(a, b), readings(b, a)
    if len(readings_a) + len(readings_b) == 2:
        return _decide_read(a, b, judge, nesting, comparisons)
    outcomes = {(x, y): _decide_read(x, y, judge, nesting, comparisons) for x in readings_a for y in readings_b}
    # One reading is enough to be equal if neither text leaves a unit out.
    one_is_enough = not is_ambiguous(a) and not is_ambiguous(b)
    if any(outcome == NEEDS_JUDGE for outcome in outcomes.values()):
        return NEEDS_JUDGE
    for (x, y), outcome in outcomes.items():
        if outcome == EQUAL and one_is_enough and (read_quantity(x).unit is None) == (read_quantity(y).unit is None):
            return EQUAL
    verdicts = set(outcomes.values())
    return verdicts.pop() if len(verdicts) == 1 else Outcome("unknown", "a symbol or a unit")


def no_judge(_a: str, _b: str) -> Outcome:
    """The judge of a process that has none: it reports that the symbolic judge is needed."""
    return NEEDS_JUDGE


def _decide_read(a: str, b: str, judge: Judge, nesting: int, comparisons: int) -> Outcome:
    if a == b:
        return EQUAL
    x, y = read_quantity(a), read_quantity(b)
    if (outcome := _decide_clocks(a, b)) is not None:
        return outcome
    if x.unit or y.unit:
        return _decide_quantities(x, y, judge, nesting, comparisons)
    if x.number is not None and y.number is not None:
        return EQUAL if x.number == y.number else UNEQUAL
    return _decide_lists(a, b, judge, nesting, comparisons)


def _decide_quantities(x: Quantity, y: Quantity, judge: Judge, nesting: int, comparisons: int) -> Outcome:
    """A unit that one answer leaves out is no difference. Units of one dimension are converted."""
    in_degrees = any(unit and unit.powers == (("degree", 1),) for unit in (x.unit, y.unit))
    size = Fraction(1)  # of a's unit in b's
    if x.unit and y.unit:
        if x.unit.powers != y.unit.powers:
            return Outcome("unknown", "units differ")
        size = x.unit.size / y.unit.size
    elif in_degrees and r"\pi" in x.body + y.body:
        return Outcome("unknown", "units differ")
    if x.number is not None and y.number is not None:
        left_out = (x.unit is None) != (y.unit is None) and parse_number(x.body) == parse_number(y.body)
        if x.number * size == y.number:
            return EQUAL
        return Outcome("unknown", "units differ") if left_out else UNEQUAL  # `2 h 30 min` against 2.5
    return decide(x.body, y.body, judge, nesting, comparisons) if size == 1 else Outcome("unknown", "units differ")


def _decide_lists(a: str, b: str, judge: Judge, nesting: int, comparisons: int) -> Outcome:
    """The outcome for two answers of which one may be a list or a matrix. Two shapes differ only if both are read."""
    if all(as_list(text) is None and as_matrix(text) is None for text in (a, b)):
        return _decide_single(a, b, judge)
    if nesting > MAX_NESTING:
        return Outcome("unknown", "nested too deep")

    def compare_members(x: str, y: str, left: int) -> Outcome:
        return decide(x, y, judge, nesting + 1, left)

    if as_matrix(a) or as_matrix(b):
        outcome = _compare_with_matrix(a, b, judge, compare_members, comparisons)
    else:
        outcome = _compare_with_list(a, b, judge, compare_members, comparisons)
    if outcome != UNEQUAL:
        return outcome
    reads = all_of(_read(text, judge, nesting) for text in (a, b))
    return UNEQUAL if reads == EQUAL else reads


def _compare_with_matrix(a: str, b: str, judge: Judge, compare_members: _CompareMembers, comparisons: int) -> Outcome:
    """A matrix of one row or column equals the tuple of its cells, and without brackets also their list."""
    matrix_a, matrix_b = as_matrix(a), as_matrix(b)
    if matrix_a and matrix_b:
        if (len(matrix_a), len(matrix_a[0])) != (len(matrix_b), len(matrix_b[0])):
            return UNEQUAL
        pairs = [(x, y) for p, q in zip(matrix_a, matrix_b, strict=True) for x, y in zip(p, q, strict=True)]
        return all_of(compare_members(x, y, comparisons // len(pairs)) for x, y in pairs)
    matrix, other = (a, b) if matrix_a else (b, a)
    rows, listed = matrix_a or matrix_b or (), as_list(other)
    if listed is None:
        if len(rows) == len(rows[0]) == 1:
            return compare_members(rows[0][0], other, comparisons)
        return judge(a, b) if r"\begin" in other else UNEQUAL
    if listed.brackets in ("(]", "[)"):  # an interval
        return UNEQUAL
    if 1 not in (len(rows), len(rows[0])) or not (is_bare_matrix(matrix) or listed.brackets in ("()", "[]")):
        return Outcome("unknown", "a matrix or a list")
    cells = rows[0] if len(rows) == 1 else tuple(row[0] for row in rows)
    return _compare_tuples(cells, listed.members, compare_members, comparisons)


def _compare_with_list(a: str, b: str, judge: Judge, compare_members: _CompareMembers, comparisons: int) -> Outcome:
    list_a, list_b = as_list(a), as_list(b)
    inequalities = {INEQUALITY.search(member) is not None for member in _members(list_a) + _members(list_b)}
    if inequalities == {True, False}:
        return Outcome("unknown", "several relations")  # the comma of `x<2, x>3` may be `and` or `or`
    if list_a is not None and list_b is not None:
        for one, other in ((list_a, b), (list_b, a)):  # `(x,y)\in\{(1,2)\}`
            if one.brackets == "{}" and len(one.members) == 1 and other[:1] != "\\" and as_list(one.members[0]):
                return compare_members(one.members[0], other, comparisons)
        # If both lists have brackets, these must agree. Order counts if either is a tuple or an interval.
        if list_a.brackets and list_b.brackets and list_a.brackets != list_b.brackets:
            return UNEQUAL
        if {list_a.brackets, list_b.brackets} <= {"", "{}"}:
            return _compare_sets(list_a, list_b, compare_members, comparisons)
        return _compare_tuples(list_a.members, list_b.members, compare_members, comparisons)
    if list_a is None:
        return _compare_with_single(b, a, judge, compare_members, comparisons)
    return _compare_with_single(a, b, judge, compare_members, comparisons)


def _compare_with_single(
    listed: str, single: str, judge: Judge, compare_members: _CompareMembers, comparisons: int
) -> Outcome:
    """The outcome for a list and a value. A value may stand for a list: a union, a relation, a vector, words."""
    if RELATION.search(single) or _SET.search(single):
        return judge(listed, single)
    if is_words(single) and not certainly_differ(single, "0"):
        return Outcome("unknown", "words")
    if _TUPLE_LIKE.search(single) or may_be_number(listed, single):
        return Outcome("unknown", "a list or a value")
    members = as_list(listed) or List("", ())
    if members.brackets in ("", "{}"):
        return _compare_sets(members, List("{}", (single,)), compare_members, comparisons)
    return UNEQUAL


def _decide_single(a: str, b: str, judge: Judge) -> Outcome:
    """The outcome for two answers that are single values, and not both numbers."""
    if (outcome := _decide_endless(a, b)) is not None:
        return outcome
    if (reason := _not_mathematics(a, b)) is not None:
        if reason == "words" and same_words(a, b):
            return EQUAL
        read = all(is_words(text) or read_quantity(text).number is not None for text in (a, b))
        return UNEQUAL if read and certainly_differ(a, b) else Outcome("unknown", reason)
    shorter, longer = sorted((len(sides(a)), len(sides(b))))
    # math-verify compares the ends of `a=b=c`
    return Outcome("unknown", "several relations") if shorter == 2 < longer else judge(a, b)


def _decide_clocks(a: str, b: str) -> Outcome | None:
    """The outcome if one answer is a time of the day or a ratio; else None."""
    clocks, ratios = [read_clock(text) for text in (a, b)], [read_ratio(text) for text in (a, b)]
    if not any(clocks) and not any(ratios):
        return None
    x, y = clocks
    u, v = ratios
    outcomes = set[Outcome]()
    if x and y:
        same = x[:2] == y[:2] if not x.half and not y.half else bool(x.minutes() & y.minutes())
        outcomes.add(EQUAL if same else UNEQUAL)
    if u and v and 0 not in u + v and not any(clock and clock.half for clock in clocks):
        same = len(u) == len(v) and all(p * v[0] == q * u[0] for p, q in zip(u, v, strict=True))
        outcomes.add(EQUAL if same else UNEQUAL)
    return outcomes.pop() if len(outcomes) == 1 else Outcome("unknown", "a time or a ratio")


def _decide_endless(a: str, b: str) -> Outcome | None:
    """The outcome if one answer is an endless decimal and the other too, or a number; else None."""
    numbers = ((text, read_quantity(text).number) for text in (a, b))
    ends_a, ends_b = (read_endless(text) or (None if n is None else (n, n)) for text, n in numbers)
    if ends_a is None or ends_b is None:
        return None
    apart = ends_a[1] < ends_b[0] or ends_b[1] < ends_a[0]
    finite = {ends[0] for ends in (ends_a, ends_b) if ends[0] == ends[1]}
    low = {min(ends, key=abs) for ends in (ends_a, ends_b) if ends[0] != ends[1]}
    return UNEQUAL if apart or finite & low else Outcome("unknown", "an endless decimal")


def _not_mathematics(a: str, b: str) -> str | None:
    """Why a judge must not be asked, or None. It would read words as products of letters, and `1 2` as 1 + 2."""
    if any(is_words(text) or any(map(_PROSE.search, alternatives(text)[1])) for text in (a, b)):
        return "words"
    if _DIGITS_APART.search(a) or _DIGITS_APART.search(b):
        return "ambiguous spacing"
    if is_date(a) or is_date(b):
        return "a date"
    return "not balanced" if split(a) is None or split(b) is None else None


def _read(text: str, judge: Judge, nesting: int) -> Outcome:
    """Equal if a text was read as a value, a word, or a list of these; else why it was not."""
    text, _ = without_variable(text, "")
    if read_quantity(text).number is not None or is_words(text) or read_endless(text):
        return EQUAL
    rows, listed = as_matrix(text), as_list(text)
    if rows is not None:
        return all_of(_read(cell, judge, nesting + 1) for row in rows for cell in row)
    if listed is not None:
        if nesting > MAX_NESTING or len(listed.members) > MAX_COMPARISONS:
            return Outcome("unknown", "nested too deep")
        return all_of(_read(member, judge, nesting + 1) for member in listed.members)
    reason = _not_mathematics(text, text)
    return judge(text, text) if reason is None else Outcome("unknown", reason)


def _members(listed: List | None) -> tuple[str, ...]:
    return ("",) if listed is None else listed.members


def _compare_tuples(
    members_a: tuple[str, ...], members_b: tuple[str, ...], compare_members: _CompareMembers, comparisons: int
) -> Outcome:
    if len(members_a) != len(members_b):
        return UNEQUAL
    return all_of(compare_members(x, y, comparisons) for x, y in zip(members_a, members_b, strict=True))


def _compare_sets(list_a: List, list_b: List, compare_members: _CompareMembers, comparisons: int) -> Outcome:
    """Equal if every member of each list equals a member of the other; order and repetition do not count."""
    members_a, members_b = ({answer_key(x): x for x in listed.members} for listed in (list_a, list_b))
    unmatched_a = [x for key, x in members_a.items() if key not in members_b]
    unmatched_b = [y for key, y in members_b.items() if key not in members_a]
    needed = len(unmatched_a) * len(members_b) + len(unmatched_b) * len(members_a)
    if needed > min(MAX_COMPARISONS, comparisons):
        return Outcome("unknown", "too many members")
    left = comparisons // max(1, needed)  # for the sets in each pair of members
    matches = [any_of(compare_members(x, y, left) for y in members_b.values()) for x in unmatched_a]
    matches += [any_of(compare_members(x, y, left) for x in members_a.values()) for y in unmatched_b]
    return all_of(matches)
