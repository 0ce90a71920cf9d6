"""The Python cookbook's pure functions, each of which takes and gives JSON. Run by cookbook_renderers.py."""

import dataclasses
import json
import os
import tempfile

import tinker
import torch
from tinker_cookbook import checkpoint_utils, hyperparam_utils
from tinker_cookbook.eval.benchmarks import _common, _runner
from tinker_cookbook.supervised import common
from tinker_cookbook.utils import lr_scheduling

import distillation
import reinforcement
from chunks import chunk, plain_chunk


def datum(chunks, weights, max_length=None, reduction="none"):
    made = common.datum_from_model_input_weights(
        tinker.ModelInput(chunks=[chunk(each) for each in chunks]),
        torch.tensor(weights, dtype=torch.float32), max_length=max_length, reduction=reduction)
    return {
        "chunks": [plain_chunk(each) for each in made.model_input.chunks],
        "targets": list(made.loss_fn_inputs["target_tokens"].data),
        "weights": list(made.loss_fn_inputs["weights"].data),
    }


def tensors(lists, dtype):
    return [tinker.TensorData(data=values, dtype=dtype, shape=[len(values)]) for values in lists]


def mean_nll(logprobs, weights):
    return common.compute_mean_nll(tensors(logprobs, "float32"), tensors(weights, "float32"))


def bits_per_byte(logprobs, weights, targets, tokenizer):
    return common.compute_bpb(tensors(logprobs, "float32"), tensors(weights, "float32"),
                              tensors(targets, "int64"), tokenizer)


def checkpoints(lines):
    """What Python reads from a file, and what it would write again."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "checkpoints.jsonl"), "w") as file:
            file.writelines(lines)
        read = checkpoint_utils.load_checkpoints_file(folder)
        last = checkpoint_utils.get_last_checkpoint(folder)
    return {
        "records": [dataclasses.asdict(each) for each in read],
        "lines": [json.dumps(each.to_dict()) + "\n" for each in read],
        "last": None if last is None else last.name,
    }


FORMULAS = {
    "datum": datum,
    "meanNll": mean_nll,
    "bitsPerByte": bits_per_byte,
    "scheduleMultiplier": lr_scheduling.compute_schedule_lr_multiplier,
    "learningRate": hyperparam_utils.get_lr,
    "checkpoints": checkpoints,
    "boxed": _common.extract_boxed,
    "number": _common.extract_gsm8k_answer,
    "sameNumber": _common.check_gsm8k,
    "choice": _common.extract_mcq_answer,
    "passAtK": _runner._pass_at_k_single,
    **reinforcement.FORMULAS,
    **distillation.FORMULAS,
}


def calculate(formula, cases, **shared):
    """The formula of each case, which is a list of arguments or an object of named ones; a refusal as an error."""
    answers = []
    for case in cases:
        try:
            given, named = ([], case) if isinstance(case, dict) else (case, {})
            made = FORMULAS[formula](*given, **named, **shared)
            # JSON has no NaN, the one value that is not itself.
            answers.append({"ok": made if made == made else None})
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    return answers
