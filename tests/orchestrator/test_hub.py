"""A benchmark that is not on this machine is fetched from the hub, here a fake one, once and whole."""

from __future__ import annotations

import io
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


def parquet(rows: list[dict]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COEVO_BENCHMARKS", str(tmp_path / "benchmarks"))
    monkeypatch.setenv("HF_TOKEN", "secret")
    return tmp_path / "benchmarks"


def test_a_benchmark_is_fetched_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = []

    class Hub(Handler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers["Authorization"]))
            self.answer(200, parquet([{"question": "1 + 1?", "answer": "one and one\n#### 2"}]))

    with listening(Hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        for _ in range(2):
            assert load_benchmark("gsm8k") == [BenchmarkItem("gsm8k/00000", "1 + 1?", "2")]
    assert requests == [("/api/datasets/openai/gsm8k/parquet/main/test/0.parquet", "Bearer secret")]
    assert [path.name for path in folder.iterdir()] == ["gsm8k.parquet"]


@pytest.mark.parametrize(
    ("status", "words"),
    [(404, "HTTP 404 for Idavidrein/gpqa. Else put it at"), (403, "accept its terms on the hub")],
)
def test_a_refusal_says_what_to_put_where(
    folder: Path, monkeypatch: pytest.MonkeyPatch, status: int, words: str
) -> None:
    class Hub(Handler):
        def do_GET(self) -> None:
            self.answer(status, {})

    with listening(Hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        with pytest.raises(BenchmarkError) as error:
            load_benchmark("gpqa_diamond")
    assert words in str(error.value)
    assert f"{folder}/gpqa_diamond" in str(error.value)
    assert "'Incorrect Answer 1'" in str(error.value)
    assert [*folder.iterdir()] == []


def test_a_hub_that_is_busy_is_asked_again_a_few_times(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, arrivals, answers = fake_clock(monkeypatch), list[float](), [503, 429, 200, 500, 500, 500]

    class Hub(Handler):
        def do_GET(self) -> None:
            arrivals.append(clock.seconds)
            self.answer(answers.pop(0), parquet([{"question": "1 + 1?", "answer": "#### 2"}]))

    with listening(Hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        assert len(load_benchmark("gsm8k")) == 1
        with pytest.raises(BenchmarkError, match="500"):
            load_benchmark("math500")
    assert len(arrivals) == 6
    assert sorted(path.name for path in folder.iterdir()) == ["gsm8k.parquet"]


def test_a_transfer_that_breaks_off_or_is_too_large_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hub(Handler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(b"half")

    with listening(Hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        with pytest.raises(BenchmarkError, match="gsm8k cannot be fetched"):
            load_benchmark("gsm8k")
        monkeypatch.setattr(hub, "_LARGEST", 3)
        with pytest.raises(BenchmarkError, match="larger than 3 bytes"):
            load_benchmark("gsm8k")
    assert [*folder.iterdir()] == []


def test_without_a_network_the_message_names_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(BenchmarkError, match=r"cannot be fetched from http://127\.0\.0\.1:1.*Else put it at"):
        load_benchmark("math500")


def test_a_home_that_a_benchmark_is_fetched_into_is_made_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`coevo check --run` may be the first to fetch one; `coevo up` refuses a home that others may enter."""
    monkeypatch.delenv("COEVO_BENCHMARKS", raising=False)
    monkeypatch.setenv("COEVO_HOME", str(tmp_path / "home"))

    class Hub(Handler):
        def do_GET(self) -> None:
            self.answer(200, parquet([{"question": "1 + 1?", "answer": "#### 2"}]))

    with listening(Hub) as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        load_benchmark("gsm8k")
    assert (tmp_path / "home" / "benchmarks" / "gsm8k.parquet").is_file()
    refuse_open(tmp_path / "home")
