"""lm-eval's own client of a completions endpoint, with the server's tokenizer: scores and generations, as JSON."""

import json
import os

os.environ["OPENAI_API_KEY"] = os.environ["TINKER_API_KEY"]

from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI

pairs = json.loads(os.environ["PAIRS"])
lm = LocalCompletionsAPI(
    model=os.environ["MODEL"],
    base_url=os.environ["TINKER_BASE_URL"] + "/v1/completions",
    tokenizer_backend="remote",
    auth_token=os.environ["TINKER_API_KEY"],
    batch_size=4,
    max_length=512,
)


def instances(kind, arguments):
    return [
        Instance(request_type=kind, doc={}, arguments=given, idx=index) for index, given in enumerate(arguments)
    ]


scores = lm.loglikelihood(instances("loglikelihood", [tuple(pair) for pair in pairs]))
until = {"until": ["\n"], "max_gen_toks": 8, "temperature": 0}
print(
    json.dumps(
        {
            "tokens": [lm._encode_pair(*pair) for pair in pairs],
            "scores": [[logprob, greedy] for logprob, greedy in scores],
            "generated": lm.generate_until(instances("generate_until", [(pair[0], until) for pair in pairs])),
        }
    )
)
