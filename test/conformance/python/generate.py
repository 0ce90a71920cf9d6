"""Seeded values of any pydantic model of the package, from its annotations alone: a new type or field needs nothing here."""

import base64
import collections.abc
import datetime
import enum
import inspect
import math
import random
import string
import types as python_types
import typing

import annotated_types
import pydantic
import typing_extensions
from tinker import types
from tinker.types import optimizer
from tinker.types._pydantic_types.datum import Datum as DatumModel
from tinker.types._pydantic_types.forward_backward_input import ForwardBackwardInput as ForwardBackwardInputModel
from tinker.types._pydantic_types.tensor_data import TensorData as TensorModel

TEXTS = ["", " ", "a", "naïve ☃ 𝄞 \u0000 \u2028", '"\\\n\t/</script>', "__proto__", "snake_case", "camelCase", "null", "lone \ud800 surrogate", "界" * 40]
BIG = 2**53 - 1
KEY = string.ascii_lowercase


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.is_dense = False

    def text(self, least=0, most=None):
        if self.random.random() < 0.4:
            text = self.random.choice(TEXTS)
        else:
            size = self.random.choice([1, 3, 12, 60])
            text = "".join(self.random.choice(string.printable + "äöü€𝒳") for _ in range(self.random.randint(0, size)))
        text = text if len(text) >= least else text + "x" * (least - len(text))
        return text if most is None else text[:most]

    def key(self):
        """Pydantic keeps lone surrogates in texts, but not in the keys of a map."""
        return well_formed(self.text())

    def integer(self, low=-BIG, high=BIG):
        kind = self.random.random()
        if kind < 0.5:
            return min(max(self.random.randint(0, 100), low), high)
        if kind < 0.7:
            return self.random.choice([edge for edge in (0, 1, -1, 2**31 - 1, 2**31, -(2**31), BIG, -BIG) if low <= edge <= high] or [low])
        return self.random.randint(low, high)

    def number(self, low=-1e308, high=1e308):
        kind = self.random.random()
        edges = [edge for edge in (0.0, -0.0, 1.0, 0.1, 1e-12, 5e-324, 1e307, -1e307, 1 / 3, 1e21, 1e-7) if low <= edge < high]
        if kind < 0.4 and edges:
            return self.random.choice(edges)
        if high > 1e300:
            return max(low, self.random.gauss(0, 1) * 10.0 ** self.random.randint(-20, 20))
        return self.random.uniform(low, high)

    def plain_number(self):
        """Where nothing says that a number is a float, JSON does not keep whether it was one: none that ends in zeros."""
        return self.random.choice([0, 0.5, 1e-12, 1 / 3, self.random.gauss(0, 1) * 10.0 ** self.random.randint(-20, 10)])

    def moment(self):
        seconds = self.random.randint(0, 4_000_000_000)
        micros = self.random.choice([0, 0, 1, 123456, 500000, 999999])
        return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).replace(microsecond=micros)

    def data(self, most=64):
        return self.random.randbytes(self.random.choice([0, 1, 3, self.random.randint(0, most)]))

    def anything(self, depth=0):
        kinds = ["text", "integer", "number", "bool", "none"] + (["list", "dict"] if depth < 3 else [])
        kind = self.random.choice(kinds)
        if kind == "text":
            return self.text()
        if kind == "integer":
            return self.integer()
        if kind == "number":
            return self.plain_number()
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "none":
            return None
        count = self.random.randint(0, 3)
        if kind == "list":
            return [self.anything(depth + 1) for _ in range(count)]
        return {self.key(): self.anything(depth + 1) for _ in range(count)}

    def count(self, least=0, most=None):
        drawn = self.random.choice([0, 1, 2, 3, self.random.randint(0, 12)])
        return min(max(drawn, least), most if most is not None else max(drawn, least))

    def tokens(self, most=40):
        size = self.random.choice([0, 1, self.random.randint(0, most)])
        return [self.random.choice([0, 1, 2**31 - 1, self.random.randint(0, 200_000)]) for _ in range(size)]

    def dmel(self):
        """A header (optional constant marker, dtype, dimensions as varints) and any bytes after it."""
        header = bytes([254]) if self.random.random() < 0.3 else b""
        shape = [self.random.choice([0, 1, 5, 300]) for _ in range(self.random.randint(1, 3))]
        return header + bytes([self.random.randint(0, 7)]) + varint(len(shape)) + b"".join(map(varint, shape)) + self.data()

    def tensor_model(self):
        """Floats that are exact in 32 bits, as the dtype says."""
        rows, columns = self.random.randint(0, 4), self.random.randint(1, 4)
        dtype = self.random.choice(["int64", "float32"])
        draw = (lambda: self.integer()) if dtype == "int64" else (lambda: self.random.randint(-999, 999) / 64)
        if not self.is_dense and self.random.random() < 0.3:
            kept = [sorted(self.random.sample(range(columns), self.random.randint(0, columns))) for _ in range(rows)]
            ends = [0]
            for row in kept:
                ends.append(ends[-1] + len(row))
            columns_kept = [column for row in kept for column in row]
            return TensorModel(
                data=[draw() for _ in columns_kept], dtype=dtype, shape=[rows, columns],
                sparse_crow_indices=ends, sparse_col_indices=columns_kept,
            )
        shape = self.random.choice([[rows], [rows, columns]])
        return TensorModel(data=[draw() for _ in range(math.prod(shape))], dtype=dtype, shape=shape)

    def model(self, kind):
        if kind is TensorModel:
            return self.tensor_model()
        if kind is types.EncodedTextChunk:
            return kind(tokens=self.tokens())
        if kind is types.DmelChunk:
            return kind(dmel=self.dmel())
        if kind is types.ImageChunk:
            return kind(data=self.data(400), format=self.random.choice(["png", "jpeg"]), expected_tokens=self.maybe(lambda: self.integer(0, 2**31 - 1)))
        if kind is types.ImageAssetPointerChunk:
            return kind(format=self.random.choice(["png", "jpeg"]), location=self.text(1), expected_tokens=self.maybe(lambda: self.integer(0, 2**31 - 1)))
        if kind is types.GetBillingUsageRequest:
            start = self.moment().replace(minute=0, second=0, microsecond=0)
            return kind(starting_on=start, ending_before=start + datetime.timedelta(hours=self.random.randint(1, 336)))
        if kind in (optimizer.OptimizerConfigBase, optimizer.OptimParamsBase):
            name = "family_" + "".join(self.random.choice(KEY) for _ in range(4))
            extra = {"".join(self.random.choice(KEY) for _ in range(3)) + "_value": self.plain_number() for _ in range(self.random.randint(0, 2))}
            return kind(type=name, **extra)
        if kind is DatumModel:
            # Our clients write these bodies for servers that know no sparse tensors, and names of inputs are snake_case.
            self.is_dense = True
            names = self.random.sample(["target_tokens", "weights", "own_input", "a", "clip_low_threshold"], self.random.randint(0, 4))
            inputs = {name: self.tensor_model() for name in names}
            self.is_dense = False
            return kind(loss_fn_inputs=inputs, model_input=self.model(types.ModelInput))
        if kind is ForwardBackwardInputModel:
            config = {name: self.value(str | float) for name in self.random.sample(["beta", "loss_id", "kl_coeff"], self.random.randint(0, 3))}
            data = [self.model(DatumModel) for _ in range(self.count())]
            return kind(data=data, loss_fn=self.random.choice(typing.get_args(types.LossFnType)), loss_fn_config=config or None)
        values = {}
        for name, field in kind.model_fields.items():
            # A literal with a default is what tells the kinds apart: it is always written.
            if not field.is_required() and typing.get_origin(field.annotation) is not typing.Literal and self.random.random() < 0.4:
                continue
            limits = limits_of(field.metadata)
            values[self.input_name(name, field)] = self.value(field.annotation, limits)
        return kind.model_validate(values)

    def input_name(self, name, field):
        alias = field.validation_alias
        return alias.choices[0] if isinstance(alias, pydantic.AliasChoices) else alias or name

    def maybe(self, draw):
        return draw() if self.random.random() < 0.5 else None

    def value(self, annotation, limits=None):
        limits = limits or {}
        origin = typing.get_origin(annotation)
        if origin in (typing.Annotated, typing_extensions.Annotated):
            inner, *metadata = typing.get_args(annotation)
            return self.value(inner, {**limits, **limits_of(metadata)})
        if origin in (typing.Union, python_types.UnionType):
            return self.value(self.random.choice(typing.get_args(annotation)), limits)
        if origin in (typing.Literal, typing_extensions.Literal):
            return self.random.choice(typing.get_args(annotation))
        least, most = limits.get("min_length", 0), limits.get("max_length")
        if origin in (list, collections.abc.Sequence):
            (inner,) = typing.get_args(annotation)
            return [self.value(inner) for _ in range(self.count(least, most))]
        if origin is dict:
            _, inner = typing.get_args(annotation)
            return {self.key(): self.value(inner) for _ in range(self.count(least, most))}
        if annotation is type(None):
            return None
        if annotation in (typing.Any, object):
            return self.anything()
        if annotation is pydantic.AwareDatetime or annotation is datetime.datetime:
            return self.moment()
        if annotation is bool:
            return self.random.random() < 0.5
        if annotation is str:
            # Pydantic takes no lone surrogates where it has to count.
            return self.text(least, most) if not limits else well_formed(self.text(least, most))
        if annotation is int:
            return self.integer(limits.get("ge", -BIG), limits.get("le", BIG))
        if annotation is float:
            return self.number(limits.get("ge", -1e308), limits.get("lt", 1e308))
        if annotation is bytes:
            return self.data()
        if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
            return self.random.choice(list(annotation))
        if inspect.isclass(annotation) and issubclass(annotation, pydantic.BaseModel):
            return self.model(annotation)
        raise TypeError(f"no generator for {annotation!r}")


def well_formed(text):
    return text.encode("utf-8", "replace").decode()


def varint(value):
    encoded = b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def limits_of(metadata):
    limits = {}
    for item in metadata:
        for name in ("ge", "gt", "le", "lt", "min_length", "max_length"):
            if hasattr(item, name) and getattr(item, name) is not None:
                limits[name] = getattr(item, name)
        if isinstance(item, annotated_types.Len):
            limits["min_length"] = item.min_length
            limits["max_length"] = item.max_length
    return limits


def base64_of(data):
    return base64.b64encode(data).decode()
