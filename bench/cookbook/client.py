"""The Python cookbook on the rows of bench/cookbook.mjs: `render ROWS` or `train ROWS FOLDER`; prints JSON last."""

import asyncio
import json
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
from transformers import AutoTokenizer

# Without PyTorch a stand-in will do, which transformers must not see.
sys.path.append(os.environ["SHIMS"])
from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from tinker_cookbook.supervised import train
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.supervised.types import SupervisedDataset

MODEL = "tinkerts/nano"
RENDERER = "qwen3_instruct"
SETTINGS = json.loads(os.environ["SETTINGS"])


class Rows(SupervisedDataset):
    def __init__(self, rows, renderer):
        self.rows, self.renderer = rows, renderer

    def __len__(self):
        return len(self.rows) // SETTINGS["batchSize"]

    def set_epoch(self, seed=0):
        pass

    def get_batch(self, index):
        size = SETTINGS["batchSize"]
        return [self.datum(row) for row in self.rows[index * size : (index + 1) * size]]

    def datum(self, row):
        return conversation_to_datum(row["messages"], self.renderer, SETTINGS["maxLength"], TrainOnWhat.ALL_ASSISTANT_MESSAGES)


def main(what, file, folder=""):
    with open(file) as lines:
        rows = [json.loads(line) for line in lines]
    renderer = get_renderer(RENDERER, AutoTokenizer.from_pretrained(MODEL))
    held_out = SETTINGS["testSize"]
    data = Rows(rows[held_out:], renderer)
    if what == "render":
        best = float("inf")
        for _ in range(SETTINGS["rounds"]):
            began = time.perf_counter()
            tokens = sum(data.datum(row).model_input.length for row in rows)
            best = min(best, time.perf_counter() - began)
        return {"rowsPerSecond": len(rows) / best, "tokens": tokens}
    test = Rows(rows[:held_out], renderer)
    config = train.Config(
        log_path=folder,
        model_name=MODEL,
        recipe_name="bench",
        renderer_name=RENDERER,
        dataset_builder=lambda: (data, test),
        learning_rate=1e-3,
        num_epochs=SETTINGS["epochs"],
        lora_rank=SETTINGS["rank"],
        eval_every=SETTINGS["evaluateEvery"],
        save_every=SETTINGS["saveEvery"],
    )
    began = time.perf_counter()
    asyncio.run(train.main(config))
    seconds = time.perf_counter() - began
    with open(f"{folder}/metrics.jsonl") as lines:
        losses = [json.loads(line)["train_mean_nll"] for line in lines]
    return {"seconds": seconds, "losses": losses}


print("\n" + json.dumps(main(*sys.argv[1:])))
sys.stdout.flush()
os._exit(0)
