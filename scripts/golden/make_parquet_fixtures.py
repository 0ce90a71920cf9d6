"""Parquet files for test/cookbook, as pyarrow writes them: pip install pyarrow, then
npm run generate:golden:parquet
"""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)


def chat(number):
    """A row whose structs are filled with nulls, as tables have it."""
    return {
        "id": number,
        "messages": [
            {"role": "user", "content": f"What is {number} + 1? é 😀", "tool_calls": None},
            {
                "role": "assistant",
                "content": None if number % 2 else f"{number + 1}",
                "tool_calls": [{"id": f"c{number}", "function": {"name": "add", "arguments": '{"a": 1.0}'}}]
                if number % 2
                else [],
            },
        ],
        "tools": '[{"type": "function", "function": {"name": "add", "parameters": {"2": 1.0, "1": 2}}}]'
        if number % 2
        else None,
    }


table = pa.Table.from_pylist([chat(number) for number in range(40)])
for compression in ["none", "snappy", "gzip", "zstd", "brotli", "lz4"]:
    pq.write_table(table, folder / f"chats-{compression}.parquet", compression=compression, row_group_size=16)
pairs = pa.table({"prompt": ["1+1=", "2+2="], "completion": ["2", None], "score": [0.5, 1.0]})
pq.write_table(pairs, folder / "pairs.parquet")
pq.write_table(pa.table({"text": ["a"], "label": [1]}), folder / "no-messages.parquet")
