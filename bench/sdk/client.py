# One workload through the official Python SDK: the same as client.mjs does.
import asyncio, json, resource, sys, time
import numpy as np
import tinker
from tinker import types

work = json.loads(sys.argv[1])
service = tinker.ServiceClient(api_key="tml-bench")
token_at = lambda index: (index * 104_729) % 151_936


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def measured(run):
    cpu, start = cpu_seconds(), time.perf_counter()
    await run()
    return {"seconds": time.perf_counter() - start, "cpuSeconds": cpu_seconds() - cpu}


async def passes():
    training = await service.create_lora_training_client_async(base_model="stub/model", rank=32)
    length = work["length"]
    rows = [
        (
            [token_at(row + index) for index in range(length)],
            np.array([token_at(row + index + 1) for index in range(length)], dtype=np.int64),
            np.ones(length, dtype=np.float32),
        )
        for row in range(work["datums"])
    ]

    async def one():
        data = [
            types.Datum(
                model_input=types.ModelInput.from_ints(tokens),
                loss_fn_inputs={
                    "target_tokens": types.TensorData.from_numpy(targets),
                    "weights": types.TensorData.from_numpy(weights),
                },
            )
            for tokens, targets, weights in rows
        ]
        future = await training.forward_backward_async(data, "cross_entropy")
        result = await future
        assert result.metrics["loss:sum"] > 0

    async def run():
        for _ in range(work["rounds"]):
            await one()

    for _ in range(work["warmUpRounds"]):
        await one()
    return await measured(run)


async def sampling():
    sampler = await service.create_sampling_client_async(base_model="stub/model")
    prompt = types.ModelInput.from_ints([token_at(index) for index in range(work["promptLength"])])
    params = types.SamplingParams(max_tokens=work["sampledTokens"])

    async def one():
        answer = await sampler.sample_async(prompt=prompt, num_samples=1, sampling_params=params)
        assert len(answer.sequences[0].tokens) == work["sampledTokens"]

    async def run():
        for _ in range(work["rounds"]):
            await asyncio.gather(*(one() for _ in range(work["samples"])))

    await one()
    return {} if work["kind"] == "first" else await measured(run)


figures = asyncio.run(passes() if work["kind"] == "pass" else sampling())
figures["peakMegabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
figures["processCpuSeconds"] = cpu_seconds()
print(json.dumps(figures), flush=True)
service.close("succeeded")
