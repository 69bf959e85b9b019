"""A benchmark that is not on this machine is fetched from the hub, here a fake one, once and whole."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.types import BenchmarkItem
from orchestrator.installation.home import refuse_open
from orchestrator.question_sets import hub
from orchestrator.question_sets.benchmarks import BenchmarkError, load_benchmark
from tests.fake_clock import fake_clock
from tests.http_server import Handler, listening


def parquet(question: str = "1 + 1?", answer: str = "#### 2") -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([{"question": question, "answer": answer}]), file)
    return file.getvalue()


@contextmanager
def hub_that_answers(
    monkeypatch: pytest.MonkeyPatch, *statuses: int, content: bytes | None = None, length: int | None = None
) -> Iterator[list[tuple[str, str | None]]]:
    """A hub that answers with these statuses in turn, and says that its answers have `length` bytes; yields the paths
    and the authorizations of its requests."""
    requests, left, body = list[tuple[str, str | None]](), list(statuses), content or parquet()

    class Hub(Handler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers["Authorization"]))
            self.send_response(left.pop(0))
            self.send_header("Content-Length", str(length or len(body)))
            self.end_headers()
            self.wfile.write(body)

    with listening(Hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield requests


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVO_BENCHMARKS", str(tmp_path / "benchmarks"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    return tmp_path / "benchmarks"


def test_a_benchmark_is_fetched_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with hub_that_answers(monkeypatch, 200, content=parquet(answer="one and one\n#### 2")) as requests:
        for _ in range(2):
            assert load_benchmark("gsm8k") == [BenchmarkItem("gsm8k/00000", "1 + 1?", "2")]
    assert requests == [("/api/datasets/openai/gsm8k/parquet/main/test/0.parquet", "Bearer secret")]
    assert [path.name for path in folder.iterdir()] == ["gsm8k.parquet"]


@pytest.mark.parametrize(("status", "words"), [(404, "HTTP 404 for Idavidrein/gpqa"), (403, "accept its terms")])
def test_a_refusal_says_what_to_put_where(
    folder: Path, monkeypatch: pytest.MonkeyPatch, status: int, words: str
) -> None:
    with hub_that_answers(monkeypatch, status), pytest.raises(BenchmarkError) as error:
        load_benchmark("gpqa_diamond")
    for part in (words, f"{folder}/gpqa_diamond", "'Incorrect Answer 1'"):
        assert part in str(error.value)
    assert [*folder.iterdir()] == []


def test_a_hub_that_is_busy_is_asked_again_a_few_times(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_clock(monkeypatch)
    with hub_that_answers(monkeypatch, 503, 429, 200, 500, 500, 500) as requests:
        assert len(load_benchmark("gsm8k")) == 1
        with pytest.raises(BenchmarkError, match="500"):
            load_benchmark("math500")
    assert len(requests) == 6
    assert sorted(path.name for path in folder.iterdir()) == ["gsm8k.parquet"]


def test_a_transfer_that_breaks_off_or_is_too_large_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hub_that_answers(monkeypatch, *[200] * 9, content=b"half", length=100):
        with pytest.raises(BenchmarkError, match="gsm8k"):
            load_benchmark("gsm8k")
        monkeypatch.setattr(hub, "_LARGEST", 3)
        with pytest.raises(BenchmarkError, match="3 bytes"):
            load_benchmark("gsm8k")
    assert [*folder.iterdir()] == []


def test_without_a_network_the_message_names_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(BenchmarkError, match=r"http://127\.0\.0\.1:1"):
        load_benchmark("math500")


def test_a_home_that_a_benchmark_is_fetched_into_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`coevo check --run` may be the first to fetch one; `coevo up` refuses a home that others may enter."""
    monkeypatch.delenv("COEVO_BENCHMARKS", raising=False)
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))
    with hub_that_answers(monkeypatch, 200):
        load_benchmark("gsm8k")
    assert (tmp_path / "home" / "benchmarks" / "gsm8k.parquet").is_file()
    refuse_open(tmp_path / "home")
