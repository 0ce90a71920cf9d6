"""Chat templates of models out of public source packages."""

import io
import json
import os
import re
import tarfile
import urllib.parse
import urllib.request

# Never committed: the folder of npm's own caches.
CACHE = os.path.join(os.path.dirname(__file__), "../../../node_modules/.cache/tinkerts-templates")
PACKAGES = {"trl": "1.16.0", "axolotl": "0.21.0", "vllm": "0.32.0", "llama-cpp-python": "0.3.36"}
# Templates of embeddings and rerankers are not for chats; vllm's Rust tests hold copies; the last is no template.
OTHERS = ("/examples/pooling/", "/rust/", "/cicd/")


def templates_of(package, version):
    """From the source package, which is asked of the index that pip uses by default."""
    listing = f"https://pypi.org/simple/{package}/"
    page = urllib.request.urlopen(listing).read().decode()
    file = f"{package.replace('-', '_')}-{version}.tar.gz"
    link = re.search(rf'href="([^"]*/{re.escape(file)})[#"]', page)[1]
    archive = urllib.request.urlopen(urllib.parse.urljoin(listing, link)).read()
    with tarfile.open(fileobj=io.BytesIO(archive)) as source:
        for member in source:
            name = member.name
            if name.endswith(".jinja") and not any(part in name for part in OTHERS):
                short = f"{package}/{os.path.basename(name)[: -len('.jinja')]}"
                yield {"name": short, "source": source.extractfile(member).read().decode()}


def templates_in(package):
    """Those of a package, by name."""
    os.makedirs(CACHE, exist_ok=True)
    path = os.path.join(CACHE, f"{package}-{PACKAGES[package]}.json")
    if not os.path.exists(path):
        listed = sorted(templates_of(package, PACKAGES[package]), key=lambda each: each["name"])
        # Another judge may be as far.
        new = f"{path}.{os.getpid()}"
        with open(new, "w") as file:
            json.dump(listed, file)
        os.replace(new, path)
    with open(path) as file:
        return json.load(file)


def templates():
    return {"packages": PACKAGES, "templates": [each for package in PACKAGES for each in templates_in(package)]}
