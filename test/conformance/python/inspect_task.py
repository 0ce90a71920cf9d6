"""A task of inspect-ai over the OpenAI-compatible endpoint: prints its answers and how it ended, as JSON."""

import json
import os
import tempfile

os.environ["TINKERTS_API_KEY"] = os.environ["TINKER_API_KEY"]
os.environ["TINKERTS_BASE_URL"] = os.environ["TINKER_BASE_URL"] + "/v1"

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.scorer import includes
from inspect_ai.solver import generate

samples = [Sample(input=f"What is {a} + {a}?", target=str(2 * a)) for a in (1, 2, 3)]
samples.append(Sample(input="x " * 2000, target="nothing"))
[log] = eval(
    Task(dataset=samples, solver=generate(), scorer=includes()),
    model=f"openai-api/tinkerts/{os.environ['MODEL']}",
    log_dir=tempfile.mkdtemp(),
    display="none",
    max_tokens=24,
    temperature=0.0,
    seed=1,
    num_choices=1,
)
print(
    json.dumps(
        {
            "status": log.status,
            "answers": [sample.output.completion for sample in log.samples],
            "stops": [sample.output.stop_reason for sample in log.samples],
        }
    )
)
