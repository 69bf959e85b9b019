"""Expressions and short stories: numbers that are added, subtracted and multiplied, products first."""

from __future__ import annotations

import random

from trainers.micro.families import Problem, number

PIECES = r"\d| ?[^\s\d]+ ?|\s+"  # digits, words, spaces
NAMES = ("Tom", "Mia", "Sam", "Ana", "Leo", "Zoe", "Max", "Eva")
ITEMS = ("apples", "coins", "books", "cards", "shells", "pens", "stones", "marbles")
GAINS = ("finds", "buys", "wins", "gets")
LOSSES = ("loses", "sells", "eats", "drops")
ASKS = ("What is {e}?", "Compute {e}.", "Evaluate {e}.", "Find the value of {e}.", "Calculate {e}.")
WORD_PROBLEMS = 0.3  # share of problems

Reduction = tuple[int, str, int, int]  # a, operator, b, result


def make(rng: random.Random, operations: int) -> Problem:
    """A problem with so many operations."""
    if rng.random() < WORD_PROBLEMS:
        if operations > 1 or rng.random() >= 0.3:
            return _story(rng, operations)
        boxes, in_a_box, item = rng.randint(2, 9), number(rng), rng.choice(ITEMS)
        text = f"There are {boxes} boxes with {in_a_box} {item} each. How many {item} are there?"
        return _problem(text, [boxes, in_a_box], ["*"])
    return _expression(rng, operations)


def make_ill_posed(question: str, rng: random.Random) -> str:
    """An ill-posed version of `question`: a number is missing or replaced by a letter, or the end is cut off."""
    words = question.split(" ")
    number = rng.choice([index for index, word in enumerate(words) if any(letter.isdigit() for letter in word)])
    punctuation = words[number].lstrip("0123456789")
    kind = rng.random()
    if kind < 0.5:
        words[number] = ("some" if "How many" in question else "") + punctuation
        return " ".join(word for word in words if word)
    if kind < 0.75:
        words[number] = rng.choice("xyn") + punctuation
        return " ".join(words)
    return question[: len(question) * 2 // 3].rstrip()


def reduce_all(operands: list[int], operators: list[str]) -> list[Reduction]:
    """Compute one operation at a time: products first, then the others, each from left to right."""
    values, signs = list(operands), list(operators)
    lines: list[Reduction] = []
    while signs:
        index = signs.index("*") if "*" in signs else 0
        a, sign, b = values[index], signs.pop(index), values.pop(index + 1)
        values[index] = a * b if sign == "*" else a + b if sign == "+" else a - b
        lines.append((a, sign, b, values[index]))
    return lines


def _problem(text: str, operands: list[int], operators: list[str]) -> Problem:
    """The problem `operands[0] operators[0] operands[1] …`."""
    reductions = reduce_all(operands, operators)
    return Problem(text, tuple(f"{a} {sign} {b} = {result}" for a, sign, b, result in reductions), reductions[-1][3])


def _story(rng: random.Random, operations: int) -> Problem:
    """A word problem of sums and differences."""
    name, item = rng.choice(NAMES), rng.choice(ITEMS)
    operands, operators = [number(rng)], []
    text = f"{name} has {operands[0]} {item}"
    for index in range(operations):
        gain = rng.random() < 0.55
        operands.append(number(rng))
        operators.append("+" if gain else "-")
        verb = rng.choice(GAINS if gain else LOSSES)
        text += f", {'then ' if index else ''}{verb} {operands[-1]}{' more' if gain else ''}"
    return _problem(f"{text}. How many {item} does {name} have?", operands, operators)


def _expression(rng: random.Random, operations: int) -> Problem:
    """An expression with at most one product, one of whose factors has a single digit, so that the model can learn it.

    The other operations are sums and differences.
    """
    operands, operators = [number(rng)], list[str]()
    for _ in range(operations):
        sign = rng.choices("+-*", (0.42, 0.36, 0.22))[0]
        if sign == "*" and "*" in operators:
            sign = "+"
        if sign == "*":
            operands[-1] = rng.randint(2, 9) if rng.random() < 0.6 else rng.randint(10, 99)
            single_digit = operands[-1] > 9 or rng.random() < 0.5
            operands.append(rng.randint(2, 9) if single_digit else number(rng))
        else:
            operands.append(number(rng))
        operators.append(sign)
    tail = "".join(f" {sign} {operand}" for sign, operand in zip(operators, operands[1:], strict=True))
    return _problem(rng.choice(ASKS).format(e=f"{operands[0]}{tail}"), operands, operators)
