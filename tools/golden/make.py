"""Makes testdata/golden and its archives anew, one maker after another. `make golden` calls it in a
venv of its own; late.py and m3_text.py have another (`make golden-sie`), for they run adapters of
sie-server, which need all of that, and pylate_colbert.py has a third (`make golden-pylate`).
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MINILM = HERE.parents[1] / "build/models/all-MiniLM-L6-v2"
MAKERS = [["bert.py"], ["sentence.py"], ["saved.py"], ["heads.py"], ["pipelines.py"], ["lora.py"],
          ["lora_heads.py"], ["minilm.py"], ["minilm_short.py"], ["fold.py"], ["quantise.py"], ["rope.py"],
          ["deep.py"],
          ["modernbert.py"], ["modernbert_text.py"], ["qwen.py"], ["qwen_sentence.py"],
          ["dense_torch.py"], ["qwen_heads.py"],
          ["judge.py"], ["chat.py"], ["jina_bert.py"], ["jina_xlmr.py"], ["mpnet.py"],
          ["deberta.py"], ["deberta_text.py"],
          ["gte.py"], ["gte_text.py"], ["nomic.py"],
          ["tokenizer.py", "--minilm", str(MINILM)], ["tokenizer_files.py"],
          ["gemma.py"], ["eurobert.py"], ["t5.py"], ["pooling.py"],
          ["words.py"], ["word_tokens.py"], ["spans.py"], ["gliclass_models.py"],
          ["gliner_spans.py"], ["gliner_bi.py"], ["gliner_relex.py"], ["gliner_union.py"],
          ["gliner_order.py"], ["gliner_long.py"]]

for name, *args in MAKERS:
    print(f"== {name}", flush=True)
    subprocess.run([sys.executable, str(HERE / name), *args], check=True)
print("look at `git diff --stat testdata`: a change is a commit of its own")
