"""The Python cookbook's evaluation as a judge: one JSON command a line in, one JSON answer a line out. Run by evaluation.test.ts."""

import dataclasses
import logging
import os
import sys
import warnings

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)
os.environ.update(TRANSFORMERS_VERBOSITY="error", HF_HUB_OFFLINE="1", TRANSFORMERS_NO_ADVISORY_WARNINGS="1")

# Before the stand-ins: it would take them for the real packages.
import transformers  # noqa: F401

from character_tokenizer import SHIMS
from serve import serve

# Behind everything else: real ones are taken where they are installed.
sys.path.append(SHIMS)

from tinker_cookbook.eval.benchmarks import _common, _runner


def extract(cases):
    return [
        {
            "boxed": _common.extract_boxed(text),
            "number": _common.extract_gsm8k_answer(text),
            "choice": _common.extract_mcq_answer(text),
            "isRight": _common.check_gsm8k(text, expected),
        }
        for text, expected in cases
    ]


def pass_at_k(cases):
    return [_runner._pass_at_k_single(n, correct, k) for n, correct, k in cases]


def read(folder, name):
    trajectories = _runner.load_trajectories(folder, name)
    return {
        "result": dataclasses.asdict(_runner.load_result(folder, name)),
        "trajectories": [dataclasses.asdict(trajectory) for trajectory in trajectories],
        "wrong": len(_runner.load_trajectories(folder, name, incorrect_only=True)),
        "errors": len(_runner.load_trajectories(folder, name, errors_only=True)),
        "summary": _runner.load_summary(folder),
    }


serve({"extract": extract, "pass_at_k": pass_at_k, "read": read})
