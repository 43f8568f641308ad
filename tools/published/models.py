"""The rows of make.py: the configuration of each model and what is in its files."""

import berts
import debertas
import decoders
import encoders


def rows() -> list[dict]:
    encoding = [*berts.bert_family(), *berts.modernberts(), *debertas.debertas(), *encoders.others()]
    return [*encoding, *decoders.qwens(), decoders.gemma()]
