"""The hot messages: plain values (as both sides describe them to each other), the package's own objects, protobuf."""

import base64
import math

import numpy as np
from generate import base64_of, well_formed
from tinker import types
from tinker.lib.chunked_fwdbwd_helpers import combine_fwd_bwd_output_results
from tinker.lib.public_interfaces.training_client import _estimate_datum_bytes_count_proto
from tinker.proto import request_conv, response_conv
from tinker.proto import tinker_public_pb2 as pb
from tinker.types.topk_logprobs import MASK_LOGPROB

NUMPY = {"float32": "<f4", "int64": "<i8", "int32": "<i4", "bfloat16": "<u2"}
PROTO = {"float32": pb.DTYPE_FLOAT32, "int64": pb.DTYPE_INT64, "int32": pb.DTYPE_INT32, "bfloat16": pb.DTYPE_BFLOAT16}
SPECIAL = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1e-45, 3.4e38]


def deterministic(message):
    return message.SerializeToString(deterministic=True)


# --- plain values and the package's objects ---


def tensor_from_plain(plain):
    return types.TensorData(
        data=np.frombuffer(base64.b64decode(plain["data"]), NUMPY[plain["dtype"]]).copy(),
        dtype=plain["dtype"], shape=plain["shape"], sparse_crow_indices=plain.get("crow"), sparse_col_indices=plain.get("col"),
    )


def tensor_to_plain(tensor):
    plain = {"dtype": tensor.dtype, "shape": tensor.shape, "data": base64_of(tensor._numpy.astype(NUMPY[tensor.dtype]).tobytes())}
    if tensor.sparse_crow_indices is not None:
        plain |= {"crow": list(tensor.sparse_crow_indices), "col": list(tensor.sparse_col_indices)}
    return plain


def chunk_from_plain(plain):
    if plain["type"] == "encoded_text":
        return types.EncodedTextChunk(tokens=plain["tokens"])
    if plain["type"] == "image":
        return types.ImageChunk(data=base64.b64decode(plain["data"]), format=plain["format"], expected_tokens=plain.get("expected_tokens"))
    return types.DmelChunk(dmel=base64.b64decode(plain["dmel"]))


def span_from_plain(plain):
    kind = types.PromptProvenanceSpan if plain["type"] == "prompt" else types.SampledProvenanceSpan
    return kind(sequence_id=plain["sequence_id"], offset=plain["offset"], length=plain["length"])


def datum_from_plain(plain):
    spans = {key: [span_from_plain(span) for span in plain[key]] for key in ("model_input_spans", "loss_fn_input_spans") if key in plain}
    return types.Datum(
        model_input=types.ModelInput(chunks=[chunk_from_plain(chunk) for chunk in plain["chunks"]]),
        loss_fn_inputs={key: tensor_from_plain(tensor) for key, tensor in plain["inputs"].items()}, **spans,
    )


def encode_request(plain):
    """What the package sends for these values; the keys of maps in order, as its bytes have no order of their own."""
    value = types.ForwardBackwardInput(
        data=[datum_from_plain(datum) for datum in plain["data"]], loss_fn=plain["loss_fn"], loss_fn_config=plain.get("config"),
    )
    message = request_conv.forward_backward_request_to_proto(
        types.ForwardBackwardRequest(forward_backward_input=value, model_id=plain["model_id"], seq_id=plain["seq_id"])
    )
    message.forward_only = plain["forward_only"]
    return deterministic(message)


def number(value):
    return value if math.isfinite(value) else str(value)


def topk_to_plain(rows):
    return rows and [row and [[token, number(logprob)] for token, logprob in row] for row in rows]


def float32s_to_plain(array):
    return None if array is None else base64_of(array.astype("<f4").tobytes())


def sample_to_plain(response):
    alternatives = response.prompt_alt_tokens
    return {
        "sequences": [
            {
                "stop_reason": sequence.stop_reason, "tokens": sequence.tokens,
                "logprobs": float32s_to_plain(sequence.logprobs_np), "topk": topk_to_plain(sequence.topk_logprobs),
            }
            for sequence in response.sequences
        ],
        "prompt_logprobs": response.prompt_logprobs and [value if value is None else number(value) for value in response.prompt_logprobs],
        "topk": topk_to_plain(response.topk_prompt_logprobs),
        "target": response.target_prompt_logprobs and tensor_to_plain(response.target_prompt_logprobs),
        "alternatives": alternatives and [tensor_to_plain(alternatives.tokens), tensor_to_plain(alternatives.logprobs)],
        "cache_hits": response.prompt_cache_hit_tokens,
    }


def output_to_plain(output):
    return {
        # The package shows the whole path where there are no outputs, and nothing where a server names no kind.
        "type": output.loss_fn_output_type.rsplit(":", 1)[-1] or "ArrayRecord",
        "outputs": [{key: tensor_to_plain(tensor) for key, tensor in sorted(record.items())} for record in output.loss_fn_outputs],
        "metrics": {key: number(value) for key, value in sorted(output.metrics.items())},
    }


def read_sample(data):
    return sample_to_plain(response_conv.deserialize_sample_response(data))


def read_output(data):
    return output_to_plain(response_conv.deserialize_forward_backward_output(data))


def combine(parts):
    return output_to_plain(combine_fwd_bwd_output_results([response_conv.deserialize_forward_backward_output(part) for part in parts]))


def estimate(plain):
    return [_estimate_datum_bytes_count_proto(datum_from_plain(datum)) for datum in plain["data"]]


# --- seeded values ---


class Messages:
    def __init__(self, generator):
        self.generator = generator
        self.random = generator.random

    def text(self, least=0):
        """Protobuf takes no lone surrogates, which JSON does."""
        return well_formed(self.generator.text(least))

    def values(self, dtype, count):
        if dtype == "int64":
            return np.array([self.generator.integer() for _ in range(count)], "<i8")
        if dtype == "int32":
            return np.array([self.generator.integer(-(2**31), 2**31 - 1) for _ in range(count)], "<i4")
        if dtype == "bfloat16":
            drawn = np.array([self.float32() for _ in range(count)], "<f4")
            return np.where(np.isnan(drawn), 0x7FC0, drawn.view("<u4") >> 16).astype("<u2")
        return np.array([self.float32() for _ in range(count)], "<f4")

    def float32(self):
        return np.float32(self.random.choice(SPECIAL) if self.random.random() < 0.2 else self.random.gauss(0, 5))

    def shape(self, rank=None):
        rank = self.random.choice([0, 1, 1, 1, 2, 2, 3]) if rank is None else rank
        return [self.random.choice([0, 1, 2, 3, 7]) for _ in range(rank)]

    def tensor(self, dtype=None):
        dtype = dtype or self.random.choice(["float32", "int64"])
        if self.random.random() < 0.3:
            rows, columns = self.random.randint(0, 5), self.random.randint(1, 6)
            kept = [sorted(self.random.sample(range(columns), self.random.randint(0, columns))) for _ in range(rows)]
            ends = np.cumsum([0] + [len(row) for row in kept]).tolist()
            col = [column for row in kept for column in row]
            return types.TensorData(
                data=self.values(dtype, len(col)), dtype=dtype, shape=[rows, columns], sparse_crow_indices=ends, sparse_col_indices=col,
            )
        shape = self.shape()
        return types.TensorData(data=self.values(dtype, math.prod(shape)), dtype=dtype, shape=shape)

    def chunk(self):
        return self.generator.model(self.random.choice([types.EncodedTextChunk] * 3 + [types.ImageChunk, types.DmelChunk]))

    def span(self):
        kind = self.random.choice([types.PromptProvenanceSpan, types.SampledProvenanceSpan])
        return kind(sequence_id=self.text(1), offset=self.generator.integer(0), length=self.generator.integer(0))

    def datum(self):
        names = ["target_tokens", "weights", "advantages", "logprobs", "clip_low_threshold", "own_input", "x"]
        spans = {}
        if self.random.random() < 0.3:
            spans = {key: [self.span() for _ in range(self.random.randint(1, 3))] for key in ("model_input_spans", "loss_fn_input_spans")}
        return types.Datum(
            model_input=types.ModelInput(chunks=[self.chunk() for _ in range(self.random.randint(0, 4))]),
            loss_fn_inputs={name: self.tensor() for name in sorted(self.random.sample(names, self.random.randint(0, 4)))}, **spans,
        )

    def request(self):
        names = sorted(self.random.sample(["beta", "clip_low_threshold", "kl_coeff", "loss_id", "mode"], self.random.randint(0, 4)))
        config = {name: self.text() if self.random.random() < 0.3 else self.generator.number() for name in names}
        value = types.ForwardBackwardInput(
            data=[self.datum() for _ in range(self.random.choice([0, 1, 2, 5]))],
            loss_fn=self.random.choice(["cross_entropy", "ppo", "custom", "gspo", "new_loss"]), loss_fn_config=config or None,
        )
        message = request_conv.forward_backward_request_to_proto(
            types.ForwardBackwardRequest(forward_backward_input=value, model_id=self.text(), seq_id=self.generator.integer(0, 2**31 - 1))
        )
        message.forward_only = self.random.random() < 0.3
        return deterministic(message)

    def topk(self, message):
        length, k = self.random.choice([1, 2, 6]), self.random.choice([1, 3])
        ids = np.zeros((length, k), "<i4")
        logprobs = np.full((length, k), MASK_LOGPROB, "<f4")
        for row in range(length):
            for column in range(self.random.randint(0, k)):
                ids[row, column] = self.random.randint(0, 200_000)
                logprobs[row, column] = -abs(self.random.gauss(0, 5))
        message.k, message.length, message.token_ids, message.logprobs = k, length, ids.tobytes(), logprobs.tobytes()

    def sample(self):
        message = pb.SampleResponse(prompt_cache_hit_tokens=self.generator.integer(0, 2**31 - 1))
        for _ in range(self.random.choice([0, 1, 2, 5])):
            tokens = self.generator.tokens()
            sequence = message.sequences.add(stop_reason=self.random.randint(0, 1), tokens=np.array(tokens, "<i4").tobytes())
            if tokens and self.random.random() < 0.7:
                sequence.logprobs = self.values("float32", len(tokens)).tobytes()
            if self.random.random() < 0.3:
                self.topk(sequence.topk_sampled_logprobs)
        if self.random.random() < 0.5:
            message.prompt_logprobs = self.values("float32", self.random.randint(1, 30)).tobytes()
        if self.random.random() < 0.3:
            self.topk(message.topk_prompt_logprobs)
        if self.random.random() < 0.3:
            message.target_prompt_logprobs.CopyFrom(request_conv._tensor_data_to_proto(self.tensor("float32")))
        if self.random.random() < 0.3:
            shape = [self.random.randint(0, 5), self.random.randint(1, 4)]
            for field, dtype in ((message.prompt_alt_tokens.tokens, "int64"), (message.prompt_alt_tokens.logprobs, "float32")):
                tensor = types.TensorData(data=self.values(dtype, math.prod(shape)), dtype=dtype, shape=shape)
                field.CopyFrom(request_conv._tensor_data_to_proto(tensor))
        return deterministic(message)

    def output(self, dtypes=("float32", "int64", "int32", "bfloat16")):
        message = pb.ForwardBackwardOutput(loss_fn_output_type=self.random.choice(["", "ArrayRecord", "module.path:ArrayRecord"]))
        names = sorted(self.random.sample(["logprobs", "entropy", "own_field"], self.random.randint(0, 3)))
        for _ in range(self.random.choice([0, 1, 1, 3])):
            datums = self.random.randint(1, 4)
            record = message.loss_fn_outputs.add(type_tag="ArrayRecord", num_datums=datums)
            for name in names:
                dtype = self.random.choice(dtypes)
                trailing = self.shape(self.random.choice([0, 0, 1, 2]))
                trailing = [max(size, 1) for size in trailing]
                rows = [self.random.choice([0, 1, 5]) for _ in range(datums)]
                data = self.values(dtype, sum(rows) * math.prod(trailing))
                ends = np.cumsum([0] + [row * math.prod(trailing) * data.itemsize for row in rows]).astype("<i8")
                record.fields[name].CopyFrom(
                    pb.BatchedTensor(data=data.tobytes(), offsets=ends.tobytes(), dtype=PROTO[dtype], trailing_shape=trailing)
                )
        for name in self.random.sample(["loss:sum", "mfu:mean", "a:max", "b:min", "c:slack", "d:unique", "e:hash2", "ünï:sum"], self.random.randint(0, 5)):
            message.metrics[name] = float(self.random.randint(0, 10**6)) if "hash2" in name else self.random.gauss(0, 100)
        return deterministic(message)
