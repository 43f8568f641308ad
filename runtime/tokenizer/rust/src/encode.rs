//! Computes the ids of one text or a pair under a limit.
//!
//! The streaming pass is used where it applies, else the library's own pipeline over the shortest
//! prefix that surely decides the ids kept.

use crate::bert::{Bert, Word};
use crate::bound::Bound;
use crate::cut::Rule;
use crate::long::Long;
use crate::stream::Stream;
use crate::template::{longest_first, Template};
use std::sync::atomic::{AtomicU32, Ordering};
use tokenizers::{Encoding, Normalizer, Tokenizer};

/// Add the special tokens of the post-processor.
pub const SPECIAL: u32 = 1;
/// Texts come in pairs.
pub const PAIR: u32 = 2;
/// Keep the end of a text that is too long, not its start.
pub const LEFT: u32 = 4;
/// Use the library's pipeline even where the streaming pass applies (for tests, which compare the
/// two).
pub const GENERAL: u32 = 8;
/// Cut only the second text of a pair.
pub const SECOND: u32 = 32;
/// Cut only the first text of a pair, where the second leaves it a token.
pub const FIRST: u32 = 64;
/// Never cut a text before tokenizing it (for tests, which compare the two).
pub const WHOLE: u32 = 16;

pub enum Failure {
    /// The text has no place to cut within this many bytes, and no more may be tokenized in one
    /// piece.
    TooLong(usize),
    /// The caller has cancelled the call.
    Stopped,
    /// The limit is below this number of special tokens.
    NoRoom(usize),
    /// Only the second text of a pair may be cut, and the first has at least as many tokens (first
    /// number) as there is room for (second number).
    First(usize, usize),
    Library(String),
}

pub struct Model {
    pub hf: Tokenizer,
    bert: Option<Bert>,
    rule: Rule,
    bound: Bound,
    long: Long,
    /// By `pair * 2 + special`.
    templates: [Template; 4],
}

/// Buffers that one call reuses for each text.
#[derive(Default)]
pub struct Scratch {
    word: Word,
    ids: [Vec<u32>; 2],
}

impl Scratch {
    /// The ids of the last encoded text or pair.
    pub fn ids(&self) -> [&[u32]; 2] {
        [&self.ids[0], &self.ids[1]]
    }
}

/// A token and its place, in bytes of the text. Special tokens are those of the post-processor.
pub struct Token {
    pub id: u32,
    pub place: (usize, usize),
    pub special: bool,
}

/// What to do with each text of a call.
#[derive(Clone, Copy)]
pub struct Plan {
    pub flags: u32,
    /// Tokens kept, special tokens included; `usize::MAX`: all.
    pub max_tokens: usize,
    /// Bytes that may go through the library's pipeline in one piece. Other bounds may be lower.
    pub max_whole: usize,
    /// Bytes of a piece; 0: the tokenizer's own bound (tests set it to cut often).
    pub piece: usize,
}

impl Plan {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }
}

impl Model {
    fn piece(&self, plan: &Plan) -> usize {
        if plan.piece > 0 {
            plan.piece
        } else {
            self.bound.piece
        }
    }

    /// Takes a parsed tokenizer and drops its truncation and padding. Each call sets its own limit.
    pub fn new(mut hf: Tokenizer, bound: Bound) -> Result<Model, String> {
        hf.with_padding(None);
        hf.with_truncation(None).map_err(|e| e.to_string())?;
        if let Some(n) = hf.get_normalizer() {
            // Normalise once, so that a broken character map fails here and not on the first
            // request.
            n.normalize(&mut "A a".into()).map_err(|e| format!("normalizer: {e}"))?;
        }
        let t = |pair, special| Template::new(&hf, pair, special);
        let templates = [t(false, false)?, t(false, true)?, t(true, false)?, t(true, true)?];
        Ok(Model { bert: Bert::new(&hf), rule: Rule::new(&hf), long: Long::new(bound.unk_id), bound, templates, hf })
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
    pub fn encode(
        &self,
        texts: [&[u8]; 2],
        plan: &Plan,
        stop: &AtomicU32,
        s: &mut Scratch,
    ) -> Result<bool, Failure> {
        let specials = self.template(plan).specials;
        let room = match plan.max_tokens {
            usize::MAX => usize::MAX,
            n => n.checked_sub(specials).ok_or(Failure::NoRoom(specials))?,
        };
        let count = 1 + plan.has(PAIR) as usize;
        let Scratch { word, ids } = s;
        let mut order = [0; 2];
        for i in 0..2 {
            ids[i].clear();
            if i < count {
                self.ids(texts[i], room, plan, stop, word, &mut ids[i])?;
            }
            order[i] = ids[i].len();
        }
        if room == usize::MAX || order[0].saturating_add(order[1]) <= room {
            return Ok(false);
        }
        let keep = if count == 1 {
            (room, 0)
        } else if plan.has(SECOND) {
            // As in the library, the second text keeps at least one token.
            match room.checked_sub(order[0]) {
                Some(n) if n > 0 => (order[0], n),
                _ => return Err(Failure::First(order[0].min(room), room)),
            }
        } else if plan.has(FIRST) && order[1] < room {
            (room - order[1], order[1])
        } else {
            if order[0] > room && order[1] > room && room % 2 == 1 {
                // Both texts are cut and the odd token goes to the longer one, so their full
                // lengths matter.
                for i in 0..2 {
                    ids[i].clear();
                    self.ids(texts[i], usize::MAX, plan, stop, word, &mut ids[i])?;
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

    /// Appends all ids of `text`, or more than `limit` of them: those at its start, or with LEFT
    /// those at its end.
    pub fn ids(
        &self,
        text: &[u8],
        limit: usize,
        plan: &Plan,
        stop: &AtomicU32,
        word: &mut Word,
        out: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        match &self.bert {
            Some(b) if !plan.has(GENERAL) => {
                let limit = if plan.has(LEFT) { usize::MAX } else { limit };
                b.encode(text, limit, word, out);
                Ok(())
            }
            _ => self.general(text, limit, plan, stop, out),
        }
    }

    fn general(
        &self,
        text: &[u8],
        limit: usize,
        plan: &Plan,
        stop: &AtomicU32,
        out: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        if plan.has(WHOLE) || !self.rule.any() {
            let most = if plan.has(WHOLE) { plan.max_whole } else { self.bound.whole.min(plan.max_whole) };
            return if text.len() > most { Err(Failure::TooLong(most)) } else { self.library(text, out) };
        }
        // Most prose has four to five bytes per token.
        let enough = limit.saturating_mul(6).saturating_add(64);
        if text.len() <= enough.min(self.piece(plan)) {
            return self.library(text, out);
        }
        let (piece, most) = (self.piece(plan), self.bound.whole);
        let stream = Stream { hf: &self.hf, rule: &self.rule, long: &self.long, piece, most, stop };
        if plan.has(LEFT) && limit != usize::MAX {
            let mut back = enough;
            while back < text.len() {
                let from = text.len() - back;
                let near = from.saturating_sub(most)..=from;
                if let Some(at) = near.rev().find(|&i| self.rule.is_blank(&self.hf, text, i)) {
                    stream.ids(text, at, usize::MAX, out)?;
                    if out.len() > limit {
                        return Ok(());
                    }
                    out.clear();
                }
                back = back.saturating_mul(2);
            }
        }
        if plan.has(LEFT) {
            return stream.ids(text, 0, usize::MAX, out);
        }
        let mut at = 0;
        if enough < piece {
            if let Some(cut) = self.rule.blank(&self.hf, text, enough, text.len().min(piece)) {
                self.library(&text[..cut], out)?;
                at = cut;
            }
        }
        stream.ids(text, at, limit, out)
    }

    /// Returns the tokens of one text with their places, cut to the plan's limit, and whether any
    /// were cut off.
    pub fn places(&self, text: &[u8], plan: &Plan, stop: &AtomicU32) -> Result<(Vec<Token>, bool), Failure> {
        let template = self.template(plan);
        let room = match plan.max_tokens {
            usize::MAX => usize::MAX,
            n => n.checked_sub(template.specials).ok_or(Failure::NoRoom(template.specials))?,
        };
        let mut own = Vec::new();
        match self.placed(text, room, plan, stop, &mut own) {
            Err(Failure::TooLong(n)) if room != usize::MAX && !plan.has(LEFT) && !plan.has(WHOLE) => {
                self.placed_prefix(text, room, plan, stop, &mut own, n)?
            }
            done => done?,
        }
        let cut = own.len() > room;
        if plan.has(LEFT) {
            own.drain(..own.len().saturating_sub(room));
        }
        own.truncate(room);
        let (before, behind) = template.around();
        let special = |id: u32| Token { id, place: (0, 0), special: true };
        let tokens = before.into_iter().map(special).chain(own).chain(behind.into_iter().map(special)).collect();
        Ok((tokens, cut))
    }

    /// Appends the tokens of a text piece by piece until there are more than `room`, or all of them
    /// with LEFT. Pieces are cut before white space.
    fn placed(
        &self,
        text: &[u8],
        room: usize,
        plan: &Plan,
        stop: &AtomicU32,
        own: &mut Vec<Token>,
    ) -> Result<(), Failure> {
        let (piece, most) = match plan.has(WHOLE) {
            true => (plan.max_whole, plan.max_whole),
            false => (self.piece(plan), self.bound.whole),
        };
        let mut at = 0;
        while at < text.len() && (plan.has(LEFT) || own.len() <= room) {
            if stop.load(Ordering::Relaxed) != 0 {
                return Err(Failure::Stopped);
            }
            let blank = |i: &usize| self.rule.is_blank(&self.hf, text, *i);
            let end = match text.len() - at {
                n if n <= piece => text.len(),
                n => {
                    let found = (at + 1..=at + piece).rev().find(blank);
                    let found = found.or_else(|| (at + piece + 1..text.len().min(at + most)).find(blank));
                    match found {
                        Some(i) => i,
                        None if n <= most => text.len(),
                        None => return Err(Failure::TooLong(most)),
                    }
                }
            };
            // The character before the cut takes the place of all the text before it.
            let from = (0..at).rev().find(|&i| text[i] as i8 >= -0x40).unwrap_or(0);
            let guard = if at > 0 { self.encoded(&text[from..at])?.len() } else { 0 };
            let e = self.encoded(&text[from..end])?;
            own.extend((guard..e.len()).map(|i| {
                let (a, b) = e.get_offsets()[i];
                Token { id: e.get_ids()[i], place: (a + from, b + from), special: false }
            }));
            at = end;
        }
        Ok(())
    }

    /// Appends the first tokens of a text that has no white space to cut before. They are the
    /// tokens of a prefix, which is enlarged until its first ids equal those of the whole text.
    fn placed_prefix(
        &self,
        text: &[u8],
        room: usize,
        plan: &Plan,
        stop: &AtomicU32,
        own: &mut Vec<Token>,
        most: usize,
    ) -> Result<(), Failure> {
        let mut ids = Vec::new();
        self.general(text, room, plan, stop, &mut ids)?;
        let mut size = room.saturating_mul(6).saturating_add(64).min(most);
        loop {
            let end = (0..=size).rev().find(|&i| text[i] as i8 >= -0x40).unwrap_or(0);
            let e = self.encoded(&text[..end])?;
            if e.len() > room && ids.len() > room && e.get_ids()[..room] == ids[..room] {
                own.clear();
                own.extend((0..=room).map(|i| Token { id: e.get_ids()[i], place: e.get_offsets()[i], special: false }));
                return Ok(());
            }
            if size == most {
                return Err(Failure::TooLong(most));
            }
            size = size.saturating_mul(2).min(most);
        }
    }

    /// The library's encoding of a text, without special tokens.
    fn encoded(&self, text: &[u8]) -> Result<Encoding, Failure> {
        self.hf.encode(String::from_utf8_lossy(text).as_ref(), false).map_err(library)
    }

    fn library(&self, text: &[u8], out: &mut Vec<u32>) -> Result<(), Failure> {
        let text = String::from_utf8_lossy(text);
        match self.hf.encode_fast(text.as_ref(), false) {
            Ok(e) => out.extend_from_slice(e.get_ids()),
            Err(e) => return Err(library(e)),
        }
        Ok(())
    }
}

pub fn library(e: tokenizers::Error) -> Failure {
    Failure::Library(e.to_string())
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
