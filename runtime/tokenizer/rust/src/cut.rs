//! Finds places where a text can be cut so that the ids on one side do not depend on the other.
//!
//! A blank cut lies between a letter or digit and a space or newline, where the pre-tokenizer
//! splits. An inner cut lies between two letters, or between an ASCII digit and an ASCII mark; a
//! pre-token may run through it and is joined again. Both are safe when every stage is local there:
//! the normalizer maps characters (or grapheme clusters) one by one and does not join the two
//! sides, the pre-tokenizer looks ahead only over white space, and no added token can span the cut.
//! `Rule::new` knows the stages for which this holds. Any other stage forbids cuts; the text is
//! then taken whole or refused.

use std::collections::HashSet;

use serde_json::Value;
use unicode_categories::UnicodeCategories;
use unicode_normalization_alignments::{char::canonical_combining_class, UnicodeNormalization};
use unicode_segmentation::UnicodeSegmentation;
use tokenizers::{
    NormalizedString, Normalizer, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Tokenizer,
};

/// Pre-tokenizing patterns that end a match between a letter or digit and white space, and look
/// ahead only from white space (GPT-2, cl100k and its Llama 3 and Qwen 2 forms).
const PATTERNS: [&str; 4] = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
];

/// The kind of cut that is possible at a position in a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cut {
    None,
    Blank,
    Inner,
}

#[derive(Default, Debug, PartialEq)]
pub struct Rule {
    space: bool,
    newline: bool,
    inner: bool,
    /// A space is one more character of a pre-token, which no stage looks across.
    joined: bool,
    /// Adjacent characters of added tokens, and last characters of added tokens, in the raw and in
    /// the normalised form. The tokenizer treats what follows an added token as the start of a
    /// text, and some added tokens look at what follows them.
    pairs: HashSet<(char, char)>,
    ends: HashSet<char>,
}

impl Rule {
    pub fn new(hf: &Tokenizer) -> Rule {
        let local = match hf.get_normalizer().map(serde_json::to_value) {
            None => true,
            Some(Ok(n)) => local_normalizer(&n),
            Some(Err(_)) => false,
        };
        let splits = match hf.get_pre_tokenizer().map(serde_json::to_value) {
            None => Some(false),
            Some(Ok(p)) => splitting(&p),
            Some(Err(_)) => None,
        };
        let Some(splits) = splits.filter(|_| local) else { return Rule::default() };
        let mut rule = Rule { inner: true, joined: joined(hf), ..Rule::default() };
        let mut blank = splits;
        for t in hf.get_added_tokens_decoder().values() {
            let normal = normalized(hf, &t.content);
            for form in [Some(&t.content), normal.as_ref()].into_iter().flatten() {
                let chars: Vec<char> = form.chars().collect();
                blank &= !chars.iter().skip(1).any(|c| c.is_whitespace() || *c == '\u{2581}');
                rule.pairs.extend(chars.windows(2).map(|w| (w[0], w[1])));
                rule.ends.extend(chars.last());
            }
        }
        if blank {
            let at = |c: char| ["Ab", "a1", "\u{4e2d}"].iter().all(|w| probe(hf, w, c) == Some(true));
            (rule.space, rule.newline) = (at(' '), at('\n'));
        }
        rule
    }

    /// False when texts are never cut.
    pub fn any(&self) -> bool {
        self.inner
    }

    /// Returns the first blank cut in [from, to).
    pub fn blank(&self, hf: &Tokenizer, text: &[u8], from: usize, to: usize) -> Option<usize> {
        (from.max(1)..to).find(|&i| self.is_blank(hf, text, i))
    }

    /// Whether position i is a blank cut.
    pub fn is_blank(&self, hf: &Tokenizer, text: &[u8], i: usize) -> bool {
        matches!(text.get(i), Some(b' ' | b'\n')) && self.cut(hf, text, i) == Cut::Blank
    }

    /// Returns the kind of cut at position i of the text.
    pub fn cut(&self, hf: &Tokenizer, text: &[u8], i: usize) -> Cut {
        if i == 0 || i >= text.len() {
            return Cut::None;
        }
        let white = match text[i] {
            b' ' if self.joined => {
                return if self.ends_in_word(hf, &text[..i]) { Cut::Inner } else { Cut::None };
            }
            b' ' => self.space,
            b'\n' => self.newline,
            b if b.is_ascii_punctuation() => {
                let inner = self.inner && self.after_digit(hf, text, i);
                return if inner { Cut::Inner } else { Cut::None };
            }
            b if b.is_ascii() && !b.is_ascii_alphabetic() || b as i8 <= -0x40 => return Cut::None,
            _ => {
                let inner = self.inner && self.between(hf, text, i);
                return if inner { Cut::Inner } else { Cut::None };
            }
        };
        if white && self.ends_in_word(hf, &text[..i]) {
            Cut::Blank
        } else {
            Cut::None
        }
    }

    /// Whether `text` ends in a letter or digit that white space may follow.
    fn ends_in_word(&self, hf: &Tokenizer, text: &[u8]) -> bool {
        let mut back = backwards(text);
        let Some(c) = back.next() else { return false };
        if self.ends_added(hf, c) {
            return false;
        }
        if c.is_ascii() || is_ideograph(c) {
            return c.is_ascii_alphanumeric() || is_ideograph(c);
        }
        // The last character is a grapheme cluster by itself, so that nothing before it changes it.
        plain(hf, c) && apart(c, ' ') && back.next().is_none_or(|b| apart(b, c))
    }

    /// Whether an added token may end in c.
    fn ends_added(&self, hf: &Tokenizer, c: char) -> bool {
        let normal = |c: char| normalized(hf, &c.to_string()).and_then(|n| n.chars().last());
        // Most added tokens end in a bracket, so the second test rarely runs.
        self.ends.contains(&c)
            || self.ends.iter().any(|e| e.is_alphanumeric()) && normal(c).is_some_and(|n| self.ends.contains(&n))
    }

    /// Whether text[..i] ends in an ASCII digit and text[i..] begins with an ASCII mark, which no
    /// stage changes or joins. A run of digits ends there, and the pre-token that begins with the
    /// mark has no letter or digit before it. An apostrophe is excluded, because it may begin a
    /// contraction.
    fn after_digit(&self, hf: &Tokenizer, text: &[u8], i: usize) -> bool {
        let (x, y) = (text[i - 1] as char, text[i] as char);
        let same = |c: char| normalized(hf, &c.to_string()).is_some_and(|n| n.chars().eq([c]));
        x.is_ascii_digit() && y != '\'' && !self.pairs.contains(&(x, y)) && !self.ends_added(hf, x) && same(x) && same(y)
    }

    /// Whether the cut at i lies between two letters that no stage joins.
    fn between(&self, hf: &Tokenizer, text: &[u8], i: usize) -> bool {
        let Some(y) = char_at(&text[i..]) else { return false };
        let mut back = backwards(&text[..i]);
        // The three characters before the cut must be letters: an apostrophe among them could begin
        // a contraction that ends at the cut or after it.
        let (Some(x), Some(w), Some(v)) = (back.next(), back.next(), back.next()) else { return false };
        let all = [v, w, x, y];
        !self.pairs.contains(&(x, y))
            && !self.ends_added(hf, x)
            && all.iter().all(|&c| c.is_letter() || is_ideograph(c))
            && all.windows(2).all(|p| apart(p[0], p[1]))
            && all.iter().all(|&c| plain(hf, c))
            && match (normalized(hf, &x.to_string()), normalized(hf, &y.to_string())) {
                (Some(a), Some(b)) => a.chars().last().zip(b.chars().next()).is_some_and(|p| !self.pairs.contains(&p)),
                _ => false,
            }
    }
}

/// The characters of a text from its end, last first. Ends at the first invalid UTF-8.
fn backwards(mut text: &[u8]) -> impl Iterator<Item = char> + '_ {
    std::iter::from_fn(move || {
        let from = (text.len().saturating_sub(4)..text.len()).rev().find(|&i| text[i] as i8 >= -0x40)?;
        let c = std::str::from_utf8(&text[from..]).ok()?.chars().next()?;
        text = &text[..from];
        Some(c)
    })
}

fn char_at(text: &[u8]) -> Option<char> {
    (1..=text.len().min(4)).find_map(|n| std::str::from_utf8(&text[..n]).ok())?.chars().next()
}

/// Ideographs that decompose to themselves and combine with nothing.
fn is_ideograph(c: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&c)
}

/// Whether a grapheme cluster ends between the two.
fn apart(a: char, b: char) -> bool {
    let pair: String = [a, b].into_iter().collect();
    pair.graphemes(true).count() == 2
}

/// Whether a letter or digit stays one in every stage. Its decomposition must begin with a
/// character that combines with nothing before it. Its normalised form must begin and end in a
/// letter or digit and have no apostrophe.
fn plain(hf: &Tokenizer, c: char) -> bool {
    let alone = c.to_string();
    let first = alone.nfkd().next().map_or(c, |d| d.0);
    // The vowels and finals of Hangul combine with what is before them but are not marks.
    let jamo = matches!(first as u32, 0x1160..=0x11ff | 0xd7b0..=0xd7ff);
    let letter = |c: char| c.is_letter() || c.is_number() || is_ideograph(c);
    if jamo || canonical_combining_class(first) != 0 || !letter(first) || !letter(c) {
        return false;
    }
    normalized(hf, &alone).is_some_and(|n| {
        n.chars().next().is_some_and(letter)
            && n.chars().last().is_some_and(|c| letter(c) || c.is_mark())
            && !n.contains(['\'', '\u{2019}'])
    })
}

/// The normalised form of a text.
fn normalized(hf: &Tokenizer, text: &str) -> Option<String> {
    let mut n = NormalizedString::from(text);
    if let Some(norm) = hf.get_normalizer() {
        norm.normalize(&mut n).ok()?;
    }
    // The word mark that is put before every text is not part of the character.
    Some(n.get().trim_start_matches('\u{2581}').to_string())
}

fn kind(v: &Value) -> &str {
    v["type"].as_str().unwrap_or("")
}

fn local_normalizer(v: &Value) -> bool {
    match kind(v) {
        "Sequence" => v["normalizers"].as_array().is_some_and(|a| a.iter().all(local_normalizer)),
        "Replace" => match (v["pattern"]["String"].as_str(), v["pattern"]["Regex"].as_str()) {
            // A match of one character, or one without letters, digits and white space, lies on one
            // side of every cut.
            (Some(s), _) => s.chars().count() == 1 || !s.chars().any(|c| c.is_alphanumeric() || c.is_whitespace()),
            (_, Some(r)) => r == " {2,}",
            _ => false,
        },
        k => matches!(
            k,
            "BertNormalizer"
                | "NFC"
                | "NFD"
                | "NFKC"
                | "NFKD"
                | "Lowercase"
                | "StripAccents"
                | "Nmt"
                | "Precompiled"
                | "Strip"
                | "Prepend"
        ),
    }
}

/// Whether spaces are replaced one by one and no split depends on them: SentencePiece BPE, whose
/// pre-tokens are whole texts.
fn joined(hf: &Tokenizer) -> bool {
    let one = |v: &Value| {
        kind(v) == "Replace" && v["pattern"]["String"].as_str().is_some_and(|s| s.chars().count() == 1)
    };
    let normalizer = match hf.get_normalizer().map(serde_json::to_value) {
        None => Value::Null,
        Some(n) => n.unwrap_or_default(),
    };
    let pre = match hf.get_pre_tokenizer().map(serde_json::to_value) {
        None => return false,
        Some(p) => p.unwrap_or_default(),
    };
    match kind(&pre) {
        "Metaspace" => normalizer.is_null() && pre["split"] == Value::Bool(false),
        // The normalizer leaves no space to split at.
        "Split" => {
            one(&normalizer)
                && normalizer["pattern"]["String"] == " "
                && pre["pattern"]["String"] == " "
                && normalizer["content"].as_str().is_some_and(|s| !s.contains(' '))
        }
        _ => false,
    }
}

/// Some(true): the stage is local and splits before white space. Some(false): it is local only.
/// None: unknown.
fn splitting(v: &Value) -> Option<bool> {
    match kind(v) {
        "Sequence" => {
            let parts = v["pretokenizers"].as_array()?;
            parts.iter().try_fold(false, |any, p| Some(splitting(p)? || any))
        }
        "BertPreTokenizer" | "Whitespace" | "WhitespaceSplit" => Some(true),
        "Punctuation" | "Digits" => Some(false),
        "Metaspace" => Some(v["split"] != Value::Bool(false)),
        "ByteLevel" => Some(v["use_regex"] != Value::Bool(false)),
        // One character of the text decides alone.
        "Split" if v["pattern"]["String"].as_str().is_some_and(|s| s.chars().count() == 1) => Some(false),
        "Split" => {
            let plain = v["behavior"] == "Isolated" && v["invert"] == Value::Bool(false);
            (plain && PATTERNS.contains(&v["pattern"]["Regex"].as_str()?)).then_some(true)
        }
        _ => None,
    }
}

/// Whether the text "word, white, word" splits right after the first word.
fn probe(hf: &Tokenizer, word: &str, white: char) -> Option<bool> {
    let pieces = |text: &str| -> Option<Vec<String>> {
        let mut n = NormalizedString::from(text);
        if let Some(norm) = hf.get_normalizer() {
            norm.normalize(&mut n).ok()?;
        }
        let mut p = PreTokenizedString::from(n);
        hf.get_pre_tokenizer()?.pre_tokenize(&mut p).ok()?;
        let all = p.get_splits(OffsetReferential::Normalized, OffsetType::None);
        Some(all.into_iter().map(|(s, _, _)| s.to_string()).collect())
    };
    let alone = pieces(word)?;
    let both = pieces(&format!("{word}{white}{word}"))?;
    Some(both.len() > alone.len() && both[..alone.len()] == alone[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_lie_between_letters_and_before_white_space() {
        let hf = Tokenizer::new(tokenizers::models::bpe::BPE::default());
        let rule = Rule { space: true, newline: true, inner: true, ..Rule::default() };
        let all = |text: &str| -> Vec<(usize, Cut)> {
            (0..=text.len()).map(|i| (i, rule.cut(&hf, text.as_bytes(), i))).filter(|c| c.1 != Cut::None).collect()
        };
        use Cut::{Blank, Inner};
        for (text, want) in [
            ("ab cd", vec![(2, Blank)]),
            ("a! b\n", vec![(4, Blank)]),
            ("abcd", vec![(3, Inner)]),
            ("'abcd", vec![(4, Inner)]),
            ("ab1cd", vec![]),
            // After a digit, but not before an apostrophe or a digit, and not before a digit that
            // follows a mark.
            ("0.5,-1e3;1'", vec![(1, Inner), (3, Inner), (8, Inner)]),
            ("\u{661}.\u{ff11}.1\u{ff0e}", vec![]),
            ("\u{439}\u{439} ", vec![(4, Blank)]),
            ("\u{4e2d}\u{4e2d}\u{4e2d}\u{4e2d}", vec![(9, Inner)]),
            // A mark, a sign that joins the next character, a final of Hangul, conjoining or
            // compatible, a voiced mark.
            ("aaae\u{301}a", vec![(3, Inner)]),
            ("\u{600} ", vec![]),
            ("\u{d4e} ", vec![]),
            ("\u{ac00}\u{ac00}\u{ac00}\u{11a8}", vec![]),
            ("\u{3131}\u{3131}\u{3131}\u{314f}", vec![]),
            ("\u{30ab}\u{30ab}\u{30ab}\u{ff9e}", vec![]),
            (" \n  ", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(all(text), want, "{text:?}");
        }
        assert!(all("a\u{fdfa} b").contains(&(4, Blank)));
        let one = Rule { pairs: [('c', 'd')].into(), ends: ['b'].into(), space: true, inner: true, ..Rule::default() };
        let cuts = |t: &str| (0..t.len()).filter(|&i| one.cut(&hf, t.as_bytes(), i) != Cut::None).collect::<Vec<_>>();
        assert_eq!(cuts("aaacd"), [3]);
        assert_eq!(cuts("aab c\nc b"), [7]);
    }
}
