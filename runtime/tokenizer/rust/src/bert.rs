//! BERT's pipeline (BertNormalizer, BertPreTokenizer, WordPiece) as one streaming pass over bytes.
//!
//! The general pipeline keeps an alignment for every byte and a `String` for every piece, but ids
//! need neither. This pass gives the same ids an order of magnitude faster, and stops at a token
//! limit. A tokenizer with a setting that it cannot reproduce exactly (see `Bert::new`) uses the
//! general pipeline.

use crate::trie::{Trie, ROOT};
use std::cell::Cell;
use tokenizers::{Model, ModelWrapper, NormalizerWrapper, PreTokenizerWrapper, Tokenizer};
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::{char::canonical_combining_class, UnicodeNormalization};

const WORD: u8 = 0;
const SPACE: u8 = 1;
const PUNCT: u8 = 2;
const DROP: u8 = 3;
const HIGH: u8 = 4;
/// Set when some added token starts with this byte.
const START: u8 = 0x80;

/// Characters below this have an entry in `Bert::plain`. They include all alphabets in common use.
const PLAIN: usize = 0x3100;

pub struct Bert {
    trie: Trie,
    /// The state from which continuation pieces are looked up; None when no entry has the prefix.
    cont: Option<u32>,
    unk: u32,
    max_chars: usize,
    lowercase: bool,
    strip_accents: bool,
    chinese: bool,
    class: [u8; 256],
    lower: [u8; 128],
    /// The result for each character, whatever its neighbours are: a class and the character that
    /// is left. HIGH: its neighbours matter, or several characters are left.
    plain: Vec<(u8, char)>,
    /// Added tokens by first byte, longest first: (content, id).
    added: Vec<Vec<(Vec<u8>, u32)>>,
}

impl Bert {
    /// Takes a tokenizer if this pass can reproduce it, else returns None. It needs a
    /// BertNormalizer that cleans text, a BertPreTokenizer, a WordPiece model that knows its
    /// unknown token, and added tokens that match the raw text literally.
    pub fn new(hf: &Tokenizer) -> Option<Bert> {
        let norm = match hf.get_normalizer()? {
            NormalizerWrapper::BertNormalizer(n) if n.clean_text => n,
            _ => return None,
        };
        if !matches!(hf.get_pre_tokenizer()?, PreTokenizerWrapper::BertPreTokenizer(_)) {
            return None;
        }
        let model = match hf.get_model() {
            ModelWrapper::WordPiece(m) => m,
            _ => return None,
        };
        let mut class = [HIGH; 256];
        let mut lower = [0u8; 128];
        for b in 0..128u8 {
            let c = b as char;
            class[b as usize] = if matches!(c, '\t' | '\n' | '\r' | ' ') {
                SPACE
            } else if c.is_control() {
                DROP
            } else if is_punct(c) {
                PUNCT
            } else {
                WORD
            };
            lower[b as usize] = if norm.lowercase { b.to_ascii_lowercase() } else { b };
        }
        let mut added: Vec<Vec<(Vec<u8>, u32)>> = vec![Vec::new(); 256];
        for (id, t) in hf.get_added_tokens_decoder() {
            // White space beside a token ends words and leaves nothing, whether the token takes it
            // (lstrip, rstrip) or not.
            if t.normalized || t.single_word {
                return None;
            }
            let content = t.content.into_bytes();
            class[*content.first()? as usize] |= START;
            added[content[0] as usize].push((content, id));
        }
        added.iter_mut().for_each(|v| v.sort_by_key(|t| std::cmp::Reverse(t.0.len())));
        let unk = model.token_to_id(&model.unk_token)?;
        let trie = Trie::new(model.get_vocab().into_iter().map(|(k, v)| (k.into_bytes(), v)));
        let mut bert = Bert {
            cont: trie.walk(model.continuing_subword_prefix.as_bytes()),
            trie,
            unk,
            max_chars: model.max_input_chars_per_word,
            lowercase: norm.lowercase,
            strip_accents: norm.strip_accents.unwrap_or(norm.lowercase),
            chinese: norm.handle_chinese_chars,
            class,
            lower,
            plain: Vec::new(),
            added,
        };
        bert.plain = (0..PLAIN as u32).map(|c| bert.plain(char::from_u32(c).unwrap_or(' '))).collect();
        Some(bert)
    }

    /// The entry of `plain` for a character. Decomposition reorders the combining characters
    /// between two that do not combine. Only those that stay in the text matter. So a mark that is
    /// stripped can be handled alone, and a mark that is kept cannot.
    fn plain(&self, c: char) -> (u8, char) {
        if c == '\u{fffd}' || c.is_other() {
            return (DROP, c);
        }
        let c = if c.is_whitespace() { ' ' } else { c };
        let kept: Vec<char> = if self.strip_accents {
            std::iter::once(c).nfd().map(|d| d.0).filter(|d| !d.is_mark_nonspacing()).collect()
        } else {
            vec![c]
        };
        if self.chinese && is_chinese(c)
            || self.strip_accents && kept.iter().any(|&d| canonical_combining_class(d) != 0)
        {
            return (HIGH, c);
        }
        let left: Vec<char> = match self.lowercase {
            true => kept.into_iter().flat_map(char::to_lowercase).collect(),
            false => kept,
        };
        match left[..] {
            [] => (DROP, c),
            [d] if d.is_whitespace() => (SPACE, d),
            [d] if is_punct(d) => (PUNCT, d),
            [d] => (WORD, d),
            _ => (HIGH, c),
        }
    }

    /// Appends the ids of `text` (without special tokens) to `out`. It stops after the word that
    /// takes their number above `limit`. Invalid UTF-8 counts as U+FFFD, which cleaning removes.
    pub fn encode(&self, text: &[u8], limit: usize, word: &mut Word, out: &mut Vec<u32>) {
        let limit = out.len().saturating_add(limit);
        word.clear();
        let mut i = 0;
        while i < text.len() {
            let class = self.class[text[i] as usize];
            if class & START != 0 {
                if let Some((id, n)) = self.added_at(&text[i..]) {
                    self.flush(word, out);
                    out.push(id);
                    i += n;
                    if out.len() > limit {
                        return;
                    }
                    continue;
                }
            }
            match class & !START {
                WORD => {
                    let end =
                        i + 1 + text[i + 1..].iter().take_while(|&&b| self.class[b as usize] == WORD).count();
                    word.extend(&text[i..end], &self.lower, self.max_chars);
                    i = end;
                    continue;
                }
                DROP => {}
                HIGH => {
                    let (c, n) = decode(&text[i..]);
                    let ideograph = self.chinese && is_ideograph(c);
                    match self.plain.get(c as usize) {
                        Some(&(WORD, c)) => word.push(c, self.max_chars),
                        Some(&(DROP, _)) => {}
                        Some(&(kind @ (SPACE | PUNCT), c)) => {
                            self.flush(word, out);
                            if kind == PUNCT {
                                self.single(c, out);
                            }
                        }
                        None if ideograph => {
                            self.flush(word, out);
                            self.single(c, out);
                        }
                        _ => {
                            i = self.high(text, i, limit, word, out);
                            if out.len() > limit {
                                return;
                            }
                            continue;
                        }
                    }
                    if out.len() > limit {
                        return;
                    }
                    i += n;
                    continue;
                }
                kind => {
                    self.flush(word, out);
                    if kind == PUNCT {
                        self.single(text[i] as char, out);
                    }
                    if out.len() > limit {
                        return;
                    }
                }
            }
            i += 1;
        }
        self.flush(word, out);
    }

    /// Encodes the run at `i` up to the next ASCII character or ideograph, and returns the run's
    /// end, which is above `i`. Removed characters belong to the run, because marks on both sides
    /// of one are reordered together.
    fn high(&self, text: &[u8], i: usize, limit: usize, word: &mut Word, out: &mut Vec<u32>) -> usize {
        let pos = Cell::new(i);
        let run = std::iter::from_fn(|| loop {
            let rest = &text[pos.get()..];
            let class = self.class[*rest.first()? as usize];
            if class & START != 0 && self.added_at(rest).is_some() {
                return None;
            }
            match class & !START {
                DROP => pos.set(pos.get() + 1),
                HIGH => {
                    let (c, n) = decode(rest);
                    if self.chinese && is_ideograph(c) {
                        return None;
                    }
                    pos.set(pos.get() + n);
                    if c != '\u{fffd}' && !c.is_other() {
                        return Some(if c.is_whitespace() { ' ' } else { c });
                    }
                }
                _ => return None,
            }
        });
        // Put spaces around a CJK character, in the order in which the normalizer inserts them.
        let padded = run.flat_map(|c| {
            let n = if self.chinese && is_chinese(c) { 3 } else { 1 };
            [' ', c, ' '].into_iter().skip((n == 1) as usize).take(n)
        });
        if self.strip_accents {
            for (c, _) in padded.nfd().filter(|(c, _)| !c.is_mark_nonspacing()) {
                self.push(c, word, out);
                if out.len() > limit {
                    break;
                }
            }
        } else {
            for c in padded {
                self.push(c, word, out);
                if out.len() > limit {
                    break;
                }
            }
        }
        pos.get()
    }

    /// Adds one cleaned and decomposed character.
    fn push(&self, c: char, word: &mut Word, out: &mut Vec<u32>) {
        if self.lowercase {
            c.to_lowercase().for_each(|c| self.push_lower(c, word, out));
        } else {
            self.push_lower(c, word, out);
        }
    }

    fn push_lower(&self, c: char, word: &mut Word, out: &mut Vec<u32>) {
        if c.is_whitespace() {
            self.flush(word, out);
        } else if is_punct(c) {
            self.flush(word, out);
            self.single(c, out);
        } else {
            word.push(c, self.max_chars);
        }
    }

    /// Emits a word of one character.
    fn single(&self, c: char, out: &mut Vec<u32>) {
        let mut buffer = [0; 4];
        let c = c.encode_utf8(&mut buffer).as_bytes();
        match self.trie.longest(ROOT, c) {
            Some((id, n)) if n == c.len() && self.max_chars > 0 => out.push(id),
            _ => out.push(self.unk),
        }
    }

    /// Emits the collected word as the longest pieces, found greedily, or as the unknown token.
    fn flush(&self, word: &mut Word, out: &mut Vec<u32>) {
        if word.chars == 0 {
            return;
        }
        let mark = out.len();
        if word.chars > self.max_chars {
            out.push(self.unk);
        } else {
            let mut state = Some(ROOT);
            let mut rest = &word.bytes[..];
            while !rest.is_empty() {
                match state.and_then(|s| self.trie.longest(s, rest)) {
                    Some((id, n)) => {
                        out.push(id);
                        rest = &rest[n..];
                        state = self.cont;
                    }
                    None => {
                        out.truncate(mark);
                        out.push(self.unk);
                        break;
                    }
                }
            }
        }
        word.clear();
    }

    /// Returns the longest added token that `text` starts with: (id, length).
    fn added_at(&self, text: &[u8]) -> Option<(u32, usize)> {
        self.added[text[0] as usize].iter().find(|t| text.starts_with(&t.0)).map(|t| (t.1, t.0.len()))
    }
}

/// The word that is being collected. Characters beyond the longest word that WordPiece reads are
/// only counted.
#[derive(Default)]
pub struct Word {
    bytes: Vec<u8>,
    chars: usize,
}

impl Word {
    fn clear(&mut self) {
        self.bytes.clear();
        self.chars = 0;
    }

    #[inline]
    fn extend(&mut self, ascii: &[u8], lower: &[u8; 128], max: usize) {
        let room = max.saturating_sub(self.chars).min(ascii.len());
        self.bytes.extend(ascii[..room].iter().map(|&b| lower[(b & 127) as usize]));
        self.chars += ascii.len();
    }

    fn push(&mut self, c: char, max: usize) {
        self.chars += 1;
        if self.chars <= max {
            self.bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

fn is_punct(c: char) -> bool {
    c.is_ascii_punctuation() || c.is_punctuation()
}

/// The blocks that BERT's normalizer calls Chinese.
fn is_chinese(c: char) -> bool {
    matches!(c as u32,
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F |
        0x2B740..=0x2B81F | 0x2B920..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}

/// The ideographs of `is_chinese` that decompose to themselves and combine with nothing.
fn is_ideograph(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

/// Returns the character at the start of non-empty `text` and its length, or U+FFFD and the length
/// of the invalid sequence.
#[inline]
fn decode(text: &[u8]) -> (char, usize) {
    // Two and three bytes hold every alphabet; the standard library decodes the rest.
    let low = |b: u8| (b & 0x3f) as u32;
    match *text {
        [a @ 0xc2..=0xdf, b @ 0x80..=0xbf, ..] => {
            (char::from_u32((a as u32 & 0x1f) << 6 | low(b)).unwrap_or('\u{fffd}'), 2)
        }
        [a @ 0xe1..=0xec, b @ 0x80..=0xbf, c @ 0x80..=0xbf, ..] => {
            (char::from_u32((a as u32 & 0xf) << 12 | low(b) << 6 | low(c)).unwrap_or('\u{fffd}'), 3)
        }
        _ => decode_any(text),
    }
}

fn decode_any(text: &[u8]) -> (char, usize) {
    let head = &text[..text.len().min(4)];
    let valid = match std::str::from_utf8(head) {
        Ok(s) => s,
        Err(e) if e.valid_up_to() > 0 => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or(""),
        Err(e) => return ('\u{fffd}', e.error_len().unwrap_or(head.len())),
    };
    valid.chars().next().map_or(('\u{fffd}', 1), |c| (c, c.len_utf8()))
}
