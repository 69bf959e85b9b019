"""Secrets do not get into what is logged."""

from __future__ import annotations

import pytest

from core.texts.redaction import redacted, secrets_in


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("GET https://ann:hunter22@example.org/v1 failed", "hunter22"),
        ("GET https://ann:p@ss@example.org/v1 failed", "ss@"),
        ("GET https://ann:p@ss:w0rd@example.org/v1 failed", "w0rd"),
        ("GET https://:hunter22@example.org failed", "hunter22"),
        ("postgresql://coevo:p4ss-word@db:5432/coevo: no answer", "p4ss-word"),
        ("headers: {'Authorization': 'Bearer abc.def-123456'}", "abc.def-123456"),
        ('{"Authorization": "Basic Y29ldm86YXBhc3M="}', "Y29ldm86YXBhc3M="),
        ('{"authorization": "opaque-words"}', "opaque-words"),
        ("Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ("authorization: 0a1b2c3d4e5f6a7b8c9d", "0a1b2c3d4e5f6a7b8c9d"),
        ("sent Bearer abcdefghijkl0123456789", "abcdefghijkl0123456789"),
        ("the key sk-proj-0123456789abcdef was refused", "0123456789abcdef"),
        ("the key sk-ant-api03-AbCdEfGhIjKlMnOp was refused", "AbCdEfGhIjKlMnOp"),
        ("the key sk-AbCdEfGhIjKlMnOpQrStUvWx was refused", "AbCdEfGhIjKlMnOpQrStUvWx"),
        ("hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh", "AbCdEfGhIjKlMnOp"),
        ("hf_0123456789abcdef", "0123456789abcdef"),
        ("key coevo_Zm9vYmFyYmF6 is unknown", "Zm9vYmFyYmF6"),
        ("ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F292c6912"),
        ("github_pat_11ABCDEFG0123456789_abcdefghijklmnop", "11ABCDEFG0123456789"),
        ("glpat-AbCdEfGhIjKlMnOpQrSt", "AbCdEfGhIjKlMnOpQrSt"),
        ("xoxb-123456789012-AbCdEfGhIjKl", "AbCdEfGhIjKl"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7EXAMPLE"),
        ("cookie eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVPmB92K27u", "dBjftJeZ4CVPmB92K27u"),
        ("POST https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXX failed", "T00000000/B00000000/XXXXXXXX"),
        ("POST https://discord.com/api/webhooks/123/AbCdEf failed", "123/AbCdEf"),
        ("api_key=0a1b2c3d4e, retrying", "0a1b2c3d4e"),
        ("password: correct-horse", "correct-horse"),
        ("passwd=correct-horse", "correct-horse"),
        ("db_password = 'correct-horse'", "correct-horse"),
        ("started with JUDGE_API_KEY=0a1b2c3d4e", "0a1b2c3d4e"),
        ("started with JUDGE_KEY=correct-horse", "correct-horse"),
        ("started with HF_TOKEN=correct-horse", "correct-horse"),
        ('refused {"api_key": "0a1b2c3d4e"}', "0a1b2c3d4e"),
        ('refused {"token": "correct-horse"}', "correct-horse"),
        ('refused {"client_secret": "correct-horse"}', "correct-horse"),
        ("GET /v1?token=0a1b2c3d4e", "0a1b2c3d4e"),
        ("vllm serve --api-key=0a1b2c3d4e", "0a1b2c3d4e"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, secret: str) -> None:
    assert secret in text
    assert secret not in redacted(text)
    assert "[secret]" in redacted(text)


@pytest.mark.parametrize(
    "name",
    [
        *("JUDGE_KEY", "OPENAI_API_KEY", "X_APIKEY", "HF_TOKEN", "RAY_AUTH_TOKEN", "PGPASSWORD", "DB_PASSWORD", "KEY"),
        *("CLIENT_SECRET", "MYSQL_PWD", "COEVO_WEBHOOK_URL", "PREFECT_API_AUTH_STRING", "AWS_CREDENTIALS"),
        *("GITHUB_PAT", "GITHUB_ACCESSTOKEN", "judge_key"),
    ],
)
def test_the_values_of_variables_with_secret_names_are_hidden(name: str) -> None:
    assert redacted("sent plain words, attempt 1", secrets_in({name: "plain words"})) == "sent [secret], attempt 1"


@pytest.mark.parametrize(
    "name",
    [
        *("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "XAUTHORITY", "SSH_AUTH_SOCK", "COEVO_HOME", "PWD", "OLDPWD"),
        *("MONKEY", "RAY_AUTH_MODE", "KEYBOARD", "TOKENIZERS_PARALLELISM", "SSH_KEY_PATH", "PATH", "AUTHORS"),
        "LESSKEYIN",
    ],
)
def test_the_values_of_other_variables_stay(name: str) -> None:
    assert secrets_in({name: "plain words"}) == []


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("coevo:a-password", "Y29ldm86YS1wYXNzd29yZA=="),  # what HTTP sends
        ("coevo:a-password", "a-password"),
        ("a/key+of=40", "a%2Fkey%2Bof%3D40"),
        ("a/key+of=40", "a/key%2Bof%3D40"),
        ("coevo:p/q+r=st", "p%2Fq%2Br%3Dst"),
    ],
)
def test_a_known_secret_is_hidden_in_each_of_its_forms(secret: str, text: str) -> None:
    assert redacted(f"sent {text}.", secrets_in({"JUDGE_AUTH": secret})) == "sent [secret]."


def test_the_longer_of_two_secrets_is_hidden_whole_and_a_short_value_not_at_all() -> None:
    assert redacted("sent secret-and-more", ["secret", "secret-and-more"]) == "sent [secret]"
    assert redacted("attempt 1", secrets_in({"SHORT_TOKEN": "1"})) == "attempt 1"


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
        "got 'basic arithmetic run'",
        "a bearer certificate of deposit",
        "run sk-estimators",
        "run sk-learn-pipeline-v2-test",
        "column key: question",
        "key = momentum",
        "best_key=solver/1",
        'the row {"key": "momentum"}',
        "hf_transfer_enabled is set",
        "hf_transfer_is_enabled_by_default",
        "Authorization: expected `Bearer KEY`, got none",
        "Authorization: this key is unknown or was revoked",
        "password: expected at least 6 characters",
        "install coevo_client from coevo_inference_key",
        "max_tokens=4096, token=7",
        "eos_token: <|im_end|>",
        "secretary: nobody",
        "http://127.0.0.1:8080/runs/demo@1",
        "mail ann@example.org or http://127.0.0.1:8000",
        "judge_key_variable = OPENAI_API_KEY",
        "checkpoint demo/solver/3, evaluation 0123456789abcdef",
        "-" * 100_000,
    ],
)
def test_ordinary_lines_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text
