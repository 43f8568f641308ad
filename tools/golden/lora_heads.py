"""LoRA adapters that PEFT wrote for models with heads, and what these models give with them.

    python tools/golden/lora_heads.py

One case, testdata/golden/lora-heads. The bases are other cases (tools/golden/heads.py), and so are
the token ids. There are <base>/<adapter>, as PEFT saved it, and golden.safetensors:

    <base>.<adapter> f32   logits [B, labels]; token classification [T, labels]; SPLADE [B, V]

The adapters: "attention", which leaves the head alone; "all" changes the linears of the head, too;
"saved" has a head of its own beside the adapter (modules_to_save), as PEFT makes it when it is told
of the task, and has no tensor. Every sequence is run alone, float32, eager. The notes have what
each adapter changes in the head.
"""

import shutil

import numpy as np
import torch
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft import __version__ as peft_version
from peft.tuners.lora import Linear
from safetensors.numpy import load_file, save_file

import lora
import manifest


def splade(out):
    return torch.log1p(torch.relu(out.logits)).amax(dim=1)


# base: class, PEFT's task, the linears of its attention, what is compared
BASES = {
    "rerank-sigmoid": ("BertForSequenceClassification", "SEQ_CLS", ["query", "value"], lambda o: o.logits),
    "classify-bert": ("BertForSequenceClassification", "SEQ_CLS", ["key", "query"], lambda o: o.logits),
    "classify-xlmr": ("XLMRobertaForSequenceClassification", "SEQ_CLS", ["query", "value"],
                      lambda o: o.logits),
    "classify-distilbert": ("DistilBertForSequenceClassification", "SEQ_CLS", ["q_lin", "v_lin"],
                            lambda o: o.logits),
    "tag-bert": ("BertForTokenClassification", "TOKEN_CLS", ["query", "value"], lambda o: o.logits[0]),
    "splade-bert": ("BertForMaskedLM", None, ["query", "value"], splade),
}


def adapters(task, attention):
    yield "attention", LoraConfig(r=4, lora_alpha=8, target_modules=attention)
    yield "all", LoraConfig(r=3, lora_alpha=5, target_modules="all-linear")
    if task:
        yield "saved", LoraConfig(r=2, lora_alpha=2, target_modules=attention, task_type=task)


def run(model, b, take):
    rows = []
    with torch.no_grad():
        for start, end in zip(b["cu_seqlens"][:-1], b["cu_seqlens"][1:]):
            inputs = {"input_ids": torch.tensor(b["ids"][None, start:end], dtype=torch.long)}
            if "type_ids" in b:
                inputs["token_type_ids"] = torch.tensor(b["type_ids"][None, start:end], dtype=torch.long)
            rows.append(take(model(**inputs)).numpy())
    return np.concatenate(rows).astype(np.float32)


def main():
    torch.set_num_threads(1)
    case = manifest.GOLDEN / "lora-heads"
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    tensors, notes = {}, {}
    for number, (base, (class_name, task, attention, take)) in enumerate(BASES.items()):
        folder = manifest.GOLDEN / base
        b = load_file(folder / "golden.safetensors")
        fresh = lambda: getattr(transformers, class_name).from_pretrained(folder,
                                                                          attn_implementation="eager").eval()
        plain = run(fresh(), b, take)
        for adapter, config in adapters(task, attention):
            model = get_peft_model(fresh(), config)
            lora.randomise_adapter(model, 400 + 10 * number + len(adapter))
            lora.save_adapter(case / base / adapter, model, False)
            if adapter == "saved":
                continue
            model = PeftModel.from_pretrained(fresh(), case / base / adapter).eval()
            tensors[f"{base}.{adapter}"] = got = run(model, b, take)
            changed = float(np.abs(got - plain).max())
            assert changed > 0.02, f"{adapter} changes {base} by {changed} only"
            in_head = sorted(n.removeprefix("base_model.model.") for n, m in model.named_modules()
                             if isinstance(m, Linear) and ".layer." not in n)
            notes[f"{base}.{adapter}"] = in_head
            print(base, adapter, "changes by", changed, "linears of the head:", in_head)
    save_file(tensors, case / "golden.safetensors")
    manifest.write(case, "python tools/golden/lora_heads.py", "adapters of PEFT on other cases", "float32",
                   {"peft": peft_version, "head": notes})


if __name__ == "__main__":
    main()
