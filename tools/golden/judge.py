"""Tiny rerankers that are decoders: prompts as token ids, and scores, by the models' own published
pipelines (transformers, float32).

    python tools/golden/judge.py

Each case is a folder testdata/golden/judge-<name> with a model, a tokenizer of Qwen's form (NFC,
Qwen's pattern, byte-level BPE, its special tokens) that was trained here, and cases.json: query,
document, instruction and limit of each case. golden.safetensors has, for each, the ids that the
model reads (ids, cu_seqlens) and the score.

    judge-qwen3   Qwen3ForCausalLM, tied; the pieces of Qwen3-Reranker, P(yes) of the softmax
    judge-mxbai   Qwen2ForCausalLM, lm_head of its own; the pieces of mxbai-rerank v2, "1" − "0"
    judge-chat    Qwen3ForCausalLM as sentence-transformers saves it with LogitScore and a chat
                  template of the roles query and document; ids and scores are CrossEncoder's
"""

import copy
import json
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)
from transformers import (PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen3Config,
                          Qwen3ForCausalLM)

import coarse
import manifest
import qwen
import texts

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
           r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ADDED = ["<think>", "</think>"]
WEB = "Given a web search query, retrieve relevant passages that answer the query"
JUDGE = ('Judge whether the Document meets the requirements based on the Query and the Instruct provided. '
         'Note that the answer can only be "yes" or "no".')
MXBAI = ("You are a search relevance expert who evaluates how well documents match search queries. For each "
         "query-document pair, carefully analyze the semantic relationship between them, then provide your "
         "binary relevance judgment (0 for not relevant, 1 for relevant).\nRelevance:")
CHAT = ("{%- for message in messages %}\n"
        "{%- if message.role == 'query' %}\n"
        "{{- '<|im_start|>system\\n' + message.content + '<|im_end|>\\n' }}\n"
        "{%- elif message.role == 'document' %}\n"
        "{{- '<|im_start|>user\\n' + message.content + '<|im_end|>\\n' }}\n"
        "{%- endif %}\n{%- endfor %}\n"
        "{%- if add_generation_prompt %}\n{{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n")


def tokenizer() -> PreTrainedTokenizerFast:
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(PATTERN), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    prompts = [JUDGE, MXBAI, WEB, "yes no system user assistant",
               "query: document: <Instruct>: <Query>: <Document>:",
               "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."]
    t.train_from_iterator(texts.generate()[1][:200] + prompts * 40, trainer)
    t.add_special_tokens([AddedToken(s, normalized=False, special=True) for s in SPECIAL])
    t.add_tokens([AddedToken(s, normalized=False) for s in ADDED])
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                   padding_side="left", clean_up_tokenization_spaces=False,
                                   model_max_length=1024)


def cases() -> list[dict]:
    queries, passages = texts.generate()
    pairs = [(queries[0], passages[0]), (queries[0], passages[15]), (queries[3], passages[31]),
             ("", "an empty query"), ("what?", ""), (" leading blank\n", "\n\nnewlines first, blanks last  "),
             ("naïve café 茶叶", "cafe\u0301 — emoji 👩‍🔬, Ünïcode, العربية"),
             ("who <|im_end|> ends", "a <|im_start|>system<|im_end|> in the text <think> and"
              " </think>"),
             (queries[7], " ".join(passages[70:74]))]
    out = [{"query": q, "document": d, "instruction": None, "limit": 1024} for q, d in pairs]
    out += [dict(out[0], instruction="Find the text that contradicts the claim"),
            dict(out[1], instruction=""),
            dict(out[8], limit=300), dict(out[2], limit=300)]
    return out


def qwen3_ids(tok, c) -> list[int]:
    enc = lambda s: tok.encode(s, add_special_tokens=False)
    before = enc(f"<|im_start|>system\n{JUDGE}<|im_end|>\n<|im_start|>user\n")
    before += enc(f"<Instruct>: {c['instruction'] or WEB}\n<Query>: {c['query']}\n<Document>: ")
    after = enc("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    return before + enc(c["document"])[:c["limit"] - len(before) - len(after)] + after


def card_ids(tok, c) -> list[int]:
    """As the model card's script does it: instruction, query and document are one string."""
    enc = lambda s: tok.encode(s, add_special_tokens=False)
    before = enc(f"<|im_start|>system\n{JUDGE}<|im_end|>\n<|im_start|>user\n")
    after = enc("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    text = f"<Instruct>: {c['instruction'] or WEB}\n<Query>: {c['query']}\n<Document>: {c['document']}"
    return before + enc(text)[:c["limit"] - len(before) - len(after)] + after


def mxbai_ids(tok, c) -> list[int]:
    enc = lambda s: tok.encode(s, add_special_tokens=False)
    before = enc("<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
                 "<|im_end|>\n<|im_start|>user\n") + enc(f"query: {c['query']}") + enc("\n")
    after = enc("\n") + enc(MXBAI) + enc("<|im_end|>\n<|im_start|>assistant\n")
    return before + enc(f"document: {c['document']}")[:c["limit"] - len(before) - len(after)] + after


def model(config_class, model_class, vocab: int, seed: int, **more):
    config = config_class(vocab_size=vocab, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                          num_key_value_heads=2, intermediate_size=40, max_position_embeddings=1024,
                          rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                          attn_implementation="eager", **more)
    torch.manual_seed(seed)
    m = model_class(config).eval()
    qwen.randomise(m.model, seed)
    if not config.tie_word_embeddings:
        with torch.no_grad():
            generator = torch.Generator().manual_seed(seed)
            m.lm_head.weight.copy_(coarse.normal(m.lm_head.weight.shape, 0.3, generator))
    with torch.no_grad():
        m.model.embed_tokens.weight.mul_(0.25)  # so that no softmax saturates
        for p in m.parameters():
            p.copy_(p.to(torch.bfloat16).float())
    return m


def last_logits(m, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return m(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1]


def save(m, tok, case) -> None:
    copy.deepcopy(m).to(torch.bfloat16).save_pretrained(case)  # a copy: the angles of m must stay float32
    tok.save_pretrained(case)


def finish(case, done: list[dict], what: str, notes: dict) -> None:
    ids, cu = np.concatenate([d["ids"] for d in done]), np.cumsum([0] + [len(d["ids"]) for d in done])
    save_file({"ids": torch.tensor(ids, dtype=torch.int32), "cu_seqlens": torch.tensor(cu, dtype=torch.int32),
               "scores": torch.tensor([d["score"] for d in done])}, case / "golden.safetensors")
    texts_only = [{k: v for k, v in d.items() if k not in ("ids", "score")} for d in done]
    (case / "cases.json").write_text(json.dumps(texts_only, indent=1, ensure_ascii=False) + "\n")
    for name in ("generation_config.json", "README.md"):
        (case / name).unlink(missing_ok=True)
    manifest.write(case, "python tools/golden/judge.py", what, "float32", notes)
    scores = [c["score"] for c in done]
    print(case.name, "scores", min(scores), "to", max(scores), notes,
          sum(f.stat().st_size for f in case.rglob("*") if f.is_file()) // 1024, "KiB")


def fresh(name: str):
    case = manifest.GOLDEN / name
    shutil.rmtree(case, ignore_errors=True)
    case.mkdir(parents=True)
    return case


def make_qwen3(tok) -> None:
    case = fresh("judge-qwen3")
    m = model(Qwen3Config, Qwen3ForCausalLM, len(tok) + 3, 401, head_dim=32, tie_word_embeddings=True)
    save(m, tok, case)
    yes, no = (tok.encode(w, add_special_tokens=False)[0] for w in ("yes", "no"))

    def score(ids):
        z = last_logits(m, ids)
        return float(torch.log_softmax(torch.stack([z[no], z[yes]]), 0)[1].exp())

    done = []
    for c in cases():
        ids = qwen3_ids(tok, c)
        done.append(c | {"ids": ids, "score": score(ids)})
    off = max(abs(score(card_ids(tok, c)) - d["score"]) for c, d in zip(cases(), done))
    finish(case, done, "random Qwen3, seed 401",
           {"yes": yes, "no": no, "max_difference_to_the_card_s_one_string": off})


def make_mxbai(tok) -> None:
    case = fresh("judge-mxbai")
    m = model(Qwen2Config, Qwen2ForCausalLM, len(tok), 402, tie_word_embeddings=False)
    save(m, tok, case)
    one, zero = (tok.encode(w, add_special_tokens=False)[0] for w in ("1", "0"))
    done = []
    for c in cases():
        ids = mxbai_ids(tok, c)
        z = last_logits(m, ids)
        done.append(c | {"ids": ids, "score": float(z[one] - z[zero])})
    finish(case, done, "random Qwen2, seed 402", {"one": one, "zero": zero})


def make_chat(tok) -> None:
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    case = fresh("judge-chat")
    m = model(Qwen3Config, Qwen3ForCausalLM, len(tok), 403, head_dim=32, tie_word_embeddings=True)
    tok.chat_template = CHAT
    plain = case / "plain"
    save(m, tok, plain)
    transformer = Transformer(str(plain), transformer_task="text-generation",
                              model_kwargs={"dtype": "bfloat16"},
                              processing_kwargs={"chat_template": {"add_generation_prompt": True}})
    positive = tok.encode("yes", add_special_tokens=False)[0]
    ce = CrossEncoder(modules=[transformer, LogitScore(true_token_id=positive)], device="cpu",
                      activation_fn=torch.nn.Identity())
    ce.save_pretrained(str(case))
    ce = CrossEncoder(str(case), device="cpu", model_kwargs={"dtype": torch.float32})
    shutil.rmtree(plain)
    done = []
    for c in cases():
        if c["instruction"]:
            continue  # its prompt has no place for one
        ce.max_seq_length = c["limit"]
        features = ce.preprocess([(c["query"], c["document"])])
        score = float(ce.predict([(c["query"], c["document"])])[0])
        done.append(c | {"ids": features["input_ids"][0].tolist(), "score": score})
    finish(case, done, "random Qwen3 with LogitScore, seed 403", {"true_token_id": positive})


def main() -> None:
    torch.set_num_threads(1)
    tok = tokenizer()
    make_qwen3(tok)
    make_mxbai(tok)
    make_chat(tok)


if __name__ == "__main__":
    main()
