"""Chat templates and what transformers renders of them.

    python tools/golden/chat.py

testdata/golden/chat has templates.json: template, whether contents are lists of parts, whether the
answer is begun, and the text for a message query and a message document.
"""

import json
import shutil

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

import judge
import manifest

QUERY, DOCUMENT = " what is it?\n", "\n A document, with 'quotes' and \"more\".  "
TEMPLATES = [
    judge.CHAT,
    "{%- for m in messages -%}{{ m['role'] }}:{{ m.content | trim }}\n{% endfor %}",
    "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\n"
    "<Query>: {{ messages | selectattr(\"role\", \"eq\", \"query\") | map(attribute=\"content\") | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'equalto', 'document') | map(attribute='content')"
    " | first }}"
    "<|im_end|>\n{%- if add_generation_prompt %}\n<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}",
    "{% set q = messages[0].content.strip() %}\n  {% set d = messages[-1]['content'] %}\n"
    "{# a comment #}\n[{{ q }}] ~ [{{ d ~ eos_token }}]\n",
    "{% for m in messages %}\n    {% if m.role == 'query' and not loop.last %}\nQ {{ m.content }}\n"
    "    {% elif m.role == 'x' %}\nnever\n    {% else %}\nD {{ m.content }}\n    {% endif %}\n{% endfor %}\n",
    "{%- if tools %}tools{%- endif -%}\n{%- if system is not defined %}{{ 'none' }} {% endif %}"
    "{{- messages[0].content + ' / ' -}}   {{ messages[1].content }}{%+ if true %} kept{% endif %}",
    "{% set x = 'a' %}{% for m in messages %}{% set x = x ~ loop.index %}{{ x }}:{{ m.content }};{% endfor %}"
    "{{ x }}{{ nothing | default('d') }}{{ messages | length }}",
    "a {% if 'doc' in messages[1].role or false %} b{% endif %} \n {{ messages[0].content }}"
    "{{ messages[1].content }}",
]
STRUCTURED = [
    "<Query>: {{ (messages | selectattr(\"role\", \"eq\", \"query\") | first).content[0].text }}\n"
    "<Document>: {{ (messages | selectattr(\"role\", \"eq\", \"document\") | first).content[0].text }}\n",
]


def main() -> None:
    case = manifest.GOLDEN / "chat"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    tok = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), eos_token="<|im_end|>")
    out = []
    for structured, templates in ((False, TEMPLATES), (True, STRUCTURED)):
        for template in templates:
            for begin in (False, True):
                part = lambda s: [{"type": "text", "text": s}] if structured else s
                messages = [{"role": "query", "content": part(QUERY)},
                            {"role": "document", "content": part(DOCUMENT)}]
                text = tok.apply_chat_template(messages, chat_template=template, add_generation_prompt=begin,
                                               tokenize=False)
                out.append({"template": template, "structured": structured, "begin": begin, "text": text})
    whole = {"query": QUERY, "document": DOCUMENT, "cases": out}
    (case / "templates.json").write_text(json.dumps(whole, indent=1) + "\n")
    save_file({"cases": torch.tensor([len(out)], dtype=torch.int32)}, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/chat.py", "templates", "text", {"cases": len(out)})
    print(len(out), "templates")


if __name__ == "__main__":
    main()
