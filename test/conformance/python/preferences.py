"""The Python cookbook's preferences as a judge: one JSON command a line in, one JSON answer a line out. Run by preferences.test.ts."""

import asyncio
import logging
import os
import sys
import tempfile
import types
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")

# Before the stand-ins: it would take them for the real packages.
from transformers import PreTrainedTokenizerFast

from character_tokenizer import SHIMS, CharacterTokenizer
from serve import serve

# Behind everything else: real ones are taken where they are installed.
sys.path.append(SHIMS)

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.preference import train_dpo
from tinker_cookbook.preference.dpo_datasets import DPODatasetBuilderFromComparisons
from tinker_cookbook.preference.types import Comparison, ComparisonRendererFromChatRenderer, LabeledComparison
from tinker_cookbook.renderers import get_renderer
from tinker_cookbook.rl.preference_envs import PairwisePreferenceGroupBuilder, TournamentPattern, get_pairs_chunked
from tinker_cookbook.rl.types import Trajectory, Transition


def attempt(work):
    try:
        return {"ok": work()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def labeled(given):
    comparison = Comparison(given["prompt"], given["completionA"], given["completionB"])
    return LabeledComparison(comparison, given["label"])


def labels(renderer, vocabulary, cases):
    made = ComparisonRendererFromChatRenderer(get_renderer(renderer, CharacterTokenizer(**vocabulary)))

    def write(case):
        comparison = labeled(case)
        model_input, weights = made.to_model_input_weights(comparison)
        return {
            "prompt": made.build_generation_prompt(comparison.comparison).to_ints(),
            "tokens": model_input.to_ints(),
            "weights": [float(weight) for weight in weights],
        }

    return [attempt(lambda: write(case)) for case in cases]


def pairs(cases):
    return [get_pairs_chunked(count, TournamentPattern(pattern), size) for count, pattern, size in cases]


def tournament(folder, answers, scores, pattern, size):
    """Which of two answers is better is said by what each of them is worth."""
    renderer = get_renderer("qwen3_instruct", PreTrainedTokenizerFast.from_pretrained(folder))
    worth = dict(scores)

    async def preference_model(comparison):
        return worth[comparison.completion_B[0]["content"]] - worth[comparison.completion_A[0]["content"]]

    group = PairwisePreferenceGroupBuilder([{"role": "user", "content": "Say it."}], renderer,
                                           TournamentPattern(pattern), preference_model, len(answers),
                                           matchup_group_size=size)
    empty = tinker.ModelInput.empty()
    trajectories = [
        Trajectory([Transition(empty, TokensWithLogprobs(tokens, [0.0] * len(tokens)), 0.0, True)], empty)
        for tokens in answers
    ]
    return asyncio.run(group.compute_group_rewards(trajectories, []))


def write_datum(datum):
    return {
        "tokens": datum.model_input.to_ints(),
        "targets": [int(token) for token in datum.loss_fn_inputs["target_tokens"].data],
        "weights": [float(weight) for weight in datum.loss_fn_inputs["weights"].data],
    }


class Done:
    def __init__(self, value=None):
        self.value = value

    def result(self):
        return self.value

    async def result_async(self):
        return self.value

    def __await__(self):
        return self.result_async().__await__()


def loop(folder, batches, learning_rate, save_every):
    """The calls of a whole run in their order, on clients that do nothing but write them down."""
    calls = []
    renderer = get_renderer("qwen3_instruct", PreTrainedTokenizerFast.from_pretrained(folder))

    class Reference:
        async def compute_logprobs_async(self, model_input):
            tokens = model_input.to_ints()
            calls.append({"call": "computeLogprobs", "tokens": tokens})
            return [None, *([-1.0] * (len(tokens) - 1))]

    class Training:
        def save_weights_and_get_sampling_client(self):
            calls.append({"call": "saveReference"})
            return Reference()

        def forward_backward_custom(self, data, loss):
            _, metrics = loss(data, [train_dpo.torch.tensor([-1.0 - index % 2] * len(datum.loss_fn_inputs["weights"].data))
                                     for index, datum in enumerate(data)])
            calls.append({"call": "forwardBackwardCustom", "data": [write_datum(datum) for datum in data],
                          "metrics": metrics})
            return Done(types.SimpleNamespace(metrics=metrics))

        def optim_step(self, adam):
            calls.append({"call": "optimStep", "learningRate": adam.learning_rate})
            return Done()

        def __getattr__(self, name):
            def save(*_, **__):
                calls.append({"call": name})
                saved = Done(types.SimpleNamespace(path=f"tinker://run/weights/{len(calls)}"))
                return Done(saved) if name.endswith("_async") else saved
            return save

    class Service:
        def __init__(self, **_):
            pass

        def create_lora_training_client(self, **_):
            calls.append({"call": "create"})
            return Training()

    class Rows:
        def __len__(self):
            return len(batches)

        def set_epoch(self, seed=0):
            pass

        def get_batch(self, index):
            return [datum for row in batches[index] for datum in self.pair(labeled(row))]

        def pair(self, comparison):
            builder = types.SimpleNamespace(
                comparison_builder=types.SimpleNamespace(
                    get_train_and_test_datasets=lambda: ([comparison], None),
                    example_to_labeled_comparison=lambda row: row),
                renderer=renderer,
                common_config=types.SimpleNamespace(max_length=None, batch_size=1))
            made = {}
            train_data = DPODatasetBuilderFromComparisons.__call__
            # The builder gives a data set around its own conversion of a row, which is what is wanted here.
            module = sys.modules[DPODatasetBuilderFromComparisons.__module__]
            module.SupervisedDatasetFromHFDataset = lambda rows, batch_size, flatmap_fn: made.setdefault("convert", flatmap_fn)
            train_data(builder)
            return made["convert"](comparison)

    train_dpo.tinker = types.SimpleNamespace(**{**vars(tinker), "ServiceClient": Service})
    train_dpo.get_tokenizer = lambda name: renderer.tokenizer
    train_dpo.print_example = lambda *_: None
    with tempfile.TemporaryDirectory() as log_path:
        train_dpo.main(train_dpo.Config(
            log_path=log_path, model_name="tinkerts/nano", recipe_name="conformance", renderer_name="qwen3_instruct",
            dataset_builder=lambda: (Rows(), None), learning_rate=learning_rate, save_every=save_every,
            eval_every=0, infrequent_eval_every=0))
    return calls


serve({each.__name__: each for each in (labels, pairs, tournament, loop)})
