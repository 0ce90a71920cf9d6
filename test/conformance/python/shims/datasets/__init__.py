"""The names that the Python cookbook imports from `datasets`; what is judged here never uses them."""


class Dataset:
    pass


class IterableDataset:
    pass


