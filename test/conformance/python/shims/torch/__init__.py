"""What the Python cookbook's renderers and pure functions need of PyTorch, over numpy: PyTorch itself takes gigabytes."""

import numpy as np

__version__ = "2.10.0"

bool = np.bool_
int32 = np.int32
int64 = np.int64
long = np.int64
float = np.float32
float32 = np.float32
float64 = np.float64
# numpy has none, so no array is of this type.
bfloat16 = np.complex64


class Tensor(np.ndarray):
    device = "cpu"

    def __setitem__(self, place, value):
        # numpy puts no list of one number where a number belongs.
        number = np.ndim(self[place]) == 0
        super().__setitem__(place, np.asarray(value).item() if number else value)

    def item(self):
        return np.asarray(self).item()

    def __int__(self):
        # numpy makes no number of a list of one.
        return int(self.item())

    def to(self, dtype):
        return tensor(self, dtype=dtype)

    def float(self):
        return tensor(self, dtype=np.float32)

    def numel(self):
        return self.size

    def clone(self):
        return self.copy()

    def numpy(self):
        return np.asarray(self)

    def contiguous(self):
        return self

    def dot(self, other):
        return tensor(np.dot(np.asarray(self), np.asarray(other)))

    def exp(self):
        return np.exp(np.asarray(self)).view(Tensor)

    def unsqueeze(self, dim):
        return np.expand_dims(np.asarray(self), dim).view(Tensor)


def _default(array):
    """PyTorch's types for Python's numbers."""
    if array.dtype == np.float64:
        return array.astype(np.float32)
    return array.astype(np.float32) if array.size == 0 else array


def tensor(values, dtype=None):
    array = np.array(values, dtype=dtype)
    if dtype is None and not isinstance(values, np.ndarray):
        array = _default(array)
    return array.view(Tensor)


as_tensor = tensor


def from_numpy(array):
    return array.view(Tensor)


def zeros(*size, dtype=np.float32, device=None):
    return np.zeros(size[0] if len(size) == 1 else size, dtype=dtype).view(Tensor)


def empty_like(values):
    return np.empty_like(values)


def ones(*size, dtype=np.float32):
    return np.ones(size[0] if len(size) == 1 else size, dtype=dtype).view(Tensor)


def full(size, value, dtype=None):
    array = np.full(size, value)
    return (array.astype(dtype) if dtype is not None else _default(array)).view(Tensor)


def cat(tensors, dim=0):
    return np.concatenate([np.asarray(each) for each in tensors], axis=dim).view(Tensor)


def dot(left, right):
    return tensor(np.dot(np.asarray(left), np.asarray(right)))


def sum(values):
    return tensor(np.asarray(values).sum())


def stack(tensors):
    return np.stack([np.asarray(each) for each in tensors]).view(Tensor)


def nonzero(values):
    return np.argwhere(np.asarray(values)).view(Tensor)


def zeros_like(given):
    return np.zeros_like(np.asarray(given)).view(Tensor)


def where(condition):
    return tuple(each.view(Tensor) for each in np.nonzero(np.asarray(condition)))


def logsumexp(given, dim, keepdim=False):
    array = np.asarray(given)
    highest = array.max(axis=dim, keepdims=True)
    summed = np.log(np.exp(array - highest).sum(axis=dim, keepdims=True)) + highest
    return (summed if keepdim else summed.squeeze(axis=dim)).astype(array.dtype).view(Tensor)
