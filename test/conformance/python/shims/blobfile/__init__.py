"""Files of this machine, for a cookbook that could read them from a store too."""


def BlobFile(path, mode, streaming=True):
    return open(path, mode)
