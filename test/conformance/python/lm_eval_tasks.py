"""lm-eval from its task configurations to its scores, over rows that the test made. Run by harnesses.test.ts."""

import json
import os
from importlib.metadata import version

os.environ["OPENAI_API_KEY"] = os.environ["TINKER_API_KEY"]

import datasets
from lm_eval import simple_evaluate

rows = json.loads(os.environ["ROWS"])
base_url = os.environ["TINKER_BASE_URL"] + "/v1"
settings = {"model": os.environ["MODEL"], "max_length": 512}


def task(name, **config):
    return {
        "task": name,
        "custom_dataset": lambda **_: {"test": datasets.Dataset.from_list(rows)},
        "test_split": "test",
        "doc_to_text": "{{question}}",
        **config,
    }


def generation(name, target):
    return task(
        name,
        output_type="generate_until",
        doc_to_target=target,
        generation_kwargs={"until": ["\n"], "max_gen_toks": 12, "do_sample": False},
        metric_list=[{"metric": "exact_match"}],
    )


def evaluate(model, endpoint, tasks, options, **more):
    return simple_evaluate(
        model=model,
        model_args={**settings, **options, "base_url": f"{base_url}/{endpoint}"},
        tasks=tasks,
        bootstrap_iters=0,
        **more,
    )


choice = task(
    "choice",
    output_type="multiple_choice",
    doc_to_choice="{{choices}}",
    doc_to_target="{{answer}}",
    metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}],
)
rolling = task(
    "rolling",
    output_type="loglikelihood_rolling",
    doc_to_target="{{question}}",
    metric_list=[{"metric": "bits_per_byte"}],
) | {"doc_to_text": ""}
texts = evaluate(
    "local-completions",
    "completions",
    [choice, rolling, generation("generation", "{{' ' + choices[answer]}}")],
    # Without a tokenizer's name the server's own is asked for.
    {"auth_token": os.environ["TINKER_API_KEY"], "batch_size": 4},
)
chats = evaluate(
    "local-chat-completions", "chat/completions", [generation("chat", "{{choices[answer]}}")], {}, apply_chat_template=True
)
results = {**texts["results"], **chats["results"]}
samples = {**texts["samples"], **chats["samples"]}
print(
    json.dumps(
        {
            "version": version("lm-eval"),
            "scores": {
                name: {key.split(",")[0]: value for key, value in found.items() if isinstance(value, (int, float))}
                for name, found in results.items()
            },
            "answers": {
                name: [sample["filtered_resps"] for sample in sorted(found, key=lambda each: each["doc_id"])]
                for name, found in samples.items()
            },
        }
    )
)
