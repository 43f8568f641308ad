"""The rows of make.py: the configuration of each model and what is in its files."""

import berts
import debertas
import decoders
import encoders
import extractors


def rows() -> list[dict]:
    encoding = [*berts.bert_family(), *berts.modernberts(), *debertas.debertas(), *encoders.others()]
    found = [*extractors.gliners(), extractors.relex(), *extractors.bis(), *extractors.gliclasses()]
    return [*encoding, *found, *decoders.qwens(), decoders.gemma()]
