"""Small Parquet files that stand for much: they are refused before they fill the memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.question_sets.parquet import parquet_batches

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
