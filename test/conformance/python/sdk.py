"""A whole session with the official Python SDK: training, sampling, REST, and its errors; run by python-client.test.ts."""

import asyncio
import datetime
import io
import json
import os
import tarfile
import time
import urllib.request
import warnings

warnings.simplefilter("ignore")

import numpy as np
import tinker
from tinker import types

from made import made

MODEL = os.environ["MODEL"]
KEY = os.environ["TINKER_API_KEY"]


def datum(first, length=6):
    tokens = [(first + offset) % 90 + 1 for offset in range(length)]
    inputs = {"target_tokens": [token + 1 for token in tokens], "weights": [1.0] * length}
    return types.Datum(model_input=types.ModelInput.from_ints(tokens), loss_fn_inputs=inputs)


def raises(kind, action):
    try:
        action()
    except kind as error:
        return str(error)
    raise AssertionError(f"expected {kind.__name__}")


def download(url, headers=None):
    return urllib.request.urlopen(urllib.request.Request(url, headers=headers or {})).read()


def train(service):
    training = made(service.create_lora_training_client(base_model=MODEL, rank=4, seed=3))
    info = training.get_info()
    assert info.model_data.model_name == MODEL and info.lora_rank == 4 and info.is_lora, info
    passed = training.forward_backward([datum(index) for index in range(5)], "cross_entropy")
    stepped = training.optim_step(types.AdamParams(learning_rate=0.01))
    after = training.forward([datum(0)], "cross_entropy")
    result = passed.result()
    assert [output["logprobs"].shape for output in result.loss_fn_outputs] == [[6]] * 5
    assert result.metrics["loss:sum"] > 0
    assert stepped.result() is not None
    before = result.loss_fn_outputs[0]["logprobs"].tolist()
    assert after.result().loss_fn_outputs[0]["logprobs"].tolist() != before, "the step changed nothing"

    soft = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={"target_tokens": [[1, 2], [3, 4], [5, 6]], "weights": [[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]]},
    )
    assert training.forward_backward([soft], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].shape == [3, 2]
    ratio = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 3]),
        loss_fn_inputs={"target_tokens": [2, 3, 4], "logprobs": [-1.0] * 3, "advantages": [1.0, 0.0, -1.0]},
    )
    for loss, config in [
        ("importance_sampling", None),
        ("ppo", {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}),
        ("cispo", None),
        ("dro", {"beta": 0.1}),
    ]:
        assert "loss:sum" in training.forward_backward([ratio], loss, config).result().metrics
    many = training.forward_backward([datum(index % 20) for index in range(1100)], "cross_entropy").result()
    assert len(many.loss_fn_outputs) == 1100, "chunks did not come back together"
    return training


def errors(service, training):
    bad = types.Datum(
        model_input=types.ModelInput.from_ints([10**6]), loss_fn_inputs={"target_tokens": [1], "weights": [1.0]}
    )
    message = raises(
        tinker.UnprocessableEntityError, lambda: training.forward_backward([bad], "cross_entropy").result()
    )
    assert "model_input" in message and "token 1000000" in message, message
    assert "base_model" in raises(
        tinker.UnprocessableEntityError, lambda: made(service.create_lora_training_client(base_model="nope"))
    )
    assert "path" in raises(tinker.UnprocessableEntityError, lambda: training.save_state("../evil").result())
    # A 409 would be sent again for five minutes, with everything behind it waiting.
    started = time.monotonic()
    taken = training.save_state("zz-saved")
    behind = training.optim_step(types.AdamParams())
    assert "exists already" in raises(tinker.BadRequestError, taken.result)
    assert "exists already" in raises(
        tinker.BadRequestError, training.save_weights_for_sampler("for-sampler").result
    )
    behind.result()
    assert time.monotonic() - started < 2, "the refusal came late"


def sample(service, training, path):
    sampler = made(service.create_sampling_client(model_path=path))
    assert sampler.get_base_model() == MODEL
    prompt = types.ModelInput.from_ints([1, 2, 3])
    answer = sampler.sample(
        prompt,
        2,
        types.SamplingParams(max_tokens=3, seed=1),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=2,
        topk_sample_logprobs=3,
        prompt_alt_tokens_k=2,
        target_prompt_logprobs=types.TensorData(data=np.array([5, -1, 6, 7]), dtype="int64", shape=[2, 2]),
    ).result()
    assert len({sequence.sequence_id for sequence in answer.sequences}) == 2
    for sequence in answer.sequences:
        assert 1 <= len(sequence.tokens) <= 3 and len(sequence.logprobs) == len(sequence.tokens)
        assert [len(row) for row in sequence.topk_logprobs] == [3] * len(sequence.tokens)
    assert answer.prompt_logprobs[0] is None and all(value < 0 for value in answer.prompt_logprobs[1:])
    assert answer.topk_prompt_logprobs[0] is None and len(answer.topk_prompt_logprobs[1]) == 2
    assert answer.target_prompt_logprobs.shape == [2, 2] and answer.target_prompt_logprobs.tolist()[0][1] == 0
    assert answer.prompt_alt_tokens.tokens.shape == [2, 2]
    scored = sampler.compute_logprobs(types.ModelInput.from_ints([1, 2, 3, 4]), prompt_logprobs_last_n=2).result()
    assert [value is None for value in scored] == [True, True, False, False], scored
    futures = [
        sampler.sample(types.ModelInput.from_ints([index % 50 + 1]), 1, types.SamplingParams(max_tokens=2))
        for index in range(100)
    ]
    assert len({future.result().sequences[0].sequence_id for future in futures}) == 100
    params = types.SamplingParams(max_tokens=2, temperature=0)
    for client in [
        made(training.save_weights_and_get_sampling_client()),
        made(service.create_sampling_client(base_model=MODEL)),
        tinker.SamplingClient.from_sampler_handle(sampler.get_sampler_handle(), api_key=KEY),
    ]:
        assert len(client.sample(prompt, 1, params).result().sequences) == 1
    return sampler


def rest(service, training, sampler, saved, for_sampler):
    client = tinker.RestClient()
    session = service.holder.get_session_id()
    run = client.get_training_run(training.model_id).result()
    assert run.lora_rank == 4 and run.last_checkpoint.tinker_path == saved
    assert training.model_id in [run.training_run_id for run in client.list_training_runs().result().training_runs]
    assert client.get_training_run_by_tinker_path(saved).result().training_run_id == training.model_id
    paths = [checkpoint.tinker_path for checkpoint in client.list_checkpoints(training.model_id).result().checkpoints]
    assert sorted(paths)[-1] == saved and for_sampler in paths
    assert client.list_user_checkpoints().result().cursor.total_count >= len(paths)
    info = client.get_weights_info_by_tinker_path(saved).result()
    assert (info.base_model, info.lora_rank) == (MODEL, 4)
    client.publish_checkpoint_from_tinker_path(saved).result()
    client.unpublish_checkpoint_from_tinker_path(saved).result()
    client.set_checkpoint_ttl_from_tinker_path(saved, 7200).result()
    client.set_checkpoint_ttl_from_tinker_path(saved, None).result()
    external = training.save_weights_external("exported").result().path
    urls = client.get_external_weights_urls(external).result().urls
    assert sorted(urls) == ["adapter_config.json", "adapter_model.safetensors"]
    assert json.loads(download(urls["adapter_config.json"]))["peft_type"] == "LORA"
    assert session in client.list_sessions().result().sessions
    assert training.model_id in client.get_session(session).result().training_run_ids
    client.assign_session_project(session, "proj-b").result()
    copy = client.copy_weights(saved, "proj-c", ttl_seconds=7200).result()
    assert copy != saved and client.get_weights_info_by_tinker_path(copy).result().lora_rank == 4
    trace = json.loads(download(client.export_session_trace(session).result()))
    assert any(event["name"] == "optim_step" for event in trace["traceEvents"])
    assert client.get_sampler(sampler._sampling_session_id).result().base_model == MODEL
    search = types.SessionSearchRequest(display_name="python", user_metadata={"who": "py"})
    assert [found.session_id for found in client.search_sessions(search).result().sessions] == [session]
    admin = tinker.AdminClient()
    events = {entry.event for entry in admin.get_audit_log("checkpoints").result().entries}
    assert {"checkpoints.created", "checkpoints.published", "checkpoints.copied"} <= events, events
    hour = datetime.datetime.now(datetime.timezone.utc).replace(minute=0, second=0, microsecond=0)
    usage = admin.get_billing_usage(hour - datetime.timedelta(hours=1), hour + datetime.timedelta(hours=1)).result()
    assert {event.event_info.type for event in usage.data} >= {"training", "sampling_prefill", "sampling_sample"}
    assert admin.get_current_checkpoint_storage_usage().result().data
    base = os.environ["TINKER_BASE_URL"]
    name = saved.split("/")[-1]
    archive = download(
        f"{base}/api/v1/training_runs/{training.model_id}/checkpoints/weights/{name}/archive", {"x-api-key": KEY}
    )
    names = tarfile.open(fileobj=io.BytesIO(archive)).getnames()
    assert names == ["adapter_config.json", "adapter_model.safetensors", "optimizer.safetensors"], names
    client.delete_checkpoint_from_tinker_path(for_sampler).result()
    if os.environ.get("HAS_TOKENS"):
        assert client.whoami().result().org_urn == "tml:organization:local"


async def asynchronous(service):
    training = await service.create_lora_training_client_async(base_model=MODEL, rank=4)
    passed = await training.forward_backward_async([datum(1)], "cross_entropy")
    stepped = await training.optim_step_async(types.AdamParams(learning_rate=0.01))
    await passed.result_async()
    await stepped.result_async()
    sampler = await training.save_weights_and_get_sampling_client_async()
    await asyncio.gather(
        *[
            sampler.sample_async(types.ModelInput.from_ints([1]), 1, types.SamplingParams(max_tokens=2))
            for _ in range(20)
        ]
    )


def whole_context(service):
    """What can be trained can be scored."""
    models = service.get_server_capabilities().supported_models
    context = next(model.max_context_length for model in models if model.model_name == MODEL)
    tokens = types.ModelInput.from_ints([index % 50 + 1 for index in range(context)])
    assert len(made(service.create_sampling_client(base_model=MODEL)).compute_logprobs(tokens).result()) == context


def main():
    service = tinker.ServiceClient(user_metadata={"who": "py"}, project_id="proj-a", display_name="Python run")
    assert MODEL in [model.model_name for model in service.get_server_capabilities().supported_models]
    training = train(service)
    saved = training.save_state("zz-saved", ttl_seconds=7200, user_metadata={"a": "b"}).result().path
    reference = training.forward([datum(3)], "cross_entropy").result().loss_fn_outputs[0]["logprobs"].tolist()
    for load in [
        service.create_training_client_from_state,
        service.create_training_client_from_state_with_optimizer,
    ]:
        loaded = made(load(saved))
        output = loaded.forward([datum(3)], "cross_entropy").result()
        assert output.loss_fn_outputs[0]["logprobs"].tolist() == reference, "loaded weights differ"
    for_sampler = training.save_weights_for_sampler("for-sampler").result().path
    sampler = sample(service, training, for_sampler)
    errors(service, training)
    asyncio.run(asynchronous(service))
    rest(service, training, sampler, saved, for_sampler)
    whole_context(service)
    service.close("success").result()
    print("python sdk ok")


main()
