"""Two short runs of the Python cookbook, with sequences up to the end of the model's context."""

import asyncio
import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

import transformers  # noqa: F401

# Without PyTorch a stand-in will do, which transformers must not see.
sys.path.append(os.path.join(os.path.dirname(__file__), "shims"))
import tinker
from tinker_cookbook.recipes.math_rl.arithmetic_env import ArithmeticDatasetBuilder
from tinker_cookbook.rl import train as rl
from tinker_cookbook.supervised import train as supervised
from tinker_cookbook.supervised.data import FromConversationFileBuilder
from tinker_cookbook.supervised.types import ChatDatasetBuilderCommonConfig

from download_tokenizer import download_tokenizer

MODEL = os.environ["MODEL"]
RENDERER = "qwen3_instruct"


def metrics(folder, name):
    with open(f"{folder}/metrics.jsonl") as lines:
        return [row[name] for row in map(json.loads, lines) if name in row]


def context():
    service = tinker.ServiceClient()
    models = service.get_server_capabilities().supported_models
    service.close("success").result()
    return next(model.max_context_length for model in models if model.model_name == MODEL)


def supervise(length):
    """Answers far longer than the context, cut at its end, with an evaluation before every step."""
    with open("conversations.jsonl", "w") as file:
        for row in range(12):
            answer = " ".join(f"{row} + {number} = {row + number}." for number in range(200))
            messages = [{"role": "user", "content": f"Count from {row}."}, {"role": "assistant", "content": answer}]
            file.write(json.dumps({"messages": messages}) + "\n")
    common = ChatDatasetBuilderCommonConfig(
        model_name_for_tokenizer=MODEL, renderer_name=RENDERER, max_length=length, batch_size=4
    )
    asyncio.run(
        supervised.main(
            supervised.Config(
                log_path="supervised",
                model_name=MODEL,
                recipe_name="conformance",
                renderer_name=RENDERER,
                dataset_builder=FromConversationFileBuilder(
                    common_config=common, file_path="conversations.jsonl", test_size=4
                ),
                learning_rate=1e-3,
                num_epochs=2,
                lora_rank=8,
                eval_every=1,
                save_every=2,
            )
        )
    )
    return {"trained": metrics("supervised", "train_mean_nll"), "evaluated": metrics("supervised", "test/nll")}


def reinforce(length):
    asyncio.run(
        rl.main(
            rl.Config(
                log_path="rl",
                model_name=MODEL,
                recipe_name="conformance",
                renderer_name=RENDERER,
                dataset_builder=ArithmeticDatasetBuilder(
                    batch_size=4, model_name_for_tokenizer=MODEL, renderer_name=RENDERER, n_batches=3, group_size=8
                ),
                learning_rate=1e-3,
                lora_rank=8,
                # The question, with the example before it, takes less than the rest.
                max_tokens=length - 64,
                save_every=2,
                eval_every=0,
            )
        )
    )
    return {"rewards": metrics("rl", "env/all/reward/total"), "kl": metrics("rl", "optim/kl_sample_train_v1")}


download_tokenizer(MODEL)
length = context()
print("\n" + json.dumps({"reinforced": reinforce(length), "supervised": supervise(length)}))
sys.stdout.flush()
# The package leaves threads behind that nothing ends.
os._exit(0)
