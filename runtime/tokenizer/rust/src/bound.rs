//! Bounds how many bytes a tokenizer's normalizer and pre-tokenizer may make of a text.
//!
//! The bounds are read from their settings before anything runs. They are for the worst text: one
//! bound per byte and one per text, multiplied along a sequence. Texts are cut into pieces whose
//! worst result is small. A tokenizer that would need smaller pieces than allowed is refused.

use base64::Engine;
use serde::Deserialize;
use serde_json::Value;

/// Largest result, in bytes, of a piece of a text.
const PIECE_RESULT: f64 = (4 << 20) as f64;
/// Largest result, in bytes, of a text that cannot be cut.
const WHOLE_RESULT: f64 = (16 << 20) as f64;
/// Largest result, in bytes, of one byte or of an empty text.
const MOST: f64 = 16384.0;

/// The parts of tokenizer.json that decide how a text may grow.
#[derive(Deserialize, Default)]
struct File {
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    model: ModelPart,
}

#[derive(Deserialize, Default)]
struct ModelPart {
    #[serde(default)]
    unk_id: Value,
}

/// The facts about a tokenizer that are known before its file is parsed in full.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Bytes of a text that go through the library at a time.
    pub piece: usize,
    /// Bytes of a text that may go through the library when there is no place to cut.
    pub whole: usize,
    /// The id of the unknown token of a Unigram model.
    pub unk_id: Option<u32>,
}

impl Bound {
    /// Reads the bounds from tokenizer.json. Returns an error when a text may grow too much.
    pub fn new(json: &[u8]) -> Result<Bound, String> {
        let file: File = serde_json::from_slice(json).map_err(|e| e.to_string())?;
        let g = growth(&file.normalizer)?.then(growth(&file.pre_tokenizer)?);
        if g.times > MOST || g.plus > MOST {
            return Err(format!(
                "normalizer and pre_tokenizer may make {:.0} bytes of a text of one; at most {MOST} are allowed",
                g.times + g.plus
            ));
        }
        let unk_id = file.model.unk_id.as_u64().and_then(|id| u32::try_from(id).ok());
        Ok(Bound::of(g.times + g.plus / 256.0, unk_id))
    }

    fn of(times: f64, unk_id: Option<u32>) -> Bound {
        Bound {
            piece: (PIECE_RESULT / times).clamp(256.0, (32 << 10) as f64) as usize,
            whole: (WHOLE_RESULT / times).clamp(1024.0, (256 << 10) as f64) as usize,
            unk_id,
        }
    }
}

/// n bytes become at most times·n + plus bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Growth {
    times: f64,
    plus: f64,
}

impl Growth {
    fn then(self, next: Growth) -> Growth {
        Growth { times: self.times * next.times, plus: self.plus * next.times + next.plus }
    }
}

fn growth(v: &Value) -> Result<Growth, String> {
    let text = |v: &Value| v.as_str().map_or(0, str::len) as f64;
    let by = |times: f64| Ok(Growth { times, plus: 0.0 });
    // Old files have no type; their fields tell it.
    let has = |field: &str| v.get(field).is_some();
    let kind = match v["type"].as_str() {
        _ if has("normalizers") || has("pretokenizers") => "Sequence",
        _ if has("pattern") && has("content") => "Replace",
        _ if has("prepend") => "Prepend",
        _ if has("precompiled_charsmap") => "Precompiled",
        Some(kind) => kind,
        None => "",
    };
    match kind {
        "Sequence" => {
            let parts = v["normalizers"].as_array().or(v["pretokenizers"].as_array());
            parts.into_iter().flatten().try_fold(Growth { times: 1.0, plus: 0.0 }, |g, p| Ok(g.then(growth(p)?)))
        }
        "Replace" => {
            let content = text(&v["content"]);
            match (v["pattern"]["String"].as_str(), v["pattern"]["Regex"].as_str()) {
                (Some(s), _) if !s.is_empty() => by((content / s.len() as f64).max(1.0)),
                (_, Some(" {2,}")) => by((content / 2.0).max(1.0)),
                // Other patterns may match the empty string between any two bytes.
                _ => Ok(Growth { times: 1.0 + content, plus: content }),
            }
        }
        "Prepend" => Ok(Growth { times: 1.0, plus: text(&v["prepend"]) }),
        // The growth of the longest decompositions of Unicode, in UTF-8.
        "NFC" | "NFD" => by(3.0),
        "NFKC" | "NFKD" => by(11.0),
        "Lowercase" => by(1.5),
        "BertNormalizer" => by(9.0), // decomposed, lower case, spaces around ideographs
        "Precompiled" => by(longest(&v["precompiled_charsmap"])),
        "ByteLevel" => Ok(Growth { times: 2.0, plus: 2.0 }),
        "Metaspace" => {
            let mark = text(&v["replacement"]).max(1.0);
            Ok(Growth { times: mark, plus: mark })
        }
        _ => by(1.0),
    }
}

/// Bytes of the longest replacement in a SentencePiece character map. The map's texts follow its
/// trie, each with a NUL after it.
fn longest(map: &Value) -> f64 {
    let bytes: Vec<u8> = match map {
        Value::String(s) => base64::engine::general_purpose::STANDARD.decode(s).unwrap_or_default(),
        _ => Vec::new(),
    };
    let Some((size, rest)) = bytes.split_first_chunk::<4>() else { return 1.0 };
    let texts = rest.get(u32::from_le_bytes(*size) as usize..).unwrap_or(rest);
    texts.split(|&b| b == 0).map(<[u8]>::len).max().unwrap_or(0).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn replace(n: usize) -> Value {
        json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(n)})
    }

    #[test]
    fn growth_multiplies_along_a_sequence() {
        for (v, times, plus) in [
            (json!(null), 1.0, 0.0),
            (replace(5), 5.0, 0.0),
            (json!({"type": "Sequence", "normalizers": [replace(5), replace(7)]}), 35.0, 0.0),
            (json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "abc"}, replace(7)]}), 7.0, 21.0),
            (json!({"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]}), 4.0, 6.0),
            (json!({"type": "Replace", "pattern": {"Regex": "x*"}, "content": "yy"}), 3.0, 2.0),
            (json!({"type": "Replace", "pattern": {"String": ""}, "content": "yy"}), 3.0, 2.0),
        ] {
            assert_eq!(growth(&v).unwrap(), Growth { times, plus }, "{v}");
        }
    }

    #[test]
    fn what_grows_without_end_is_refused() {
        let file = |n: usize| {
            let parts: Vec<Value> = (0..n).map(|_| replace(100)).collect();
            json!({"normalizer": {"type": "Sequence", "normalizers": parts}}).to_string()
        };
        assert!(Bound::new(file(2).as_bytes()).is_ok());
        let e = Bound::new(file(4).as_bytes()).unwrap_err();
        assert!(e.contains("100000000 bytes"), "{e}");
        let many = json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": vec![json!({"type": "ByteLevel"}); 40]}});
        assert!(Bound::new(many.to_string().as_bytes()).is_err());
    }

    #[test]
    fn pieces_shrink_as_texts_may_grow() {
        assert_eq!(Bound::of(1.0, None).piece, 32 << 10);
        assert_eq!(Bound::of(1024.0, None).piece, 4 << 10);
        assert_eq!(Bound::of(MOST, None).piece, 256);
        assert!(Bound::of(MOST, None).whole >= Bound::of(MOST, None).piece);
    }
}
