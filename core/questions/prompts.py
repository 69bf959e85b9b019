"""The prompt templates for Solver and Challenger (R-Zero, appendix E.2, verbatim), and the parser of the Challenger's
reply."""

from __future__ import annotations

import re
from collections.abc import Sequence

from core.grading.answers import extract_boxed
from core.types import QuestionFormat

Message = dict[str, str]

SOLVER_SYSTEM = r"Please reason step by step, and put your final answer within \boxed{}."

CHALLENGER_SYSTEM = r"""You are an expert competition-math problem setter. FIRST, in your private scratch-pad, think step-by-step to design a brand-new, non-trivial problem. The problem could come from any field of mathematics, including but not limited to algebra, geometry, number theory, combinatorics, prealgebra, probability, statistics, and calculus. Aim for a difficulty such that fewer than 30% of advanced high-school students could solve it. Avoid re-using textbook clichés or famous contest problems.

THEN, without revealing any of your private thoughts, output **exactly** the following two blocks:

<question>
{The full problem statement on one or more lines}
</question>

\boxed{final_answer}

Do NOT output anything else—no explanations, no extra markup."""  # noqa: E501 (verbatim)

CHALLENGER_USER = (
    "Generate one new, challenging reasoning question now. Remember to format the output exactly as instructed."
)

# What no question may contain: control characters, and the tokens that open and close turns in a chat template. With
# such a token, a part of the question would look to the Solver like a message of another role.
_CONTROL = re.compile(r"<\|[^|<>]{0,40}\|>|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def solver_messages(question: str) -> list[Message]:
    """The chat that asks the Solver one question (R-Zero E.2)."""
    return [{"role": "system", "content": SOLVER_SYSTEM}, {"role": "user", "content": question}]


def challenger_messages() -> list[Message]:
    """The chat that asks the Challenger for one question (R-Zero E.2): the same for every rollout."""
    return [{"role": "system", "content": CHALLENGER_SYSTEM}, {"role": "user", "content": CHALLENGER_USER}]


def parse_question(
    text: str, max_chars: int = 2000, expected: QuestionFormat = "tags", refused: Sequence[str] = ()
) -> str | None:
    """The question in a Challenger rollout, or None when it is malformed.

    A well-formed rollout has `<question>…</question>` (R-Zero 2.2, "Format Check Penalty"); the last such block counts,
    as in the released code. If "tags_and_answer" is expected, a final `\\boxed{}` follows it, as the prompt asks (E.2).
    `max_chars` limits what an untrusted model can put into later prompts, and control tokens of a chat template are
    refused. So is a question that contains one of the texts in `refused`, in upper or lower case.
    """
    inside, after = _last_block(text)
    question = inside.strip()
    if refuse_question(question, max_chars) or any(part.lower() in question.lower() for part in refused):
        return None
    return None if expected == "tags_and_answer" and extract_boxed(after) is None else question


def refuse_question(question: str, max_chars: int) -> str | None:
    """Why a text may not be used as a question; None if it may."""
    if not question.strip():
        return "expected a question, got none"
    if len(question) > max_chars:
        return f"expected at most {max_chars} characters (dataset.max_question_chars), got {len(question)}"
    return "holds control characters, or control tokens of a chat template" if _CONTROL.search(question) else None


def _last_block(text: str) -> tuple[str, str]:
    """The content of the last `<question>…</question>` and the text after it; both are "" if there is none.

    This is not a regular expression, which would take quadratic time for thousands of blocks that are never closed.
    """
    pieces = text.split("</question>")
    for i in range(len(pieces) - 2, -1, -1):
        _, opening_tag, inside = pieces[i].partition("<question>")
        if opening_tag:
            return inside, "</question>".join(pieces[i + 1 :])
    return "", ""
