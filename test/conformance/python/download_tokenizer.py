"""The tokenizer of a server's model, as docs/coming-from-python.md shows it."""

import io
import os
import tarfile
import urllib.parse
import urllib.request


def download_tokenizer(model):
    """Into a folder of the model's name, which transformers takes for the model."""
    url = f"{os.environ['TINKER_BASE_URL']}/api/v1/tokenizer?model={urllib.parse.quote(model)}"
    request = urllib.request.Request(url, headers={"X-API-Key": os.environ["TINKER_API_KEY"]})
    archive = io.BytesIO(urllib.request.urlopen(request).read())
    tarfile.open(fileobj=archive).extractall(model)
