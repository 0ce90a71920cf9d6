"""The Python cookbook's off-policy distillation on rows in a given order, from given weights; prints its metrics by step."""

import asyncio
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")
from transformers import AutoTokenizer

# Without PyTorch a stand-in will do, which transformers must not see.
sys.path.append(os.path.join(os.path.dirname(__file__), "shims"))
from tinker_cookbook.distillation import train_off_policy
from tinker_cookbook.distillation.datasets import TeacherConfig
from tinker_cookbook.renderers import TrainOnWhat, get_renderer
from tinker_cookbook.supervised.data import conversation_to_datum

from download_tokenizer import download_tokenizer

MODEL = os.environ["MODEL"]
SETTINGS = json.loads(os.environ["SETTINGS"])


class Rows:
    def __init__(self, renderer):
        self.renderer = renderer

    def __len__(self):
        return len(SETTINGS["batches"])

    def get_batch(self, index):
        mode = TrainOnWhat.ALL_ASSISTANT_MESSAGES
        return [conversation_to_datum(row["messages"], self.renderer, None, mode) for row in SETTINGS["batches"][index]]


download_tokenizer(MODEL)
rows = Rows(get_renderer(SETTINGS["renderer"], AutoTokenizer.from_pretrained(MODEL)))
teacher = TeacherConfig(base_model=MODEL, load_checkpoint_path=SETTINGS["teacher"])
config = train_off_policy.Config(
    learning_rate=SETTINGS["learningRate"],
    dataset_configs=[train_off_policy.DatasetWithTeacher(dataset_builder=lambda: (rows, None), teacher_config=teacher)],
    model_name=MODEL,
    recipe_name="conformance",
    renderer_name=SETTINGS["renderer"],
    n_teacher_targets=SETTINGS["topk"],
    batch_size=SETTINGS["batchSize"],
    load_checkpoint_path=SETTINGS["startFrom"],
    log_path="theirs",
)
asyncio.run(train_off_policy.main(config))
with open("theirs/metrics.jsonl") as lines:
    print("\n" + json.dumps([json.loads(line) for line in lines]))
sys.stdout.flush()
# The package leaves threads behind that nothing ends.
os._exit(0)
