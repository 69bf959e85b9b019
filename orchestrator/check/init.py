"""`coevo init`: a folder with a preset, prompts and a benchmark of one's own, to be edited. It runs as it is."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from core.errors import CoevoError
from core.files import make_folder
from core.settings.config import RunConfig
from core.settings.parsing import load_config
from core.settings.toml_text import toml_of
from core.types import TINY_BASES
from orchestrator.check.presets import OWN_PRESET, preset_path

PRESET, PROMPTS, BENCHMARK, README = OWN_PRESET, "prompts.jsonl", "benchmark.toml", "README.md"
_QUESTIONS = Path(BENCHMARK).with_suffix(".jsonl").name
_QUESTION, _ANSWER = "task", "solution"  # columns with other names than the defaults, as most files have them
# Questions that the tiny models understand, with their answers.
_PROMPTS = {
    "What is 12 + 7?": 19,
    "What is 30 - 4 * 5?": 10,
    "Compute 6 * 7 - 2.": 40,
    "Evaluate 15 + 8 - 9.": 14,
    "There are 4 boxes with 6 pens each. How many pens are there?": 24,
    "Ann has 9 cards, buys 5 more. How many cards does Ann have?": 14,
    "Tom has 20 coins, loses 8. How many coins does Tom have?": 12,
    "Find the value of 3 * 9 + 1.": 28,
}
_HELD_OUT = {
    "What is 14 + 9?": 23,
    "What is 40 - 6 * 3?": 22,
    "Compute 5 * 8 - 7.": 33,
    "Evaluate 18 + 5 - 6.": 17,
    "There are 3 boxes with 9 keys each. How many keys are there?": 27,
    "Eva has 7 books, buys 6 more. How many books does Eva have?": 13,
    "Max has 25 stamps, sells 9. How many stamps does Max have?": 16,
    "Find the value of 4 * 7 + 2.": 30,
}


class FolderError(CoevoError):
    """A folder that cannot be made, with its name."""


def make(folder: Path, preset: str) -> list[Path]:
    """Make the folder from a shipped preset, or from one by its path, and return its files.

    Raises `ConfigError`, and `FolderError` for a folder that is not empty.
    """
    text = preset_path(preset).read_text(encoding="utf-8")
    config = load_config(preset_path(preset))
    given = _has_prompts(config)
    lines = text.splitlines()
    for table, name, value, comment in _edits(config, folder.absolute()):
        # The line of the setting is replaced, or added at the end of its table, which is added if it is not there.
        headers = [line.partition("#")[0].strip() for line in lines]
        if table and f"[{table}]" not in headers:
            lines += ["", f"[{table}]"]
            headers += ["", f"[{table}]"]
        start = headers.index(f"[{table}]") + 1 if table else 0
        end = next((at for at in range(start, len(lines)) if lines[at].startswith("[")), len(lines))
        new = [] if value is None else [f"{toml_of({name: value}, {}).strip()}  # yours: {comment}"]
        old = next((at for at in range(start, end) if re.match(rf"{name}\s*=", lines[at])), None)
        if old is not None:
            lines[old : old + 1] = new
            continue
        while end > start and not lines[end - 1]:
            end -= 1
        lines[end:end] = new
    origin = f"# My preset, made from {preset} by `coevo init`."
    head = (
        f"{origin} Lines with `yours` name my own model, questions and answers.",
        f"# What follows is {preset}'s own comment.",
    )
    files = {PRESET: "\n".join([*head, *lines]) + "\n", **({PROMPTS: _rows(_PROMPTS)} if given else {})}
    files |= {BENCHMARK: _DEFINITION, _QUESTIONS: _rows(_HELD_OUT), README: _readme(folder, preset, given)}
    with TemporaryDirectory() as temporary:  # refuses a preset that cannot be edited so, such as one of dotted names
        (Path(temporary) / PRESET).write_text(files[PRESET], encoding="utf-8")
        load_config(Path(temporary) / PRESET)
    try:
        entries = ["a file"] if folder.is_file() else sorted(path.name for path in folder.glob("*"))
        if entries:
            got = entries[0] if folder.is_file() else f"one with {', '.join(entries[:5])}{', …' * (len(entries) > 5)}"
            raise FolderError(f"{folder}: expected a new or an empty folder, got {got}")
        make_folder(folder)
        for name, content in files.items():
            (folder / name).write_text(content, encoding="utf-8")
    except OSError as error:
        raise FolderError(f"{folder}: cannot be written: {error.strerror}") from error
    return [folder / name for name in files]


def _has_prompts(config: RunConfig) -> bool:
    """Whether the Solver is trained on a prompt file, and not on a Challenger's questions or on the benchmark."""
    return config.kind == "self_train" and not config.test_time


def _edits(config: RunConfig, folder: Path) -> Iterator[tuple[str, str, str | None, str]]:
    """The settings that name something of one's own: table, name, value, and a comment.

    The table of the preset's own settings is empty. The line of a setting without a value is removed.
    """
    yield "", "base_model", config.base_model, "the folder of a Hugging Face model in safetensors"
    if _has_prompts(config):
        yield "prompts", "limit", None, ""
        yield "prompts", "file", f"{folder / PROMPTS}", "JSONL or Parquet"
        yield "prompts", "question", _QUESTION, "its column with the questions"
        yield "prompts", "answer", _ANSWER, "its column with the true answers; leave it out if there is none"
    if config.audit.oracle == "exact":
        oracle, comment = "exact", "grades the tiny world's questions; or judge, program, none"
        if config.kind == "self_train":
            oracle = "given" if config.votes_before_training else "none"
            comment = "with labels = 'offline' in [prompts]: given, which are the true answers, judge or program"
        yield "audit", "oracle", oracle, comment
    yield "evaluation", "benchmark", f"{folder / BENCHMARK}", "the questions that the Solver is evaluated on"
    if config.early_stopping is not None and config.early_stopping.benchmark.startswith(TINY_BASES):
        comment = "other questions with answers; or leave [early_stopping] out"
        yield "early_stopping", "benchmark", config.early_stopping.benchmark, comment


def _rows(questions: dict[str, int]) -> str:
    return "".join(json.dumps({_QUESTION: text, _ANSWER: str(answer)}) + "\n" for text, answer in questions.items())


_DEFINITION = f"""\
# My benchmark: how its questions are asked. They are in {_QUESTIONS} beside this file, with their true answers.
title = "My benchmark"
source = "where its questions are from"
answers = "math"           # how answers are compared: "math", "choice" (a letter) or "text"

[columns]                  # the names of its columns
question = "{_QUESTION}"
answer = "{_ANSWER}"
"""


def _readme(folder: Path, name: str, given: bool) -> str:
    preset = shlex.quote(str(folder / PRESET))
    prompts = f"- `{PROMPTS}`: the questions that the Solver learns from, one JSON object a line.\n" if given else ""
    return f"""\
# My run of coevo

`{PRESET}` was made from the preset `{name}`. Each line of it with `yours` names something to replace:

- `base_model`: the folder of your model, a Hugging Face model in safetensors.
{prompts}- `{BENCHMARK}` and `{_QUESTIONS}`: the questions that the Solver is evaluated on after each iteration.

The paths in `{PRESET}` are absolute: change them if you move this folder. With eight questions no figure means much.

```
coevo check {preset}              # what is missing here, all at once, and what it needs
coevo check {preset} --run        # its whole path in minutes, with your model but little work
coevo run {preset} --name mine    # after `coevo up`; then `coevo report mine`
```

An oracle, a judge or a reward of your own, and what you see afterwards: docs/extending.md in coevo's repository.
"""
