"""A grading worker: the process in which math-verify and sympy read untrusted answers.

`core.grading.process` runs it as `python -m core.grading.worker MEMORY_MB ALARM_S`. The worker first writes a line that
announces that it is ready. Then it answers each JSON line `[a, b]` by a line `[verdict, reason]`. It has no timeouts of
its own, because a timeout inside the process cannot interrupt sympy; its parent kills it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import resource
import signal
import sys
from functools import lru_cache
from typing import Any

from latex2sympy2_extended import latex2sympy
from latex2sympy2_extended.latex2sympy2 import ConversionConfig
from math_verify import verify
from math_verify.grader import is_assignment_relation, is_equation, is_relation, unwrap_fcs
from sympy import (
    Derivative,
    Expr,
    FiniteSet,
    Float,
    I,
    Integral,
    Intersection,
    Limit,
    MatrixBase,
    Product,
    Rational,
    S,
    Set,
    Sum,
    Symbol,
    Union,
    expand,
)
from sympy.core.function import AppliedUndef

from core.grading.equality import decide
from core.grading.expressions import for_library
from core.grading.outcomes import EQUAL, UNEQUAL, Outcome
from core.grading.quantities import parse_number
from core.grading.relations import alternatives

# Here, and not math-verify's `parse`: that guesses units, boxes and equations, and makes `X` and `x` one symbol.
_READS = ConversionConfig(lowercase_symbols=False)
_MEMBERSHIP = re.compile(r"\\in(?![A-Za-z])")
_UNEVALUATED = (Limit, Integral, Derivative, Sum, Product)
_UNDEFINED = (S.NaN, S.ComplexInfinity, S.Infinity, S.NegativeInfinity)
_WARM_UP = ((r"\frac{1}{2}\sqrt{3}+x^{2}", r"\frac{x}{2}-1"), (r"x>2", r"(1,2)\cup(3,4)"))
_DIGITS, _TOLERANCE = 30, Rational(1, 10**15)

Parts = tuple[Expr | None, Expr | None]  # the real and the imaginary part

# What the libraries raise on input they cannot handle. Anything else ends the process, and the parent starts another.
LIBRARY_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,  # RecursionError and NotImplementedError among them
    SyntaxError,
    TypeError,
    ValueError,
)


def judge(a: str, b: str) -> Outcome:
    """Whether two normalised texts are equal as mathematics.

    Unequal if the two differ at a sample point, in kind or in shape, or if they are sets that math-verify tells apart.
    Equal if expanding the difference gives 0, or if math-verify finds them equal in both directions; it may do so in
    one only. Otherwise unknown, because math-verify's "no" also covers what it failed to simplify.
    """
    x, y = _parsed(a), _parsed(b)
    if x is None or y is None:
        return Outcome("unknown", "not parsed")
    if a == b:
        return EQUAL
    if isinstance(x, Expr) and isinstance(y, Expr) and x.has(AppliedUndef) != y.has(AppliedUndef):
        return Outcome("unknown", "a function")  # without its definition, or a product such as x(3)
    # Clearly apart within the digits that were computed: this saves computing the difference.
    if any(
        p is not None and q is not None and abs(p - q) > _TOLERANCE * (abs(p) + abs(q))
        for p, q in zip(_value(a), _value(b), strict=True)
    ) or _differ(x, y):
        return UNEQUAL
    if isinstance(x, Expr) and isinstance(y, Expr) and expand(x - y) == 0:
        return EQUAL  # this takes a fraction of the time that math-verify spends on simplifying
    forward, backward = _math_verify(x, y), _math_verify(y, x)
    if forward and backward:
        return EQUAL
    if forward or backward:
        return Outcome("unknown", "asymmetric")
    return UNEQUAL if isinstance(x, Set) and isinstance(y, Set) else Outcome("unknown", "undecided")


def _math_verify(gold: Any, target: Any) -> bool:
    return bool(verify(gold, target, allow_set_relation_comp=True, timeout_seconds=None, raise_on_error=True))


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Any:
    """The sympy object of a text, or None. Decimals are exact, `i` is the imaginary unit, other symbols are real.

    An inequality in one variable becomes the set of its solutions. Two kinds of text are not parsed: membership, which
    math-verify reads as an equation, and relations between numbers, which sympy would reduce to "true".
    """
    if (number := parse_number(text)) is not None:
        return Rational(number.numerator, number.denominator)
    word, inequalities = alternatives(text)
    if word:
        solutions = [_parsed(inequality) for inequality in inequalities]  # of each, the set of numbers
        if not all(isinstance(numbers, Set) for numbers in solutions):
            return None
        return Union(*solutions) if word == "or" else Intersection(*solutions)
    expression = None if _MEMBERSHIP.search(text) else _expression(text)
    if expression is None or (is_relation(expression) and not expression.free_symbols):
        return None
    # Each float becomes the rational with its digits, each symbol a real one or `I`.
    exact: dict[Any, Any] = {decimal: Rational(str(decimal)) for decimal in expression.atoms(Float)}
    for symbol in expression.free_symbols:
        if isinstance(symbol, Symbol):
            exact[symbol] = I if symbol.name == "i" else Symbol(symbol.name, real=True)
    value = expression.xreplace(exact)
    if is_relation(value) and not is_equation(value) and len(value.free_symbols) == 1:
        return unwrap_fcs(value).as_set()
    return value.doit() if isinstance(value, Set) or value.has(*_UNEVALUATED) else value


def _expression(text: str) -> Any:
    """What the library's parser makes of a text; None if it, or `for_library`, does not read the text."""
    written = for_library(text)
    if written is None:
        return None
    try:
        return latex2sympy(written, is_real=True, normalization_config=None, conversion_config=_READS)
    except Exception as error:  # the parser raises bare exceptions for what is not in its grammar
        if type(error) is not Exception and not isinstance(error, LIBRARY_ERRORS):
            raise
        return None


def _differ(x: Any, y: Any) -> bool:
    """Whether two objects certainly differ in kind, in shape or in value."""
    if isinstance(x, MatrixBase) and isinstance(y, MatrixBase):
        return x.shape != y.shape or any(_values_differ(p, q) for p, q in zip(x.flat(), y.flat(), strict=True))
    if x.is_Matrix or y.is_Matrix:
        return bool(x.is_Matrix != y.is_Matrix)
    if isinstance(x, Expr) and isinstance(y, Expr):
        return _values_differ(x, y)
    if is_equation(x) and is_equation(y) and not (is_assignment_relation(x) and is_assignment_relation(y)):
        return _leaves(x, y) or _leaves(y, x)
    # a relation that does not assign a value to a variable never equals a value, nor does a set of many values a number
    return any(
        (is_relation(s) and not is_assignment_relation(s) and isinstance(t, Expr))
        or (isinstance(s, Set) and not isinstance(s, FiniteSet) and isinstance(t, Expr) and t.is_number)
        for s, t in ((x, y), (y, x))
    )


def _leaves(x: Any, y: Any) -> bool:
    """Whether a point satisfies the first of two equations and certainly not the second. Such a point is looked for
    only where the first is linear in a variable."""
    first, second = (unwrap_fcs(equation).lhs - unwrap_fcs(equation).rhs for equation in (x, y))
    for variable in sorted(first.free_symbols, key=str):
        slope = expand(first.diff(variable))
        if slope.is_zero or variable in slope.free_symbols:
            continue
        point = {
            symbol: _sample_value(symbol.name) for symbol in (first.free_symbols | second.free_symbols) - {variable}
        }
        point[variable] = -(first.xreplace({variable: S.Zero}) / slope).xreplace(point)
        return any(part is not None and part != 0 for part in _at_sample_point(second.xreplace(point), 15))
    return False


def _values_differ(x: Expr, y: Expr) -> bool:
    """Whether two expressions differ at the sample point, as far as sympy is sure of the digits of the difference."""
    if x in _UNDEFINED or y in _UNDEFINED:
        return bool(x != y)
    return any(part is not None and part != 0 for part in _at_sample_point(x - y, 15))


@lru_cache(maxsize=4096)
def _value(text: str) -> Parts:
    """The value of a text at the sample point."""
    value = _parsed(text)
    return _at_sample_point(value, _DIGITS) if isinstance(value, Expr) and not value.is_Matrix else (None, None)


def _at_sample_point(value: Expr, digits: int) -> Parts:
    """The real and the imaginary part of a value at the sample point, where each variable has a fixed value of its own.

    A part is None if sympy is not sure of its digits.
    """
    point = {symbol: _sample_value(symbol.name) for symbol in value.free_symbols if isinstance(symbol, Symbol)}
    value = value.xreplace(point).replace(lambda part: isinstance(part, AppliedUndef), lambda f: _sample_value(str(f)))
    real, imaginary = value.evalf(digits).as_real_imag()
    return _if_sure(real), _if_sure(imaginary)


def _if_sure(part: Expr) -> Expr | None:
    return part if part.is_Rational or (part.is_Float and part._prec > 1) else None


def _sample_value(name: str) -> Rational:
    """The value of a variable at the sample point: a hashed positive rational, the same in every process."""
    return Rational(int.from_bytes(hashlib.sha256(name.encode()).digest()[:3], "big") + 1, 9_999_991)


def compare_line(line: str) -> Outcome:
    """The outcome for one line of the parent, `[a, b]`."""
    a, b = json.loads(line)
    try:
        return decide(a, b, judge)
    except LIBRARY_ERRORS as error:
        return Outcome("unknown", f"library error: {type(error).__name__}")
    except MemoryError:
        return Outcome("unknown", "memory")


def main(memory_mb: int, alarm_s: int) -> None:
    """Answer until the parent closes the pipe. The alarm ends a busy worker whose parent was killed."""
    logging.disable()
    for a, b in _WARM_UP:
        judge(a, b)
    # The pipe to the parent is moved away from stdout, so that nothing a library prints can be read as a verdict.
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.dup2(devnull, sys.stderr.fileno())
    # No memory without limit, no files and no core dumps, whatever an answer makes the libraries do.
    resource.setrlimit(resource.RLIMIT_AS, (memory_mb << 20, memory_mb << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    print('"ready"', file=pipe, flush=True)
    for line in sys.stdin:
        signal.alarm(alarm_s)
        outcome = compare_line(line)
        signal.alarm(0)
        print(json.dumps(outcome), file=pipe, flush=True)
        if outcome.reason == "memory":
            return


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
