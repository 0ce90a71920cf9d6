"""Writes src/wire/fixtures/: bytes and JSON made by the official Python package, for the codecs to be checked against.

Needs tinker 0.36.0 and torch: npm run generate:golden:wire. The result is committed; the tests need no Python.
"""

import json
import pathlib

import numpy as np
import torch
from google.protobuf import descriptor_pb2
from tinker import types
from tinker.proto import tinker_public_pb2 as pb
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.proto.response_conv import (
    deserialize_forward_backward_output,
    deserialize_sample_response,
)
from tinker.types import _tensor_container as container

FOLDER = pathlib.Path(__file__).parents[2] / "src" / "wire" / "fixtures"
FOLDER.mkdir(exist_ok=True)


def write_bytes(name, message):
    (FOLDER / name).write_bytes(message.SerializeToString(deterministic=True))


def write_json(name, value):
    (FOLDER / name).write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


def tensor(td):
    return {
        "data": [None if value != value else value for value in td.data],
        "dtype": td.dtype,
        "shape": td.shape,
        "sparseCrowIndices": td.sparse_crow_indices,
        "sparseColIndices": td.sparse_col_indices,
    }


def descriptor():
    file = descriptor_pb2.FileDescriptorProto()
    pb.DESCRIPTOR.CopyToProto(file)

    def fields(message):
        rows = {
            field.name: [field.number, field.type, field.label, field.type_name, field.proto3_optional]
            for field in message.field
        }
        return {"fields": rows, "nested": {nested.name: fields(nested) for nested in message.nested_type}}

    return {
        "messages": {message.name: fields(message) for message in file.message_type},
        "enums": {enum.name: {value.name: value.number for value in enum.value} for enum in file.enum_type},
    }


def request():
    spans = [
        types.PromptProvenanceSpan(sequence_id="seq-a", offset=0, length=2),
        types.SampledProvenanceSpan(sequence_id="seq-b", offset=5, length=1),
    ]
    plain = types.Datum(
        model_input=types.ModelInput.from_ints([1, 2, 151643]),
        loss_fn_inputs={
            "target_tokens": [2, 151643, 5_000_000_000],
            "weights": [0.0, 0.5, 1.0],
        },
    ).with_provenance(model_input=spans, loss_fn_inputs=spans)
    mixed = types.Datum(
        model_input=types.ModelInput(
            chunks=[
                types.EncodedTextChunk(tokens=[7]),
                types.ImageChunk(data=b"\x89PNG\x00\xff", format="png", expected_tokens=300),
                types.ImageChunk(data=b"jpeg", format="jpeg"),
                types.DmelChunk(dmel=bytes([2, 2, 5, 80, 0, 1, 2])),
                types.EncodedTextChunk(tokens=[]),
            ]
        ),
        loss_fn_inputs={
            "advantages": np.asarray([[1.5, -2.25], [0.1, 3e38]], dtype=np.float32),
            "target_tokens": torch.tensor([[0, 9, 0, 0, 0], [0, 0, 0, 0, 7]]),
        },
    )
    empty = types.Datum(
        model_input=types.ModelInput.empty(),
        loss_fn_inputs={"weights": np.zeros((0,), dtype=np.float32)},
    )
    message = forward_backward_request_to_proto(
        types.ForwardBackwardRequest(
            forward_backward_input=types.ForwardBackwardInput(
                data=[plain, mixed, empty],
                loss_fn="ppo",
                loss_fn_config={"clip_high_threshold": 1.2, "clip_low_threshold": 0.0, "mode": "tokén"},
            ),
            model_id="session:train:0",
            seq_id=300,
        )
    )
    message.forward_only = True
    return message


def output():
    message = pb.ForwardBackwardOutput(loss_fn_output_type="tinker.losses:TorchLossReturn")
    message.metrics["loss:sum"] = -12.25
    message.metrics["tokens_per_second:mean"] = 1e9

    def batched(arrays, dtype, trailing):
        data = b"".join(array.tobytes() for array in arrays)
        offsets = np.cumsum([0] + [array.nbytes for array in arrays]).astype(np.int64)
        return pb.BatchedTensor(data=data, offsets=offsets.tobytes(), dtype=dtype, trailing_shape=trailing)

    float32 = [np.asarray(values, dtype=np.float32) for values in ([-0.5, -1.25, float("nan")], [-3.0])]
    bits = [np.asarray(values, dtype=np.uint16) for values in ([0x3F80, 0xC020], [0x4049])]
    int64 = [np.asarray(values, dtype=np.int64) for values in ([1, 2, 3, -(2**40)], [5, 6])]
    int32 = [np.asarray(values, dtype=np.int32) for values in ([-7], [8, 9])]
    first = message.loss_fn_outputs.add(type_tag="TorchLossReturn", num_datums=2)
    first.fields["logprobs"].CopyFrom(batched(float32, pb.DTYPE_FLOAT32, []))
    first.fields["elementwise_loss"].CopyFrom(batched(bits, pb.DTYPE_BFLOAT16, []))
    first.fields["pairs"].CopyFrom(batched(int64, pb.DTYPE_INT64, [2]))
    first.fields["counts"].CopyFrom(batched(int32, pb.DTYPE_INT32, []))
    second = message.loss_fn_outputs.add(type_tag="TorchLossReturn", num_datums=1)
    second.fields["logprobs"].CopyFrom(batched(float32[:1], pb.DTYPE_FLOAT32, []))
    second.fields["elementwise_loss"].CopyFrom(batched(bits[:1], pb.DTYPE_BFLOAT16, []))
    second.fields["pairs"].CopyFrom(batched([np.arange(3, dtype=np.int64)], pb.DTYPE_INT64, [3]))
    second.fields["counts"].CopyFrom(batched(int32[:1], pb.DTYPE_INT32, []))
    return message


def topk(rows, k):
    cells = [cell for row in rows for cell in row + [(0, -99999.0)] * (k - len(row))]
    return pb.TopkLogprobs(
        token_ids=np.asarray([cell[0] for cell in cells], dtype=np.int32).tobytes(),
        logprobs=np.asarray([cell[1] for cell in cells], dtype=np.float32).tobytes(),
        k=k,
        length=len(rows),
    )


def sample():
    message = pb.SampleResponse(prompt_cache_hit_tokens=64)
    message.prompt_logprobs = np.asarray([np.nan, -0.25, -7.5], dtype=np.float32).tobytes()
    message.topk_prompt_logprobs.CopyFrom(topk([[], [(5, -0.25), (0, -1.5)], [(9, -0.5)]], 2))
    first = message.sequences.add(stop_reason=pb.STOP_REASON_LENGTH)
    first.tokens = np.asarray([11, 12], dtype=np.int32).tobytes()
    first.logprobs = np.asarray([-0.125, -2.0], dtype=np.float32).tobytes()
    first.topk_sampled_logprobs.CopyFrom(topk([[(11, -0.125)], [(3, -0.5)]], 1))
    message.sequences.add(stop_reason=pb.STOP_REASON_STOP)
    message.target_prompt_logprobs.CopyFrom(
        pb.Tensor(
            dtype=pb.DTYPE_FLOAT32,
            shape=[2, 3],
            sparse_csr=pb.SparseCsr(
                values=np.asarray([-1.5], dtype=np.float32).tobytes(),
                crow_indices=np.asarray([0, 0, 1], dtype=np.int64).tobytes(),
                col_indices=np.asarray([2], dtype=np.int64).tobytes(),
            ),
        )
    )
    message.prompt_alt_tokens.tokens.CopyFrom(
        pb.Tensor(dtype=pb.DTYPE_INT64, shape=[2, 1], dense=np.asarray([4, 5], dtype=np.int64).tobytes())
    )
    message.prompt_alt_tokens.logprobs.CopyFrom(
        pb.Tensor(dtype=pb.DTYPE_FLOAT32, shape=[2, 1], dense=np.asarray([-4, -5], dtype=np.float32).tobytes())
    )
    return message


def read_sample(data):
    response = deserialize_sample_response(data)
    return {
        "sequences": [
            {
                "stopReason": sequence.stop_reason,
                "tokens": sequence.tokens,
                "logprobs": sequence.logprobs,
                "topkLogprobs": sequence.topk_logprobs,
            }
            for sequence in response.sequences
        ],
        "promptLogprobs": response.prompt_logprobs,
        "topkPromptLogprobs": response.topk_prompt_logprobs,
        "targetPromptLogprobs": tensor(response.target_prompt_logprobs),
        "promptCacheHitTokens": response.prompt_cache_hit_tokens,
        "promptAltTokens": {
            "tokens": tensor(response.prompt_alt_tokens.tokens),
            "logprobs": tensor(response.prompt_alt_tokens.logprobs),
        },
    }


def read_output(data):
    result = deserialize_forward_backward_output(data)
    return {
        "lossFnOutputType": result.loss_fn_output_type,
        "lossFnOutputs": [
            {name: tensor(td) for name, td in record.items()} for record in result.loss_fn_outputs
        ],
        "metrics": result.metrics,
    }


def dmel_lengths():
    containers = [
        bytes([2, 2, 5, 80]),
        bytes([254, 7, 1, 0x96, 0x01]),
        bytes([0, 3, 0x80, 0x80, 0x04, 1, 2, 99]),
    ]
    return [[list(data), container.tensor_container_dim(data, 0)] for data in containers]


def sparse():
    generator = np.random.default_rng(7)
    cases = []
    for rows, columns, density in [(4, 8, 0.1), (3, 3, 0.2), (2, 4, 0.9), (16, 5, 0.3), (1, 6, 0.0)]:
        dense = (generator.integers(1, 1000, (rows, columns)) * (generator.random((rows, columns)) < density)).astype(
            np.int64
        )
        cases.append({"dense": dense.tolist(), "tensor": tensor(types.TensorData.from_torch_sparse(torch.tensor(dense)))})
    return cases


def requests():
    prompt = types.ModelInput(
        chunks=[
            types.EncodedTextChunk(tokens=[1, 2, 3]),
            types.ImageChunk(data=bytes(range(0, 256, 5)), format="jpeg", expected_tokens=12),
            types.ImageAssetPointerChunk(format="png", location="https://example.com/a.png"),
            types.DmelChunk(dmel=bytes([2, 2, 5, 80])),
        ]
    )
    sample_request = types.SampleRequest(
        num_samples=2,
        prompt=prompt,
        sampling_params=types.SamplingParams(max_tokens=5, stop=["\n"], seed=3),
        sampling_session_id="sampler",
        seq_id=9,
        prompt_logprobs=True,
        topk_prompt_logprobs=3,
        topk_sample_logprobs=2,
        prompt_alt_tokens_k=4,
        prompt_logprobs_last_n=2,
    )
    optim = types.OptimStepRequest(optim_params=types.AdamParams(), model_id="m", seq_id=2)
    lora = types.LoraConfig(rank=16)
    dump = lambda model: model.model_dump(mode="json", exclude_none=True)
    return {"sample": dump(sample_request), "optimStep": dump(optim), "loraConfig": dump(lora)}


write_json("descriptor.json", descriptor())
write_bytes("forward-backward-request.bin", request())
write_bytes("forward-backward-output.bin", output())
write_json("forward-backward-output.json", read_output(output().SerializeToString()))
write_bytes("sample-response.bin", sample())
write_json("sample-response.json", read_sample(sample().SerializeToString()))
write_json("dmel-lengths.json", dmel_lengths())
write_json("sparse.json", sparse())
write_json("requests.json", requests())
