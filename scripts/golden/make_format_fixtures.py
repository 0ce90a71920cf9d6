"""The same conversations as people's tools write them, for src/cookbook/data: pip install pandas datasets, then
npm run generate:golden:formats
"""

import json
import sys
from pathlib import Path

import pandas as pd
from datasets import Dataset

folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)

PAIRS = [
    ("What is 12 + 7?", "19"),
    ('Say "hello", please', 'He said: "hello"'),
    ("Two lines:\nfirst;\tsecond", "Yes,\nboth.\n\nAnd a blank one"),
    ("Größe? 😀", "Zwölf é"),
    ("a,b;c|d", "e\\n is no line break; 'quoted'"),
    ("Null or None?", "null"),
]
messages = [
    {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]} for prompt, answer in PAIRS
]
pairs = pd.DataFrame(PAIRS, columns=["prompt", "completion"])
questions = pd.DataFrame(PAIRS, columns=["question", "answer"])
alpaca = pd.DataFrame([(prompt, "", answer) for prompt, answer in PAIRS], columns=["instruction", "input", "output"])
turns = [
    {"conversations": [{"from": "human", "value": prompt}, {"from": "gpt", "value": answer}]} for prompt, answer in PAIRS
]
trl = [
    {"prompt": [{"role": "user", "content": prompt}], "completion": [{"role": "assistant", "content": answer}]}
    for prompt, answer in PAIRS
]


def lines(name, rows):
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / name).write_text(text, encoding="utf-8")


pairs.to_csv(folder / "pandas.csv", index=False)
pairs.to_csv(folder / "pandas-excel.csv", sep=";", encoding="utf-8-sig", lineterminator="\r\n")
pairs.to_csv(folder / "pandas.tsv", sep="\t", index=False)
pairs.to_csv(folder / "pandas.csv.gz", index=False, compression={"method": "gzip", "mtime": 1})
pairs.to_json(folder / "pandas-records.json", orient="records")
questions.to_json(folder / "pandas-lines.jsonl", orient="records", lines=True, force_ascii=False)
alpaca.to_json(folder / "pandas-alpaca.json", orient="records", indent=2)
questions.to_parquet(folder / "pandas.parquet")
Dataset.from_list(messages).to_parquet(folder / "datasets-messages.parquet")
Dataset.from_list(messages).to_json(folder / "datasets-messages.jsonl")
Dataset.from_list(turns).to_json(folder / "datasets-sharegpt.jsonl", force_ascii=False)
Dataset.from_list(trl).to_parquet(folder / "datasets-trl.parquet")
Dataset.from_pandas(alpaca).to_csv(folder / "datasets-alpaca.csv")
(folder / "axolotl-sharegpt.json").write_text(json.dumps(turns, indent=2))
lines("openai.jsonl", messages)

# With tools, as OpenAI's and LLaMA-Factory's documentation have them.
tool = {
    "name": "get_weather",
    "description": "Weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
call = {"name": "get_weather", "arguments": {"city": "Zürich"}}
lines(
    "openai-tools.jsonl",
    [
        {
            "messages": [
                {"role": "system", "content": "Use the tool."},
                {"role": "user", "content": "Weather in Zürich?"},
                {
                    "role": "assistant",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "get_weather", "arguments": json.dumps(call["arguments"], ensure_ascii=False)},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
                {"role": "assistant", "content": "Sunny."},
                {"role": "user", "content": "Thanks"},
                {"role": "assistant", "content": "Welcome!", "weight": 0},
            ],
            "parallel_tool_calls": False,
            "tools": [{"type": "function", "function": tool}],
        }
    ],
)
factory = [
    {
        "conversations": [
            {"from": "human", "value": "Weather in Zürich?"},
            {"from": "function_call", "value": json.dumps(call, ensure_ascii=False)},
            {"from": "observation", "value": "sunny"},
            {"from": "gpt", "value": "Sunny."},
            {"from": "human", "value": "Thanks"},
            {"from": "gpt", "value": "Welcome!", "weight": 0},
        ],
        "system": "Use the tool.",
        "tools": json.dumps([tool]),
    }
]
(folder / "llama-factory-tools.json").write_text(json.dumps(factory, indent=2, ensure_ascii=False), encoding="utf-8")
