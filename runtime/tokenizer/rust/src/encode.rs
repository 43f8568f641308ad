//! Ids of one text or a pair under a limit: the streaming pass where it applies, the library's own
//! pipeline elsewhere, over the shortest prefix that surely decides the ids kept.

use crate::bert::{Bert, Word};
use crate::cut::Rule;
use crate::template::{longest_first, Template};
use tokenizers::{Encoding, Normalizer, Tokenizer, TruncationDirection};

/// Add the special tokens of the post-processor.
pub const SPECIAL: u32 = 1;
/// Texts come in pairs.
pub const PAIR: u32 = 2;
/// Keep the end of a text that is too long, not its start.
pub const LEFT: u32 = 4;
/// Use the library's pipeline even where the streaming pass applies (tests compare the two).
pub const GENERAL: u32 = 8;
/// Never cut a text before tokenizing it (tests compare the two).
pub const WHOLE: u32 = 16;

pub enum Failure {
    /// The text is longer than may be tokenized in one piece.
    TooLong,
    /// Fewer tokens are allowed than the special tokens take.
    NoRoom(usize),
    Library(String),
}

pub struct Model {
    pub hf: Tokenizer,
    bert: Option<Bert>,
    rule: Rule,
    /// By `pair * 2 + special`.
    templates: [Template; 4],
}

/// Buffers that one call reuses from text to text.
#[derive(Default)]
pub struct Scratch {
    word: Word,
    ids: [Vec<u32>; 2],
}

impl Scratch {
    /// The ids of the last text or pair encoded.
    pub fn ids(&self) -> [&[u32]; 2] {
        [&self.ids[0], &self.ids[1]]
    }
}

/// What to do with each text of a call.
#[derive(Clone, Copy)]
pub struct Plan {
    pub flags: u32,
    /// Tokens kept, special ones included; `usize::MAX`: all.
    pub max_tokens: usize,
    /// Bytes that may go through the library's pipeline in one piece.
    pub max_whole: usize,
}

impl Plan {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

impl Model {
    /// Takes a parsed tokenizer; its own truncation and padding are dropped, each call brings its own.
    pub fn new(mut hf: Tokenizer) -> Result<Model, String> {
        hf.with_padding(None);
        hf.with_truncation(None).map_err(|e| e.to_string())?;
        if let Some(n) = hf.get_normalizer() {
            // A broken character map fails here instead of on the first request.
            n.normalize(&mut "A a".into()).map_err(|e| format!("normalizer: {e}"))?;
        }
        let t = |pair, special| Template::new(&hf, pair, special);
        let templates = [t(false, false)?, t(false, true)?, t(true, false)?, t(true, true)?];
        Ok(Model { bert: Bert::new(&hf), rule: Rule::new(&hf), templates, hf })
    }

    /// Whether the streaming pass applies, and whether the general one can cut.
    pub fn traits(&self) -> (bool, bool) {
        (self.bert.is_some(), self.rule.any())
    }

    pub fn template(&self, plan: &Plan) -> &Template {
        &self.templates[plan.has(PAIR) as usize * 2 + plan.has(SPECIAL) as usize]
    }

    /// Encodes `texts` (the second is empty when there is no pair) into `s.ids`, cut to the plan's
    /// limit. Returns whether anything was cut off.
    pub fn encode(&self, texts: [&[u8]; 2], plan: &Plan, s: &mut Scratch) -> Result<bool, Failure> {
        let specials = self.template(plan).specials;
        let room = match plan.max_tokens {
            usize::MAX => usize::MAX,
            n => n.checked_sub(specials).ok_or(Failure::NoRoom(specials))?,
        };
        // The end of a text is known only once all of it has been tokenized.
        let limit = if plan.has(LEFT) { usize::MAX } else { room };
        let count = 1 + plan.has(PAIR) as usize;
        let Scratch { word, ids } = s;
        let mut order = [0; 2];
        for i in 0..2 {
            ids[i].clear();
            if i < count {
                self.ids(texts[i], limit, plan, word, &mut ids[i])?;
            }
            order[i] = ids[i].len();
        }
        if room == usize::MAX || order[0].saturating_add(order[1]) <= room {
            return Ok(false);
        }
        let keep = if count == 1 {
            (room, 0)
        } else {
            if order[0] > room && order[1] > room && room % 2 == 1 && limit == room {
                // Both are cut and the odd token goes to the longer: only now do full lengths matter.
                for i in 0..2 {
                    ids[i].clear();
                    self.ids(texts[i], usize::MAX, plan, word, &mut ids[i])?;
                    order[i] = ids[i].len();
                }
            }
            longest_first(order[0], order[1], room)
        };
        for (ids, keep) in ids.iter_mut().zip([keep.0, keep.1]) {
            if plan.has(LEFT) {
                ids.drain(..ids.len() - keep);
            }
            ids.truncate(keep);
        }
        Ok(true)
    }

    /// Appends all ids of `text`, or at least `limit` + 1 of them.
    fn ids(
        &self,
        text: &[u8],
        limit: usize,
        plan: &Plan,
        word: &mut Word,
        out: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        match &self.bert {
            Some(b) if !plan.has(GENERAL) => {
                b.encode(text, limit, word, out);
                Ok(())
            }
            _ => self.general(text, limit, plan, out),
        }
    }

    fn general(&self, text: &[u8], limit: usize, plan: &Plan, out: &mut Vec<u32>) -> Result<(), Failure> {
        if self.rule.any() && !plan.has(WHOLE) {
            let head = &text[..text.len().min(plan.max_whole)];
            // Most prose has four to five bytes a token; a short guess costs one more round.
            let mut from = limit.saturating_mul(6).saturating_add(64);
            while let Some(cut) = self.rule.find(head, from) {
                self.library(&text[..cut], out)?;
                if out.len() > limit {
                    return Ok(());
                }
                out.clear();
                from = cut.saturating_mul(2);
            }
        }
        if text.len() > plan.max_whole {
            return Err(Failure::TooLong);
        }
        self.library(text, out)
    }

    /// One text with the place of each of its tokens, cut to the plan's limit; whether anything was cut off.
    pub fn places(&self, text: &[u8], plan: &Plan) -> Result<(Encoding, bool), Failure> {
        let specials = self.template(plan).specials;
        let room = plan.max_tokens.checked_sub(specials).ok_or(Failure::NoRoom(specials))?;
        if text.len() > plan.max_whole {
            return Err(Failure::TooLong);
        }
        let library = |e: tokenizers::Error| Failure::Library(e.to_string());
        let text = String::from_utf8_lossy(text);
        let mut e = self.hf.encode(text.as_ref(), false).map_err(library)?;
        let cut = e.len() > room;
        if cut {
            let side = if plan.has(LEFT) { TruncationDirection::Left } else { TruncationDirection::Right };
            e.truncate(room, 0, side);
        }
        // What was cut off would be tokenized again by the post-processor.
        e.take_overflowing();
        Ok((self.hf.post_process(e, None, plan.has(SPECIAL)).map_err(library)?, cut))
    }

    fn library(&self, text: &[u8], out: &mut Vec<u32>) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(text);
        match self.hf.encode_fast(text.as_ref(), false) {
            Ok(e) => out.extend_from_slice(e.get_ids()),
            Err(e) => return Err(Failure::Library(e.to_string())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_shares_the_limit_longest_first() {
        for (a, b, room, want) in [
            (3, 4, 10, (3, 4)),
            (3, 40, 10, (3, 7)),
            (40, 3, 10, (7, 3)),
            (40, 50, 11, (5, 6)),
            (50, 40, 11, (6, 5)),
            (40, 40, 11, (5, 6)),
            (6, 40, 11, (5, 6)),
            (1, 1, 1, (0, 1)),
            (2, 1, 0, (0, 0)),
        ] {
            assert_eq!(longest_first(a, b, room), want, "{a} {b} {room}");
        }
    }
}
