"""Renders a chat template in a process of its own, which ends if that takes too long or too much memory.

A template is a program of whoever made the model. The sandbox of transformers lets the template see the chat alone,
but limits neither its time nor its memory, in the process that loads the model. So the template is first tried here,
without transformers, which takes seconds to import. Only the limits are tried; an error of the template is left to the
real rendering.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from typing_extensions import override

LONGEST = 1_000_000  # characters of a rendered chat
_CPU_S, _MEMORY_BYTES = 3, 1 << 30
_PATIENCE_S = 60.0  # for a process that waits for its processor
_TOO_MUCH = (
    f"chat_template: expected one that renders a chat in {_CPU_S} s and {_MEMORY_BYTES >> 30} GiB, and in at most "
    f"{LONGEST:,} characters"
)


@lru_cache(maxsize=100)
def problem_with(template: str, chats: str) -> str | None:
    """Says that the template exceeds the limits for one of the chats, a list in JSON; None if it does not."""
    program = [sys.executable, "-P", "-s", str(Path(__file__))]
    variables = {"PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path)}
    request = json.dumps([template, json.loads(chats)]).encode()
    try:
        done = subprocess.run(
            program, input=request, capture_output=True, timeout=_PATIENCE_S, env=variables, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        return _TOO_MUCH
    return _TOO_MUCH if done.returncode else None


class _Generation(jinja2.ext.Extension):
    """The tag of transformers around what an assistant says."""

    tags = {"generation"}  # noqa: RUF012 (as Jinja has it)

    @override
    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _main() -> None:
    template, chats = json.loads(sys.stdin.buffer.read())
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    for chat in chats:
        written = 0
        try:
            for part in environment.from_string(template).generate(messages=chat, add_generation_prompt=True):
                written += len(part)
                if written > LONGEST:
                    sys.exit(1)
        except MemoryError:
            sys.exit(1)
        except Exception:  # noqa: BLE001, S112 (of any kind: its errors are left to the real rendering)
            continue


if __name__ == "__main__":
    _main()
