"""inspect-ai over rows that the test made, one of them longer than any context, and a tool that it runs. Run by harnesses.test.ts."""

import json
import os
from importlib.metadata import version

# By the service's name in the model's, as in the docs.
os.environ["TINKERTS_API_KEY"] = os.environ["TINKER_API_KEY"]
os.environ["TINKERTS_BASE_URL"] = os.environ["TINKER_BASE_URL"] + "/v1"

from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import match
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import tool

rows = json.loads(os.environ["ROWS"])
model = get_model(
    f"openai-api/tinkerts/{os.environ['MODEL']}",
    config=GenerateConfig(temperature=0, max_tokens=160, seed=1, logprobs=True, top_logprobs=2),
)


@tool
def add():
    async def execute(a: int, b: int) -> str:
        """Adds two numbers.

        Args:
            a: The one.
            b: The other.
        """
        return str(a + b)

    return execute


solver = [use_tools(add()), generate()] if os.environ.get("TOOLS") else generate()
samples = [Sample(input=row["question"], target=row["target"]) for row in rows]
(log,) = eval(
    Task(dataset=MemoryDataset(samples), solver=solver, scorer=match()),
    model=model,
    log_dir=os.environ["LOGS"],
    display="none",
    max_connections=4,
)
if log.status != "success":
    raise SystemExit(str(log.error))
print(
    json.dumps(
        {
            "version": version("inspect-ai"),
            "accuracy": log.results.scores[0].metrics["accuracy"].value,
            "samples": [
                {
                    "completion": sample.output.completion,
                    "stopReason": sample.output.stop_reason,
                    "outputTokens": sample.output.usage.output_tokens if sample.output.usage else None,
                    "logprobs": [token.logprob for token in logprobs.content]
                    if sample.output.choices and (logprobs := sample.output.choices[0].logprobs)
                    else [],
                    "roles": [message.role for message in sample.messages],
                    "toolErrors": [str(message.error) for message in sample.messages if getattr(message, "error", None)],
                }
                for sample in log.samples
            ],
        }
    )
)
