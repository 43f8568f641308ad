//! Computes the ids of a pre-token that may be too long to be tokenized at once.
//!
//! The pre-token is fed in fragments. An id comes out as soon as nothing that may follow can change
//! it. A position in a pre-token that no entry of the vocabulary, found in the text, spans is a
//! boundary between two tokens whatever follows, so the ids before it are final. For BPE the text
//! after it is tokenized as if it stood alone, because no merge crosses the boundary. For Unigram
//! the search continues with the score that it had there, so that sums are rounded as in one pass.

use crate::trie::{Trie, ROOT};
use std::sync::OnceLock;
use tokenizers::{Model, ModelWrapper};

/// Bytes of a pre-token that are collected before its ids are computed.
pub const ENOUGH: usize = 8 << 10;
/// Bytes of a pre-token that may be held without a boundary: a text of 1 MiB, which byte-level BPE may
/// double. The library then needs some 60 bytes for each of them.
pub const MOST: usize = 2 << 20;

/// The tables of a model whose pre-tokens can be cut. They are built for the first long pre-token.
struct Table {
    trie: Trie,
    /// The scores of a Unigram model, by id.
    scores: Vec<f64>,
    /// Bytes of the longest entry of the vocabulary.
    longest: usize,
    /// Every character that is no entry becomes tokens of its bytes, which nothing merges.
    bytes: bool,
}

/// Tokenizes long pre-tokens of one model. Safe for concurrent use.
pub struct Long {
    table: OnceLock<Option<Table>>,
    unk_id: Option<u32>,
}

/// The pre-token that is being collected.
#[derive(Default)]
pub struct Word {
    text: String,
    /// Its beginning has been tokenized and removed.
    cut: bool,
    /// Bytes at which the next search for a boundary runs. After a search without a result it is
    /// twice the present size, so that a word is not searched for each of its fragments.
    next: usize,
    /// Unigram: score of the best path to the beginning of `text`.
    score: f64,
}

impl Long {
    pub fn new(unk_id: Option<u32>) -> Long {
        Long { table: OnceLock::new(), unk_id }
    }

    /// Appends a fragment to the word, and the ids that are final to `out`. It looks for them once
    /// the word has `enough` bytes.
    pub fn push(
        &self,
        model: &ModelWrapper,
        word: &mut Word,
        text: &str,
        enough: usize,
        out: &mut Vec<u32>,
    ) -> Result<(), Failed> {
        word.text.push_str(text);
        if word.text.len() < enough.max(word.next) && word.text.len() <= MOST {
            return Ok(());
        }
        word.next = 2 * word.text.len();
        if let Some(table) = self.table.get_or_init(|| Table::new(model, self.unk_id)) {
            if let Some(at) = table.boundary(&word.text) {
                self.emit(model, table, word, at, out)?;
                word.text.drain(..at);
                (word.cut, word.next) = (true, 0);
            }
        }
        if word.text.len() > MOST {
            return Err(Failed::Stuck);
        }
        Ok(())
    }

    /// Appends the ids of the rest of the word, which ends here.
    pub fn finish(&self, model: &ModelWrapper, word: &mut Word, out: &mut Vec<u32>) -> Result<(), Failed> {
        if !word.text.is_empty() {
            match self.table.get().and_then(Option::as_ref).filter(|_| word.cut) {
                Some(table) => self.emit(model, table, word, word.text.len(), out)?,
                None => ids(model, &word.text, out)?,
            }
        }
        word.text.clear();
        (word.cut, word.next, word.score) = (false, 0, 0.0);
        Ok(())
    }

    /// Appends the ids of the word's first `end` bytes; `end` is a boundary.
    fn emit(
        &self,
        model: &ModelWrapper,
        table: &Table,
        word: &mut Word,
        end: usize,
        out: &mut Vec<u32>,
    ) -> Result<(), Failed> {
        match model {
            ModelWrapper::Unigram(m) => {
                let unk = self.unk_id.ok_or_else(|| Failed::Library("unk_id is missing".into()))?;
                word.score = table.best(&word.text[..end], word.score, m.min_score - 10.0, unk, out, |run| {
                    // As in the library, a run of unknown characters is one token: an entry of the
                    // vocabulary, or the unknown token.
                    model.token_to_id(run).unwrap_or(unk)
                });
                Ok(())
            }
            _ => ids(model, &word.text[..end], out),
        }
    }
}

pub enum Failed {
    /// There is no boundary within the bytes that may be held.
    Stuck,
    Library(String),
}

fn ids(model: &ModelWrapper, text: &str, out: &mut Vec<u32>) -> Result<(), Failed> {
    let tokens = model.tokenize(text).map_err(|e| Failed::Library(e.to_string()))?;
    out.extend(tokens.iter().map(|t| t.id));
    Ok(())
}

impl Table {
    /// Returns None for a model whose tokens are not simply pieces of the text.
    fn new(model: &ModelWrapper, unk_id: Option<u32>) -> Option<Table> {
        let (mut scores, mut bytes) = (Vec::new(), false);
        match model {
            ModelWrapper::Unigram(m) => {
                unk_id?;
                if m.byte_fallback() || m.alpha.is_some_and(|a| a != 0.0) {
                    return None;
                }
                scores = m.iter().map(|t| t.1).collect();
            }
            ModelWrapper::BPE(m) => {
                let plain = m.dropout.is_none_or(|d| d == 0.0)
                    && m.continuing_subword_prefix.as_deref().unwrap_or("").is_empty()
                    && m.end_of_word_suffix.as_deref().unwrap_or("").is_empty();
                if !plain {
                    return None;
                }
                bytes = m.byte_fallback && (0..256).all(|b| model.token_to_id(&format!("<0x{b:02X}>")).is_some());
            }
            _ => return None,
        }
        let vocab = model.get_vocab();
        let longest = vocab.keys().map(String::len).max()?;
        if longest > ENOUGH / 4 {
            return None;
        }
        let trie = Trie::new(vocab.into_iter().filter(|t| !t.0.is_empty()).map(|(k, v)| (k.into_bytes(), v)));
        Some(Table { trie, scores, longest, bytes })
    }

    /// Returns the last position of `text` that no entry spans, whatever follows `text`. More bytes
    /// than the longest entry has lie on each side of it: a model that ignores merges takes a whole
    /// pre-token that is an entry, and neither side may be taken for one.
    fn boundary(&self, text: &str) -> Option<usize> {
        // An entry that begins at or before this position lies completely in `text`.
        let last = text.len().checked_sub(self.longest + 1)?;
        let (mut reach, mut found) = (0, None);
        for (i, c) in text.char_indices() {
            if i > last {
                break;
            }
            if i > self.longest && reach <= i {
                found = Some(i);
            }
            let n = c.len_utf8();
            let mut alone = self.bytes;
            let mut end = i + n;
            self.trie.each(ROOT, &text.as_bytes()[i..], |_, len| {
                alone |= len == n;
                end = end.max(i + len);
            });
            // Unknown characters may be joined into one token, so there is no boundary right after
            // one.
            reach = reach.max(end + !alone as usize);
        }
        found
    }

    /// Appends the ids of Unigram's best path through `text`, starting at the score `base`. Returns
    /// the score at its end.
    fn best(
        &self,
        text: &str,
        base: f64,
        unk_score: f64,
        unk: u32,
        out: &mut Vec<u32>,
        named: impl Fn(&str) -> u32,
    ) -> f64 {
        const NONE: usize = usize::MAX;
        let mut nodes = vec![(0.0f64, NONE, 0u32); text.len() + 1];
        nodes[0].0 = base;
        for (i, c) in text.char_indices() {
            let (here, n) = (nodes[i].0, c.len_utf8());
            let mut alone = false;
            let mut reach = |end: usize, score: f64, id: u32| {
                let node = &mut nodes[end];
                if node.1 == NONE || score > node.0 {
                    *node = (score, i, id);
                }
            };
            self.trie.each(ROOT, &text.as_bytes()[i..], |id, len| {
                reach(i + len, self.scores[id as usize] + here, id);
                alone |= len == n;
            });
            if !alone {
                reach(i + n, unk_score + here, unk);
            }
        }
        let (mark, mut end) = (out.len(), text.len());
        let score = nodes[end].0;
        while end > 0 {
            let (_, start, id) = nodes[end];
            let mut from = start;
            if id == unk {
                while from > 0 && nodes[from].2 == unk && nodes[from].1 != NONE {
                    from = nodes[from].1;
                }
                out.push(named(&text[from..end]));
            } else {
                out.push(id);
            }
            end = from;
        }
        out[mark..].reverse();
        score
    }
}
