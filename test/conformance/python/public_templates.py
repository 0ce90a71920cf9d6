"""Chat templates of public source packages, and what Python's Jinja writes with them, set up as transformers does."""

import datetime

from transformers.utils.chat_template_utils import _compile_jinja_template

from serve import serve
from template_packages import templates

NOW = datetime.datetime(2026, 7, 26, 13, 5, 9)


def render(source, conversations, bos, eos, **_):
    template = _compile_jinja_template(source)
    template.globals["strftime_now"] = NOW.strftime
    written = []
    for conversation in conversations:
        given = {"tools": None, "documents": None, "bos_token": bos, "eos_token": eos, **conversation}
        try:
            written.append({"text": template.render(**given)})
        except Exception as error:
            written.append({"refused": f"{type(error).__name__}: {error}"})
    return written


serve({"templates": templates, "render": render})
