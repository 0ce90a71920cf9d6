"""The Python cookbook's supervised loop on rows in a given order, from given weights; prints its metrics by step."""

import asyncio
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")
from transformers import AutoTokenizer

# Without PyTorch a stand-in will do, which transformers must not see.
sys.path.append(os.path.join(os.path.dirname(__file__), "shims"))
from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from tinker_cookbook.supervised import nll_evaluator, train
from tinker_cookbook.supervised.data import conversation_to_datum
from tinker_cookbook.supervised.types import SupervisedDataset

from download_tokenizer import download_tokenizer

MODEL = os.environ["MODEL"]
SETTINGS = json.loads(os.environ["SETTINGS"])


def mean_nll(logprobs, weights):
    """Upstream's formula in double precision, token by token: PyTorch's float32 sums have other last digits."""
    total = counted = 0.0
    for some, their in zip(logprobs, weights):
        for logprob, weight in zip(some.data, their.data):
            counted += float(weight)
            if weight != 0:
                total += float(logprob) * float(weight)
    return -total / counted


class Rows(SupervisedDataset):
    def __init__(self, rows, size, renderer):
        self.rows, self.size, self.renderer = rows, size, renderer

    def __len__(self):
        return len(self.rows) // self.size

    def set_epoch(self, seed=0):
        pass

    def get_batch(self, index):
        rows = self.rows[index * self.size : (index + 1) * self.size]
        mode = TrainOnWhat.ALL_ASSISTANT_MESSAGES
        return [conversation_to_datum(row["messages"], self.renderer, SETTINGS["maxLength"], mode) for row in rows]


download_tokenizer(MODEL)
train.compute_mean_nll = nll_evaluator.compute_mean_nll = mean_nll
renderer = get_renderer(SETTINGS["renderer"], AutoTokenizer.from_pretrained(MODEL))
data = Rows(SETTINGS["rows"], SETTINGS["batchSize"], renderer)
test = Rows(SETTINGS["testRows"], len(SETTINGS["testRows"]), renderer)
config = train.Config(
    log_path="run",
    model_name=MODEL,
    recipe_name="conformance",
    renderer_name=SETTINGS["renderer"],
    load_checkpoint_path=SETTINGS["startFrom"],
    dataset_builder=lambda: (data, test),
    learning_rate=SETTINGS["learningRate"],
    lr_schedule=SETTINGS["schedule"],
    eval_every=SETTINGS["evaluateEvery"],
    save_every=SETTINGS["saveEvery"],
    lora_rank=SETTINGS["rank"],
)
asyncio.run(train.main(config))
with open("run/metrics.jsonl") as lines:
    print("\n" + json.dumps([json.loads(line) for line in lines]))
sys.stdout.flush()
# The package leaves threads behind that nothing ends.
os._exit(0)
