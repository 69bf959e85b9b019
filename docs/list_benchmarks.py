"""Write the tables of benchmarks and suites in docs/evaluation.md from deploy/benchmarks and deploy/suites:
python docs/list_benchmarks.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from orchestrator.installation.home import SUITES
from orchestrator.question_sets.benchmarks import definition_of, known_benchmarks, read_suite

PAGE = Path(__file__).parent / "evaluation.md"


def benchmarks() -> Iterable[str]:
    yield from ("| answers | benchmarks, with their numbers of questions |", "|---|---|")
    definitions = {name: definition_of(name) for name in known_benchmarks()}
    for answers in ("math", "choice", "text"):
        names = (
            f"`{name}`" if definition.questions is None else f"`{name}` {definition.questions:,}"
            for name, definition in definitions.items()
            if definition.answers == answers
        )
        yield f"| {answers} | {', '.join(names)} |"


def suites() -> Iterable[str]:
    yield from ("| suite | benchmark: samples of each question | decoding |", "|---|---|---|")
    for file in sorted(SUITES.glob("*.toml")):
        suite = read_suite(file.stem)
        samples = ", ".join(f"`{name}` {count or 'greedy'}" for name, count in suite.benchmarks.items())
        sampling = suite.sampling
        decoding = f"temperature {sampling.temperature:g}, top-p {sampling.top_p:g}, {sampling.max_tokens:,} tokens"
        yield f"| `{file.stem}` | {samples} | {decoding} |"


def with_tables(page: str) -> str:
    """The page with both tables made anew."""
    for name, lines in (("benchmarks", benchmarks()), ("suites", suites())):
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        table = "\n".join(lines)
        pattern = f"(?s)({re.escape(begin)}\n).*?(\n{re.escape(end)})"
        page = re.sub(pattern, lambda match, table=table: f"{match[1]}\n{table}\n{match[2]}", page)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
