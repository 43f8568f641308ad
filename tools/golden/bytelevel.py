"""A tokenizer of the sort that ModernBERT has, over single bytes and a few merges."""

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
PAIRS = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "t"), ("i", "n"), ("Ġ", "m")]
MARKERS = ["[Q] ", "[D] "]  # as PyLate adds them to a vocabulary
SIZE = len(SPECIAL) + 256 + len(PAIRS) + len(MARKERS)


def tokenizer(longest: int) -> PreTrainedTokenizerFast:
    pieces = SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet()) + [a + b for a, b in PAIRS]
    fast = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(pieces)}, merges=PAIRS))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens(SPECIAL)
    fast.add_tokens([AddedToken(m, normalized=False) for m in MARKERS])
    fast.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]",
        special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    assert fast.get_vocab_size() == SIZE
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, model_max_length=longest, pad_token="[PAD]", cls_token="[CLS]",
        sep_token="[SEP]", mask_token="[MASK]", unk_token="[UNK]",
        model_input_names=["input_ids", "attention_mask"])
