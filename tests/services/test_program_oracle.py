"""The oracle that is a program of one's own: real programs that grade, fail, hang, or print something else."""

from __future__ import annotations

import os
import re
import select
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from core.settings.audit import Program
from core.types import OracleLabel
from services.oracles.program import ProgramError, audit, refuse_unrunnable

ROWS = [("a/1/000000", "What is 2 + 3?", "5"), ("a/1/000001", "What is 2 + 3?\n\ud83d $(id)", "6")]
REFUSE: tuple[Callable[[Program], object], ...] = (refuse_unrunnable, partial(audit, ROWS))
READ = "import json, os, sys\nrows = [json.loads(line) for line in sys.stdin]\n"


def program(folder: Path, body: str, **constants: float) -> Program:
    file = folder / "grade.py"
    file.write_text(f"#!{sys.executable}\n{body}")
    file.chmod(0o755)
    return Program(file=str(file)).model_copy(update=constants)


def test_the_program_gets_each_pseudo_label_as_a_line_and_its_verdicts_are_the_labels(tmp_path: Path) -> None:
    body = (
        f"{READ}open({str(tmp_path / 'got')!r}, 'w').write(ascii([(row['question'], row['label']) for row in rows]))\n"
        "print(json.dumps({'verdict': 'right', 'truth': '5\\u2028'}, ensure_ascii=False))\n"
        "print(json.dumps({'verdict': 'ill_posed'}))"
    )
    labels = audit(ROWS, program(tmp_path, body))
    assert labels == [
        OracleLabel(ROWS[0][0], "program", "right", "5\u2028"),
        OracleLabel(ROWS[1][0], "program", "ill_posed", None),
    ]
    assert (tmp_path / "got").read_text() == ascii([row[1:] for row in ROWS])


def test_more_than_a_pipe_holds_is_read_and_written(tmp_path: Path) -> None:
    rows = [(f"a/1/{i:06d}", "q" * 1000, "5") for i in range(1000)]
    body = 'import sys\nfor line in sys.stdin:\n    print(\'{"verdict": "wrong", "truth": "\' + \'x\' * 1000 + \'"}\')'
    labels = audit(rows, program(tmp_path, body))
    assert [label.question_id for label in labels] == [row[0] for row in rows]
    assert {label.truth for label in labels} == {"x" * 1000}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('print(\'{"verdict": "right"}\')', "expected 2 lines from FILE, .* got 1"),
        ("print('yes\\nno')", "FILE, line 1: .*'yes'"),
        ('print(\'{"verdict": "right"}\\n[]\')', "FILE, line 2: .*one of right"),
        ('print(\'{"verdict": "yes"}\\n1\')', "FILE, line 1: .*one of right"),
        ("print('{\"verdict\": [1]}\\n1')", "FILE, line 1: .*one of right"),
        ('print(\'{"verdict": "right", "truth": [1]}\\n1\')', "FILE, line 1: truth: .*2000"),
        ('print(\'{"verdict": "right", "truth": "\' + 2001 * \'x\' + \'"}\\n1\')', "FILE, line 1: truth: .*2000"),
        # JSON that Python cannot hold.
        ("print('[' * 16_000)\nprint(1)", r"FILE, line 1: .*'\[{500}'"),
        ("print('9' * 5_000)\nprint(1)", "FILE, line 1: .*'9{500}'"),
        ("import sys\nprint(1, 2)\nsys.exit('no\\nsuch thing')", "FILE .*status 1: no\nsuch thing"),
        # Of a long complaint only the end is shown.
        ("import sys\nsys.stderr.write('x' * 10_000_000 + 'y' * 499 + 'end\\n')\nsys.exit(1)", "status 1: y{497}end$"),
    ],
)
def test_what_a_program_must_not_print_is_named(tmp_path: Path, body: str, words: str) -> None:
    settings = program(tmp_path, body)
    with pytest.raises(ProgramError, match=rf"^audit\.program\S*: .*{words.replace('FILE', re.escape(settings.file))}"):
        audit(ROWS, settings)


def test_a_late_program_is_killed_with_what_it_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    # The child keeps the pipe open for writing until it is killed.
    body = (
        f"import os, subprocess\npipe = os.open({str(tmp_path / 'alive')!r}, os.O_RDWR)\n"
        "subprocess.run(['sleep', '600'], pass_fds=[pipe])"
    )
    reader = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(ProgramError, match=r"audit\.program\.file: .*grade\.py .* 1 s"):
        audit(ROWS, program(tmp_path, body, timeout=1))
    assert select.select([reader], [], [], 60)[0]
    assert os.read(reader, 1) == b""  # the end of the file: nobody can write any more
    os.close(reader)


@pytest.mark.parametrize(
    "first",
    [
        "",
        "import fcntl; fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1_000_000)",  # more waits in the pipe than is read at once
        "subprocess.Popen(['cat'], stdin=pipe, start_new_session=True)",  # a process that is not in the killed group
    ],
)
def test_a_program_that_prints_without_end_is_killed(tmp_path: Path, first: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "pipe").open("r+b", buffering=0):  # when it is closed, the process that is not in the group ends
        body = (
            f"import subprocess, sys\npipe = open({str(tmp_path / 'pipe')!r}, 'rb')\n{first}\n"
            "while True:\n    sys.stdout.write('y' * 1_000_000)"
        )
        with pytest.raises(ProgramError, match=r"65,536 bytes from .*grade\.py"):
            audit(ROWS, program(tmp_path, body, timeout=60))


@pytest.mark.parametrize(
    "name",
    ["sh", "bash", "dash", "python3", "python3.11", "perl5.36", "env", "busybox", "node", "awk", "Rscript", "sqlite3"],
)
def test_an_interpreter_is_no_oracle(name: str, tmp_path: Path) -> None:
    """It would run the text of a model as a program; a link to one has another name."""
    file, link = tmp_path / name, tmp_path / "grade"
    file.write_text("#!/bin/sh\ncat\n")
    file.chmod(0o755)
    link.symlink_to(file)
    for refuse in REFUSE:
        for named in (file, link):
            with pytest.raises(ProgramError):
                refuse(Program(file=str(named)))


@pytest.mark.parametrize("name", ["grade.sh", "grade.py", "check_answers", "shield", "makeshift", "my-python"])
def test_a_script_is_an_oracle_whatever_runs_it(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    refuse_unrunnable(Program(file=str(file)))


def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    settings = program(tmp_path, "")
    refuse_unrunnable(settings)
    file = Path(settings.file)
    file.chmod(0o644)
    with pytest.raises(ProgramError, match=re.escape(f"{file}, which is not executable; chmod +x {file}")):
        refuse_unrunnable(settings)
    file.unlink()
    for refuse in REFUSE:
        with pytest.raises(ProgramError, match=re.escape(str(file))):
            refuse(settings)
