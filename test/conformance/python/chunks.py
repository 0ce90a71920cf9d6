"""Pieces of what a model reads, from JSON and to it."""

import tinker


def chunk(given):
    if "tokens" in given:
        return tinker.EncodedTextChunk(tokens=given["tokens"])
    return tinker.types.ImageChunk(data=given.get("image", "image").encode(), format="jpeg", expected_tokens=given["length"])


def plain_chunk(made):
    if isinstance(made, tinker.EncodedTextChunk):
        return {"tokens": list(made.tokens)}
    return {"length": made.length}
