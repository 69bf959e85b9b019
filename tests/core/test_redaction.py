"""Secrets do not get into what is logged."""

from __future__ import annotations

import pytest

from core.redaction import redacted, secrets_in


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("GET https://ann:hunter22@example.org/v1 failed", "hunter22"),
        ("postgresql://coevo:p4ss-word@db:5432/coevo: no answer", "p4ss-word"),
        ("headers: {'Authorization': 'Bearer abc.def-123456'}", "abc.def-123456"),
        ("the key sk-proj-0123456789abcdef was refused", "0123456789abcdef"),
        ("key coevo_Zm9vYmFyYmF6 is unknown", "Zm9vYmFyYmF6"),
        ("api_key=0a1b2c3d4e, retrying", "0a1b2c3d4e"),
        ("password: correct-horse", "correct-horse"),
        ("started with JUDGE_API_KEY=0a1b2c3d4e", "0a1b2c3d4e"),
        ('refused {"api_key": "0a1b2c3d4e"}', "0a1b2c3d4e"),
        ("vllm serve --api-key=0a1b2c3d4e", "0a1b2c3d4e"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redacted(text)
    assert "[secret]" in redacted(text)


def test_the_values_of_variables_with_secret_names_are_hidden() -> None:
    environment = {
        "JUDGE_KEY": "a judge's key",
        "PREFECT_API_AUTH_STRING": "coevo:a-password",
        "SHORT_TOKEN": "1",
        "COEVO_HOME": "/home/coevo",
    }
    text = "sent a judge's key and a-password from /home/coevo, attempt 1"
    assert redacted(text, secrets_in(environment)) == "sent [secret] and [secret] from /home/coevo, attempt 1"


def test_the_longer_of_two_secrets_is_hidden_whole_and_only_once() -> None:
    assert redacted("sent secret-and-more", ["secret", "secret-and-more"]) == "sent [secret]"


def test_a_password_in_the_address_of_any_variable_is_hidden_on_its_own_too() -> None:
    secrets = secrets_in({"COEVO_DATABASE": "postgresql://coevo:p4ss-word@db:5432/coevo"})
    assert redacted("no password p4ss-word for coevo", secrets) == "no password [secret] for coevo"


@pytest.mark.parametrize(
    "text",
    [
        "evaluate 2: micro pass@1 57.4% [55.0, 59.8] (n = 1,020); 18.7 s",
        "solver.max_tokens: expected 1 or more, got 0",
        "sha256 6a7479f9ae1741648f5e8c54c55a47901e0df2688a0973494db2dc93a17bbc7c",
        "GET http://127.0.0.1:8000/solver/v1 failed",
        "audit.judge.key: expected a name of a variable",
        "the monkey: expected to be left alone",
        "-" * 100_000,
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text
