"""One whole workflow with whatever version of the official package runs this: train, save, sample, resume, REST.

Prints one JSON line: each part with "ok", "not in this version", "needs PyTorch" or what went wrong.
"""

import io
import json
import os
import tarfile
import urllib.request
import warnings

warnings.simplefilter("ignore")

import tinker
from tinker import types

try:
    import torch
except ImportError:
    torch = None

MODEL = os.environ["MODEL"]
PROMPT = types.ModelInput.from_ints([1, 2, 3, 4])
GREEDY = types.SamplingParams(max_tokens=4, temperature=0)
ADAM = types.AdamParams(learning_rate=0.01)


class Absent(Exception):
    """The part cannot be run with this version, or without a package it needs."""


def method(client, name):
    if not hasattr(client, name):
        raise Absent("not in this version")
    return getattr(client, name)


def datum(first=1):
    tokens = [first + offset for offset in range(6)]
    return types.Datum(
        model_input=types.ModelInput.from_ints(tokens),
        loss_fn_inputs={"target_tokens": [token + 1 for token in tokens], "weights": [1.0] * 6},
    )


def step(training):
    """A pass and a step behind it; the loss before the step."""
    passed = training.forward_backward([datum(), datum(20)], "cross_entropy")
    stepped = training.optim_step(ADAM)
    stepped.result()
    return passed.result().metrics["loss:sum"]


def negative_log_likelihood(data, logprobs):
    loss = -sum(each.sum() for each in logprobs)
    return loss, {"nll": float(loss.detach())}


class Workflow:
    def __init__(self):
        self.service = tinker.ServiceClient()
        self.rest = self.service.create_rest_client()

    def train(self):
        models = self.service.get_server_capabilities().supported_models
        assert MODEL in [model.model_name for model in models], models
        self.training = self.service.create_lora_training_client(base_model=MODEL, rank=4, seed=1)
        info = self.training.get_info()
        assert info.model_data.model_name == MODEL and info.lora_rank == 4, info
        losses = [step(self.training) for _ in range(4)]
        assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0] * 0.95, losses
        outputs = self.training.forward([datum()], "cross_entropy").result().loss_fn_outputs
        assert [output["logprobs"].shape for output in outputs] == [[6]], outputs

    def custom_loss(self):
        run = method(self.training, "forward_backward_custom")
        if torch is None:
            raise Absent("needs PyTorch")
        plain = self.training.forward([datum()], "cross_entropy").result().metrics["loss:sum"]
        metrics = run([datum()], negative_log_likelihood).result().metrics
        assert abs(metrics["nll"] - plain) < 1e-3 * abs(plain), (metrics, plain)
        self.training.optim_step(ADAM).result()

    def save_state(self):
        self.state = self.training.save_state("state").result().path
        assert self.state.startswith("tinker://") and "/weights/" in self.state, self.state

    def save_weights_for_sampler(self):
        self.weights = self.training.save_weights_for_sampler("sampler").result().path
        assert "/sampler_weights/" in self.weights, self.weights

    def sample(self):
        self.sampler = self.service.create_sampling_client(model_path=self.weights)
        first, again = [self.sampler.sample(PROMPT, 2, GREEDY).result().sequences for _ in range(2)]
        assert len(first) == 2 and len(first[0].tokens) == len(first[0].logprobs) > 0, first
        assert [each.tokens for each in first] == [each.tokens for each in again], "greedy samples differ"
        live = self.training.save_weights_and_get_sampling_client("live").sample(PROMPT, 1, GREEDY).result()
        assert live.sequences[0].tokens == first[0].tokens, "the same weights sample other tokens"

    def compute_logprobs(self):
        logprobs = self.sampler.compute_logprobs(PROMPT).result()
        assert [value is None for value in logprobs] == [True, False, False, False], logprobs

    def resume(self):
        resumed = self.service.create_training_client_from_state_with_optimizer(self.state)
        expected, found = [[step(client) for _ in range(2)] for client in (self.training, resumed)]
        assert found == expected, f"resumed {found}, not interrupted {expected}"
        loaded = self.service.create_lora_training_client(base_model=MODEL, rank=4)
        loaded.load_state_with_optimizer(self.state).result()
        assert step(loaded) == expected[0], "loading the state gives another loss"

    def runs(self):
        run = self.training.model_id
        assert run in [each.training_run_id for each in self.rest.list_training_runs().result().training_runs]
        assert self.rest.get_training_run(run).result().lora_rank == 4
        assert self.rest.get_training_run_by_tinker_path(self.state).result().training_run_id == run
        assert self.rest.get_weights_info_by_tinker_path(self.state).result().base_model == MODEL

    def checkpoints(self):
        own = self.rest.list_checkpoints(self.training.model_id).result().checkpoints
        everybody = self.rest.list_user_checkpoints().result().checkpoints
        for listed in (own, everybody):
            assert {self.state, self.weights} <= {each.tinker_path for each in listed}, listed

    def checkpoint(self):
        return next(
            each
            for each in self.rest.list_checkpoints(self.training.model_id).result().checkpoints
            if each.tinker_path == self.state
        )

    def ttl(self):
        method(self.rest, "set_checkpoint_ttl_from_tinker_path")(self.state, 7200).result()
        assert self.checkpoint().expires_at is not None, self.checkpoint()

    def publish(self):
        method(self.rest, "publish_checkpoint_from_tinker_path")(self.state).result()
        assert self.checkpoint().public, self.checkpoint()
        self.rest.unpublish_checkpoint_from_tinker_path(self.state).result()
        assert not self.checkpoint().public, self.checkpoint()

    def archive(self):
        url = method(self.rest, "get_checkpoint_archive_url_from_tinker_path")(self.weights).result().url
        with tarfile.open(fileobj=io.BytesIO(urllib.request.urlopen(url).read())) as archive:
            assert "adapter_config.json" in [os.path.basename(name) for name in archive.getnames()]

    def delete(self):
        run = self.training.model_id
        self.rest.delete_checkpoint_from_tinker_path(self.state).result()
        self.rest.delete_checkpoint(run, self.weights.split("/", 3)[3]).result()
        left = {each.tinker_path for each in self.rest.list_checkpoints(run).result().checkpoints}
        assert not left & {self.state, self.weights}, left

    def sessions(self):
        session = self.service.holder.get_session_id()
        assert session in self.rest.list_sessions().result().sessions
        assert self.training.model_id in self.rest.get_session(session).result().training_run_ids

    def close(self):
        method(self.service, "close")("success").result()


PARTS = [
    ("train: `forward_backward`, `optim_step`, `forward`", Workflow.train),
    ("`forward_backward_custom`", Workflow.custom_loss),
    ("`save_state`", Workflow.save_state),
    ("`save_weights_for_sampler`", Workflow.save_weights_for_sampler),
    ("`sample`", Workflow.sample),
    ("`compute_logprobs`", Workflow.compute_logprobs),
    ("resume with the optimizer: the same losses", Workflow.resume),
    ("REST: runs, weights info", Workflow.runs),
    ("REST: list checkpoints", Workflow.checkpoints),
    ("REST: time to live", Workflow.ttl),
    ("REST: publish, unpublish", Workflow.publish),
    ("REST: archive, downloaded", Workflow.archive),
    ("REST: delete checkpoints", Workflow.delete),
    ("REST: sessions", Workflow.sessions),
    ("`close`", Workflow.close),
]


def outcome(part, workflow):
    try:
        part(workflow)
        return "ok"
    except Absent as reason:
        return str(reason)
    except Exception as error:
        return f"FAILED: {type(error).__name__}: {str(error)[:300]}"


workflow = Workflow()
print(json.dumps({"version": tinker.__version__, "parts": [[name, outcome(part, workflow)] for name, part in PARTS]}), flush=True)
# Old versions leave threads behind that nothing ends.
os._exit(0)
