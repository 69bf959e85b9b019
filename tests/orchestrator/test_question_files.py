"""Files of questions as the Hugging Face hub has them: formats, columns, what counts as a true answer, and small files
that would fill the memory."""

from __future__ import annotations

import bz2
import gzip
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from core.settings.config import SelfTraining
from core.settings.parsing import parse_config
from orchestrator.question_sets import rows as question_rows
from orchestrator.question_sets.benchmarks import BenchmarkError, load_benchmark
from orchestrator.question_sets.parquet import parquet_batches
from orchestrator.question_sets.prompts import GivenPrompt, PromptsError, read_prompts

QUESTION = "What is 1/10?"
Row = dict[str, Any]


def read(file: Path, question: str = "problem", answer: str | None = "answer") -> list[GivenPrompt]:
    tree = {"prompts": {"file": str(file), "question": question, "answer": answer}}
    config = parse_config({**tree, "solver": {"reward": {"type": "ttrl"}}}, "a test")
    assert isinstance(config, SelfTraining)
    return read_prompts(config, config.prompts)


def lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def stream(rows: list[Row]) -> bytes:
    table, sink = pa.Table.from_pylist(rows), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def written(write: Callable[[pa.Table, Any], object], rows: list[Row] | pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    write(pa.Table.from_pylist(rows) if isinstance(rows, list) else rows, sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.jsonl", lines),
        ("p.jsonl", lambda rows: b"\xef\xbb\xbf" + lines(rows)),
        ("p.JSONL", lambda rows: lines(rows).replace(b"\n", b"\r\n")),
        ("p.ndjson", lines),
        ("p.json", lines),
        ("p.json", lambda rows: json.dumps(rows, indent=1).encode()),
        ("p.json", lambda rows: b"\xef\xbb\xbf \n" + json.dumps(rows).encode()),
        ("p.jsonl.gz", lambda rows: gzip.compress(lines(rows))),
        ("P.JSONL.GZ", lambda rows: gzip.compress(b"\xef\xbb\xbf" + lines(rows))),
        ("p.json.bz2", lambda rows: bz2.compress(lines(rows))),
        ("p.jsonl.zst", lambda rows: pa.Codec("zstd").compress(lines(rows), asbytes=True)),
        ("p.parquet", lambda rows: written(pq.write_table, rows)),
        ("P.PARQUET", lambda rows: written(pq.write_table, rows)),
        ("P.Csv", lambda rows: b"\xef\xbb\xbf" + written(pa.csv.write_csv, rows)),
        ("p.csv.gz", lambda rows: gzip.compress(written(pa.csv.write_csv, rows))),
        ("p.arrow", stream),
        ("p.arrow", lambda rows: written(pa.feather.write_feather, rows)),
    ],
)
def test_every_format_gives_the_same_prompts(name: str, content: Callable[[list[Row]], bytes], tmp_path: Path) -> None:
    rows = [{"problem": QUESTION, "answer": "0.1"}, {"problem": "Größe?", "answer": "x + 1"}]
    (tmp_path / name).write_bytes(content(rows))
    expected = [GivenPrompt(QUESTION, "0.1"), GivenPrompt("Größe?", "x + 1")]
    assert read(tmp_path / name) == expected
    items = load_benchmark(str(tmp_path / name))
    assert [GivenPrompt(item.problem, item.answer) for item in items] == expected


@pytest.mark.parametrize("ending", ["arrow", "parquet"])
def test_a_saved_split_is_read_shard_after_shard(ending: str, tmp_path: Path) -> None:
    for number in (1, 0):
        rows = [{"problem": f"What is {number}?", "answer": number}]
        content = stream(rows) if ending == "arrow" else written(pq.write_table, rows)
        (tmp_path / f"data-0000{number}-of-00002.{ending}").write_bytes(content)
    (tmp_path / "state.json").write_text("{}")
    assert read(tmp_path) == [GivenPrompt("What is 0?", "0"), GivenPrompt("What is 1?", "1")]
    assert len(load_benchmark(str(tmp_path))) == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", b'{"problem": "?"}'),
        ("p", b'{"problem": "?"}'),
        ("p.parquet.gz", b""),
        ("p.jsonl.xz", b""),
        ("p.jsonl.gz", b"not gzip"),
        ("p.arrow", b"not Arrow"),
        ("p.jsonl", "Größe".encode("utf-16")),
        ("split/dataset_dict.json", b"{}"),
        ("p.csv", b"problem,answer,answer\n?1,5,6\n"),
        ("p.parquet", written(pq.write_table, pa.Table.from_arrays([["?1"], ["5"]], ["problem", "problem"]))),
    ],
)
def test_a_file_that_is_not_read_is_named(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_bytes(content)
    path = tmp_path / name.partition("/")[0]
    with pytest.raises(PromptsError, match=rf"prompts {path}(, line 1)?: "):
        read(path)


def test_a_small_compressed_file_of_one_long_line_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_rows, "_LONGEST_LINE", 1_000)
    (tmp_path / "p.jsonl.gz").write_bytes(gzip.compress(b'{"problem": "' + b"x" * 10_000))
    with pytest.raises(PromptsError, match=r"p\.jsonl\.gz: cannot be read: line 1 has 1,000 characters or more"):
        read(tmp_path / "p.jsonl.gz")


NO_REPLY = {"role": "assistant", "content": None}


def user(content: Any) -> Row:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("row", "question", "answer", "expected"),
    [
        (  # DAPO-Math-17k
            {"prompt": [user(QUESTION)], "reward_model": {"ground_truth": "0.1", "style": "rule"}},
            "prompt",
            "reward_model.ground_truth",
            GivenPrompt(QUESTION, "0.1"),
        ),
        ({"prompt": [{"role": "system", "content": "Think."}, user("?1")]}, "prompt", None, GivenPrompt("?1", None)),
        ({"m": [user("?1"), {"role": "assistant", "content": "7"}]}, "m", None, GivenPrompt("?1", None)),
        ({"c": [{"from": "human", "value": "?1"}, {"from": "gpt", "value": "7"}]}, "c", None, GivenPrompt("?1", None)),
        ({"m": [user([{"type": "text", "text": "?1"}])]}, "m", None, GivenPrompt("?1", None)),
        ({"m": {"role": ["user"], "content": ["?1"]}}, "m", None, GivenPrompt("?1", None)),
        ({"x": {"y": {"z": "?1"}, "a": 7}}, "x.y.z", "x.a", GivenPrompt("?1", "7")),
        ({"x.y": "?1", "x": {"y": "?2"}}, "x.y", None, GivenPrompt("?1", None)),
        ({"p": "?1", "a": ["0", "1"]}, "p", "a", GivenPrompt("?1", "0, 1")),
        ({"p": "?1", "a": ["$x=1$"]}, "p", "a", GivenPrompt("?1", "$x=1$")),
        ({"p": "?1", "a": [1, 2.5]}, "p", "a", GivenPrompt("?1", "1, 2.5")),
        ({"p": "?1", "a": r"\infty"}, "p", "a", GivenPrompt("?1", r"\infty")),
        ({"p": "?1", "a": "None of these"}, "p", "a", GivenPrompt("?1", "None of these")),
        ({"p": "?1", "a": "Na"}, "p", "a", GivenPrompt("?1", "Na")),
        ({"p": "?1", "a": "<"}, "p", "a", GivenPrompt("?1", "<")),
        ({"p": "?1", "a": "He sold 48/2=<<48/2=24>>24\n#### 1,072"}, "p", "a", GivenPrompt("?1", "1,072")),  # GSM8K
        ({"p": "?1", "a": r"So $x=\boxed{\frac12}$."}, "p", "a", GivenPrompt("?1", r"\frac12")),  # MATH
        ({"p": "?1", "a": "#### End\n\\boxed{5}"}, "p", "a", GivenPrompt("?1", "5")),
        ({"p": "?1", "a": r'["\\frac{3}{4}"]'}, "p", "a", GivenPrompt("?1", r"\frac{3}{4}")),  # Skywork-OR1
        ({"p": "?1", "a": "[1, 2]"}, "p", "a", GivenPrompt("?1", "[1, 2]")),
        ({"p": "?1", "m": '{"ground_truth": "7"}'}, "p", "m.ground_truth", GivenPrompt("?1", "7")),
        ({"m": '[{"role": "user", "content": "?1"}]'}, "m", None, GivenPrompt("?1", None)),
        ({"m": user("?1")}, "m", None, GivenPrompt("?1", None)),
        ({"m": [{"role": "User", "content": ["?1"]}]}, "m", None, GivenPrompt("?1", None)),
        ({"m": [{"from": "human", "value": "?1", "role": None}, NO_REPLY]}, "m", None, GivenPrompt("?1", None)),
        # Lone surrogates, which JSON has as escapes, are replaced: models and the store get well-formed texts.
        ({"p": "?1\ud83d", "a": ["2 \ud83d"]}, "p", "a", GivenPrompt("?1\ufffd", "2 \ufffd")),
    ],
)
def test_columns_as_the_hub_has_them(
    row: Row, question: str, answer: str | None, expected: GivenPrompt, tmp_path: Path
) -> None:
    (tmp_path / "p.jsonl").write_bytes(lines([row]))
    assert read(tmp_path / "p.jsonl", question, answer) == [expected]
    if all(not isinstance(value, list) or isinstance(value[0], dict) for value in row.values()):
        (tmp_path / "p.parquet").write_bytes(written(pq.write_table, [row]))
        assert read(tmp_path / "p.parquet", question, answer) == [expected]


NO_ANSWERS = [
    *("NaN", "Infinity", "-Infinity", "1e999", "null", "true", '""', '" "', "[]", "{}", "[null]", '["7", NaN]'),
    *('"NA"', '"#N/A"', '"NaT"', '"nil"', '"notfound"', '"?"', '"-"', '"\\u200b"', '"\\u0000"', '["7", "?"]'),
    *('[["7"]]', '"5 ####"', '"nan"', '"NaN"', '"None"', '"null"', '"NULL"', '"Infinity"', '"-inf"', '"N/A"', '"<NA>"'),
    '" none "',
]


@pytest.mark.parametrize("answer", NO_ANSWERS)
def test_what_is_no_answer_is_refused_with_line_and_column(answer: str, tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(f'{{"problem": "?1", "answer": "7"}}\n{{"problem": "?2", "answer": {answer}}}\n')
    with pytest.raises(PromptsError, match=r"p\.jsonl, line 2: column 'answer': "):
        read(file)
    with pytest.raises(BenchmarkError, match=r"p\.jsonl, line 2: column 'answer': "):
        load_benchmark(str(file))


@pytest.mark.parametrize(
    "value",
    [
        [user("?1"), {"role": "assistant", "content": "7"}, user("?2")],
        [{"role": "assistant", "content": "7"}],
        [],
        ["?1"],
        [user([{"type": "image", "url": "x"}])],
        [user(None)],
        "[{'role': 'user', 'content': '?1'}]",
        '[{"role": "user", "content": "?1"}',
        "\u200b",
        float("nan"),
        float("inf"),
        {"ground_truth": "7"},
    ],
)
def test_what_is_no_question_is_refused_with_line_and_column(value: Any, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(lines([{"prompt": value}]))
    with pytest.raises(PromptsError, match=r"p\.jsonl, line 1: column 'prompt': "):
        read(tmp_path / "p.jsonl", "prompt", None)


@pytest.mark.parametrize("option", [None, float("nan"), {"text": "4"}, "\u200b"])
def test_what_is_no_option_is_refused_with_line_and_column(option: Any, tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_bytes(lines([{"problem": "?1", "options": ["3", option], "answer": "A"}]))
    (tmp_path / "p.toml").write_text('title = "t"\nsource = "s"\nanswers = "choice"\ncolumns = {options = "options"}\n')
    with pytest.raises(BenchmarkError, match=r"p\.jsonl, line 1: column 'options': "):
        load_benchmark(str(tmp_path / "p.toml"))


def test_a_missing_id_and_level_may_be_written_as_nan(tmp_path: Path) -> None:
    row = {"problem": "?1", "answer": "7", "id": float("nan"), "level": float("nan")}
    (tmp_path / "p.jsonl").write_bytes(lines([row, row]))
    items = load_benchmark(str(tmp_path / "p.jsonl"))
    assert [(item.id, item.level) for item in items] == [("p/00000", None), ("p/00001", None)]


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_float_has_no_digits_that_its_file_does_not_have(kind: pa.DataType, ending: str, tmp_path: Path) -> None:
    truths = pa.array([{"a": 0.1, "b": [0.3]}], pa.struct([("a", kind), ("b", pa.list_(kind))]))
    named = pa.array([[("c", 0.7)]], pa.map_(pa.string(), kind))
    table = pa.table({"problem": ["?1"], "answer": pa.array([0.1], kind), "truth": truths, "named": named})
    file = tmp_path / f"p.{ending}"
    if ending == "parquet":
        pq.write_table(table, file)
    else:
        pa.feather.write_feather(table, file)
    columns = ("answer", "truth.a", "truth.b", "named.c")
    answers = [prompt.answer for column in columns for prompt in read(file, answer=column)]
    assert answers == ["0.1", "0.1", "0.3", "0.7"]
    assert [item.answer for item in load_benchmark(str(file))] == ["0.1"]


TEXT = "x" * (1 << 22)
READ = "import resource, sys; from pathlib import Path; from orchestrator.question_sets.parquet import parquet_batches"
READ += "\nbefore = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss"
READ += "\ntry: next(parquet_batches(Path(sys.argv[1]))).to_pylist()"
READ += "\nexcept Exception as error: print(type(error).__name__)"
READ += "\nprint(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)"


@pytest.mark.parametrize("as_dictionary", [True, False])
def test_a_small_file_with_long_texts_is_refused_before_it_is_in_memory(as_dictionary: bool, tmp_path: Path) -> None:
    """Of 64 rows with 4 MiB each, the first one alone took 700 MB."""
    file = tmp_path / "p.parquet"
    table = pa.table({"problem": [TEXT] * 64})
    pq.write_table(table, file, compression="zstd", use_dictionary=as_dictionary)
    assert file.stat().st_size < 100_000
    ended = subprocess.run([sys.executable, "-c", READ, str(file)], capture_output=True, text=True, check=True)
    error, kilobytes = ended.stdout.split()
    assert error == "ArrowInvalid"
    assert int(kilobytes) < 100_000


def test_a_list_with_too_many_values_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "p.parquet"
    pq.write_table(pa.table({"problem": [[1] * 20_000] * 4}), file)
    with pytest.raises(pa.ArrowInvalid):
        next(parquet_batches(file)).to_pylist()


def test_ordinary_rows_are_as_they_were_written(tmp_path: Path) -> None:
    """Repeated texts, lists of messages, missing values, and texts so long that few fit into a part."""
    messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
    rows = [
        {
            "problem": f"{index % 3}" * (1 + 200_000 * (index % 50 == 0)),
            "messages": messages,
            "level": index % 5 or None,
        }
        for index in range(600)
    ]
    for compression in ("snappy", "zstd", "none"):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet", compression=compression, row_group_size=250)
        assert [row for batch in parquet_batches(tmp_path / "p.parquet") for row in batch.to_pylist()] == rows
