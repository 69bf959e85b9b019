"""Model folders as they are found: chat templates that refuse a system message, and files that are missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from core.settings.training import Sampling
from orchestrator.installation.home import MICRO_MODEL
from services.inference.engines.base import Prompt, PromptRefused
from services.inference.engines.embedded import TransformersEngine
from services.inference.engines.model_files import ChatRefused, tokenizer_of

_TURNS = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
GEMMA = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + _TURNS
ALTERNATE = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/...') }}{% endif %}{% endfor %}" + _TURNS
)
UNKNOWN_ROLE = (
    "{% for m in messages %}{% if m['role'] not in ['user', 'assistant'] %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}" + _TURNS
)
LEFT_OUT = "{% for m in messages if m['role'] != 'system' %}{{ m['content'] }}{% endfor %}"
PARTS = "{% for m in messages %}{{ m['content'] if m['role'] != 'system' else m['content'] + 5 }}{% endfor %}"
DEEP = "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}"
REFUSING = {
    "left out": LEFT_OUT,
    "an error of Python": PARTS,
    "Gemma": GEMMA,
    "Mistral": ALTERNATE,
    "an unknown role": UNKNOWN_ROLE,
    "after a line": "\n" + GEMMA,
}
SYSTEM, USER = {"role": "system", "content": "Think."}, {"role": "user", "content": "1 + 1?"}
EXAMPLE = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for file in MICRO_MODEL.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    return tmp_path


def with_template(folder: Path, template: str) -> Path:
    (folder / "chat_template.jinja").write_text(template)
    return folder


def rendered(tokenizer: Any, *messages: dict[str, str]) -> str:
    text: str = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
    return text


@pytest.mark.parametrize("template", REFUSING.values(), ids=REFUSING.keys())
def test_a_system_text_begins_the_user_s_message_if_the_template_refuses_system_messages(
    template: str, folder: Path
) -> None:
    plain = AutoTokenizer.from_pretrained(with_template(folder, template))
    tokenizer = tokenizer_of(folder)
    both = {"role": "user", "content": "Think.\n\n1 + 1?"}
    assert rendered(tokenizer, SYSTEM, USER) == rendered(plain, both)
    first = {"role": "user", "content": "Think.\n\n2 + 2?"}
    assert rendered(tokenizer, SYSTEM, *EXAMPLE, USER) == rendered(plain, first, EXAMPLE[1], USER)
    assert rendered(tokenizer, USER) == rendered(plain, USER)
    assert rendered(tokenizer, *EXAMPLE, USER) == rendered(plain, *EXAMPLE, USER)


def test_a_template_that_takes_system_messages_is_left_as_it_is(folder: Path) -> None:
    assert tokenizer_of(folder).chat_template == AutoTokenizer.from_pretrained(folder).chat_template


def test_of_several_templates_the_default_one_is_used(folder: Path) -> None:
    named = [{"name": "default", "template": GEMMA}, {"name": "tool_use", "template": _TURNS}]
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": named}))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    expected = rendered(tokenizer_of(folder), {"role": "user", "content": "Think.\n\n1 + 1?"})
    assert rendered(tokenizer_of(folder), SYSTEM, USER) == expected


ASKED = "{{ messages[-1].content }}"
# Templates that render no question, or that write it, but would keep the process busy, or take its memory.
UNUSABLE = {
    "an error": "{{ raise_exception('never') }}",
    "an unknown tag": "{% unknown %}",
    "no question": "Hello",
    "a sum": "{{ 1 + messages[-1]['content'] }}",
    "deep": DEEP,
    "loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}" + ASKED,
    "a long text": "{{ 'x' * 1000000000 }}" + ASKED,
    "a text too long to be had": "{{ 'x' * 100000000000 }}" + ASKED,
    "doubling": "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}{% endfor %}" + ASKED,
    "a filter": "{{ 'a' | center(2000000000) | length }}" + ASKED,
    "a format": "{{ '%01000000000d' % 3 }}" + ASKED,
    "many small texts": "{% for a in range(99999) %}{{ '0123456789abcdef' }}{% endfor %}" + ASKED,
    "a list": "{% set n = ['x'] * 1000000000 %}" + ASKED,
    "only without a system message": "{% if messages | length == 1 %}{{ 'x' * 10000000 }}{% endif %}" + ASKED,
}


@pytest.mark.parametrize("template", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_a_template_without_the_question_or_that_takes_too_much_is_refused_by_name(template: str, folder: Path) -> None:
    with pytest.raises(ChatRefused, match="chat_template"):
        tokenizer_of(with_template(folder, template))


BROKEN = ["{{ 1 / 0 }}", "{{ 1 + 'a' }}", "{% include 'a' %}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"]
BROKEN += ["{{ ''.__class__.__mro__ }}", "{{ messages[7].content }}", "{{ strftime_now(7) }}", "{{ ('x' * 1000001) }}"]


@pytest.mark.parametrize("template", BROKEN, ids=range(len(BROKEN)))
def test_every_error_of_a_template_refuses_the_model_and_later_the_request(template: str, folder: Path) -> None:
    with pytest.raises(ChatRefused, match="chat_template"):
        tokenizer_of(with_template(folder, template))
    later = "{% if messages[-1].content == 'Break.' %}" + template + "{% endif %}" + ASKED
    engine = TransformersEngine(with_template(folder, later))
    with pytest.raises(PromptRefused, match="chat_template"):
        engine.check(Prompt(({"role": "user", "content": "Break."},), 0, 1, Sampling()))


def test_a_template_with_the_tags_of_transformers_is_as_before(folder: Path) -> None:
    template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% break %}{% endfor %}"
    assert rendered(tokenizer_of(with_template(folder, template + ASKED)), USER) == "1 + 1?" * 2


def test_the_engine_answers_with_such_a_template_and_refuses_what_it_cannot_render(folder: Path) -> None:
    engine = TransformersEngine(with_template(folder, ALTERNATE))
    engine.load(folder)
    sampling = Sampling(temperature=0, max_tokens=4)
    [[completion]] = engine.generate([Prompt((SYSTEM, USER), 0, 1, sampling)])
    assert completion.tokens
    with pytest.raises(PromptRefused, match="chat_template"):
        engine.check(Prompt((USER, USER), 0, 1, sampling))


@pytest.mark.parametrize("content", [None, "{", ""])
def test_a_model_without_a_generation_config_can_be_swapped_in(content: str | None, folder: Path) -> None:
    file = folder / "generation_config.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    loaded = TransformersEngine(MICRO_MODEL)
    loaded.load(folder)
    assert loaded._ends == TransformersEngine(folder)._ends
