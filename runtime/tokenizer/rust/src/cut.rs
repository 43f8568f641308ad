//! Where a text can be cut so that the ids before the cut do not depend on what follows.
//!
//! A cut lies between a letter or digit and a space or newline. It is safe when every stage is
//! local there: the normalizer maps characters (or grapheme clusters) one by one, the
//! pre-tokenizer always splits before the white space and looks ahead only over white space, and
//! no added token contains white space. `Rule::new` knows the stages for which this holds; any
//! other stage forbids cuts, and the text is then taken whole or refused.

use serde_json::Value;
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

#[derive(Clone, Copy, Default, Debug, PartialEq)]
pub struct Rule {
    space: bool,
    newline: bool,
}

impl Rule {
    pub fn new(hf: &Tokenizer) -> Rule {
        let split_inside = |t: &str| t.chars().skip(1).any(|c| c.is_whitespace() || c == '\u{2581}');
        if hf.get_added_tokens_decoder().values().any(|t| split_inside(&t.content)) {
            return Rule::default();
        }
        let local = match hf.get_normalizer().map(serde_json::to_value) {
            None => true,
            Some(Ok(n)) => local_normalizer(&n),
            Some(Err(_)) => false,
        };
        let splits = match hf.get_pre_tokenizer().map(serde_json::to_value) {
            Some(Ok(p)) => splitting(&p) == Some(true),
            _ => false,
        };
        if !local || !splits {
            return Rule::default();
        }
        let splits_at = |c: char| ["Ab", "a1", "\u{4e2d}"].iter().all(|w| probe(hf, w, c) == Some(true));
        Rule { space: splits_at(' '), newline: splits_at('\n') }
    }

    /// False when texts are never cut.
    pub fn any(&self) -> bool {
        self.space || self.newline
    }

    /// The first safe cut at or after `from`; None when there is none.
    pub fn find(&self, text: &[u8], from: usize) -> Option<usize> {
        (from.max(1)..text.len()).find(|&i| match text[i] {
            b' ' => self.space && ends_in_word(&text[..i]),
            b'\n' => self.newline && ends_in_word(&text[..i]),
            _ => false,
        })
    }
}

/// Whether `text` ends in an ASCII letter or digit or in a unified ideograph: characters that no
/// normalizer joins to what follows, and that stay letters or digits.
fn ends_in_word(text: &[u8]) -> bool {
    match *text {
        [.., b] if b.is_ascii() => b.is_ascii_alphanumeric(),
        [.., a, b, c] => std::str::from_utf8(&[a, b, c])
            .is_ok_and(|s| s.chars().next().is_some_and(|c| ('\u{4e00}'..='\u{9fff}').contains(&c))),
        _ => false,
    }
}

fn kind(v: &Value) -> &str {
    v["type"].as_str().unwrap_or("")
}

fn local_normalizer(v: &Value) -> bool {
    match kind(v) {
        "Sequence" => v["normalizers"].as_array().is_some_and(|a| a.iter().all(local_normalizer)),
        "Replace" => match (v["pattern"]["String"].as_str(), v["pattern"]["Regex"].as_str()) {
            // A match without letters, digits and white space lies on one side of every cut.
            (Some(s), _) => s == "\n" || !s.chars().any(|c| c.is_alphanumeric() || c.is_whitespace()),
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

/// Some(true): local, and splits before white space; Some(false): local only; None: unknown.
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
        "Split" => {
            let plain = v["behavior"] == "Isolated" && v["invert"] == Value::Bool(false);
            (plain && PATTERNS.contains(&v["pattern"]["Regex"].as_str()?)).then_some(true)
        }
        _ => None,
    }
}

/// Whether "word, white, word" comes apart right after the first word.
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
    fn cuts_lie_between_a_letter_or_digit_and_white_space() {
        let both = Rule { space: true, newline: true };
        for (text, from, want) in [
            ("ab cd", 0, Some(2)),
            ("ab cd", 2, Some(2)),
            ("ab cd", 3, None),
            ("ab! cd\nef", 0, Some(6)),
            ("\u{e9} \u{4e2d} x", 0, Some(6)),
            (" \n  ", 0, None),
            ("", 0, None),
        ] {
            assert_eq!(both.find(text.as_bytes(), from), want, "{text:?} {from}");
        }
        assert_eq!(Rule { space: true, newline: false }.find(b"a\nb c", 0), Some(3));
        assert_eq!(Rule::default().find(b"a b", 0), None);
    }
}
