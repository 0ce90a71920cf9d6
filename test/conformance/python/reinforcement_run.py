"""The Python cookbook's loops by reward on given problems, with given seeds, from given weights; prints metrics by step."""

import asyncio
import contextvars
import json
import os
import sys
import time
import warnings

warnings.simplefilter("ignore")
from transformers import AutoTokenizer

# Without PyTorch a stand-in will do, which transformers must not see.
sys.path.append(os.path.join(os.path.dirname(__file__), "shims"))
import chz
import tinker
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl import train
from tinker_cookbook.rl.problem_env import ProblemEnv
from tinker_cookbook.rl.types import EnvGroupBuilder, RLDataset, RLDatasetBuilder

from download_tokenizer import download_tokenizer

MODEL = os.environ["MODEL"]
SETTINGS = json.loads(os.environ["SETTINGS"])
GROUPS = SETTINGS["groupsPerBatch"]

download_tokenizer(MODEL)
renderer = get_renderer(SETTINGS["renderer"], AutoTokenizer.from_pretrained(MODEL))

# Upstream draws without seeds. Each episode runs in a task of its own, which knows its seed from its first observation on.
seed = contextvars.ContextVar("seed")
sample_async = tinker.SamplingClient.sample_async


async def sample_with_seed(self, prompt, num_samples, sampling_params, *rest, **others):
    seeded = sampling_params.model_copy(update={"seed": seed.get()})
    return await sample_async(self, prompt, num_samples, seeded, *rest, **others)


tinker.SamplingClient.sample_async = sample_with_seed


class Sum(ProblemEnv):
    def __init__(self, problem, own_seed):
        super().__init__(renderer)
        self.problem, self.own_seed = problem, own_seed

    async def initial_observation(self):
        seed.set(self.own_seed)
        return await super().initial_observation()

    def get_question(self):
        return self.problem["prompt"]

    def check_answer(self, text):
        return text == self.problem["answer"]

    def check_format(self, text):
        return True

    def get_reference_answer(self):
        return self.problem["answer"]


class Sums(EnvGroupBuilder):
    def __init__(self, problem, seeds):
        self.problem, self.seeds = problem, seeds

    async def make_envs(self):
        return [Sum(self.problem, own_seed) for own_seed in self.seeds]

    def logging_tags(self):
        return ["sums"]


class Problems(RLDataset):
    def __len__(self):
        return len(SETTINGS["problems"]) // GROUPS

    def get_batch(self, index):
        pairs = list(zip(SETTINGS["problems"], SETTINGS["seeds"]))
        return [Sums(*pair) for pair in pairs[index * GROUPS : (index + 1) * GROUPS]]


@chz.chz
class Builder(RLDatasetBuilder):
    async def __call__(self):
        return Problems(), None


MODES = {
    "synchronous": {},
    "streamed": {
        "stream_minibatch_config": train.StreamMinibatchConfig(
            groups_per_batch=GROUPS, num_minibatches=SETTINGS["minibatches"]
        )
    },
    "asynchronous": {
        "async_config": train.AsyncConfig(max_steps_off_policy=SETTINGS["maxStepsOffPolicy"], groups_per_batch=GROUPS)
    },
}
config = train.Config(
    log_path="run",
    model_name=MODEL,
    recipe_name="conformance",
    renderer_name=SETTINGS["renderer"],
    dataset_builder=Builder(),
    load_checkpoint_path=SETTINGS["startFrom"],
    learning_rate=SETTINGS["learningRate"],
    max_tokens=SETTINGS["maxTokens"],
    lora_rank=SETTINGS["rank"],
    loss_fn=SETTINGS["loss"],
    num_substeps=SETTINGS["substeps"],
    save_every=SETTINGS["saveEvery"],
    eval_every=0,
    **MODES[SETTINGS["mode"]],
)
started = time.monotonic()
asyncio.run(train.main(config))
seconds = time.monotonic() - started


def lines(name):
    with open(f"run/{name}.jsonl") as file:
        return [json.loads(line) for line in file]


print("\n" + json.dumps({"metrics": lines("metrics"), "checkpoints": lines("checkpoints"), "seconds": seconds}))
sys.stdout.flush()
# The package leaves threads behind that nothing ends.
os._exit(0)
