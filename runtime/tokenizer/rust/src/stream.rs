//! Computes the ids of a text of any length in bounded memory.
//!
//! The text goes through the library in pieces. A pre-token that neighbouring pieces could change
//! is joined again before the model sees it.
//!
//! Each piece but the first is read with the character before it, the guard. The result for the
//! guard alone is then removed from the front. So a piece is never treated as the start of a text,
//! and a pre-token that runs through the cut begins with the guard's.

use crate::cut::{Cut, Rule};
use crate::encode::{library, Failure};
use crate::long::{Failed, Long, Word, ENOUGH, MOST};
use std::sync::atomic::{AtomicU32, Ordering};
use tokenizers::{OffsetReferential, OffsetType, PreTokenizer, Tokenizer};

/// A pre-token, or an added token with its id.
type Split = (String, Option<u32>);

pub struct Stream<'a> {
    pub hf: &'a Tokenizer,
    pub rule: &'a Rule,
    pub long: &'a Long,
    /// Bytes of a piece, and of a piece that has no earlier cut.
    pub piece: usize,
    pub most: usize,
    /// Not 0: the caller has cancelled the call.
    pub stop: &'a AtomicU32,
}

impl Stream<'_> {
    /// Appends the ids of `text[at..]` to `out` and stops when there are more than `limit`. `at` is
    /// 0 or a cut.
    pub fn ids(&self, text: &[u8], mut at: usize, limit: usize, out: &mut Vec<u32>) -> Result<(), Failure> {
        let mut word = Word::default();
        while at < text.len() && out.len() <= limit {
            if self.stop.load(Ordering::Relaxed) != 0 {
                return Err(Failure::Stopped);
            }
            let end = self.end(text, at)?;
            for (i, (split, id)) in self.splits(text, at, end)?.into_iter().enumerate() {
                // Only the first split of a piece can continue the word before. It is empty when it
                // does not.
                if i > 0 || at == 0 || split.is_empty() {
                    self.finish(&mut word, out)?;
                }
                match id {
                    Some(id) => out.push(id),
                    None => self
                        .long
                        .push(self.hf.get_model(), &mut word, &split, self.piece.min(ENOUGH), out)
                        .map_err(|e| self.failure(e))?,
                }
                if out.len() > limit {
                    return Ok(());
                }
            }
            at = end;
        }
        self.finish(&mut word, out)
    }

    fn finish(&self, word: &mut Word, out: &mut Vec<u32>) -> Result<(), Failure> {
        self.long.finish(self.hf.get_model(), word, out).map_err(|e| self.failure(e))
    }

    fn failure(&self, e: Failed) -> Failure {
        match e {
            Failed::Stuck => Failure::TooLong(MOST),
            Failed::Library(s) => Failure::Library(s),
        }
    }

    /// Returns the end of the piece that begins at `at`. That is the last blank cut in the second
    /// half of its size, else a cut near its beginning, else the first one after that.
    fn end(&self, text: &[u8], at: usize) -> Result<usize, Failure> {
        if text.len() - at <= self.piece {
            return Ok(text.len());
        }
        let within = at + self.piece;
        let cut = |i: &usize| self.rule.cut(self.hf, text, *i) != Cut::None;
        if let Some(i) = (at + self.piece / 2..=within).rev().find(|&i| self.rule.is_blank(self.hf, text, i)) {
            return Ok(i);
        }
        // Text without blanks may split into as many pre-tokens as bytes, and the library's work
        // grows with the square of their number in a piece.
        let near = at + (self.piece / 32).max(8).min(self.piece);
        if let Some(i) = (at + 1..=near).rev().find(cut).or_else(|| (near + 1..=within).find(cut)) {
            return Ok(i);
        }
        let last = text.len().min(at + self.most);
        match (within + 1..last).find(cut) {
            Some(i) => Ok(i),
            None if last == text.len() => Ok(last),
            None => Err(Failure::TooLong(self.most)),
        }
    }

    /// Returns the splits of `text[at..end]`. In a piece that does not begin the text, the first
    /// split is the continuation of the split before; it is empty if there is none.
    fn splits(&self, text: &[u8], at: usize, end: usize) -> Result<Vec<Split>, Failure> {
        if at == 0 {
            return self.pre_tokens(&text[..end]);
        }
        let from = (0..at).rev().find(|&i| text[i] as i8 >= -0x40).unwrap_or(0);
        let guard = self.pre_tokens(&text[from..at])?;
        let mut all = self.pre_tokens(&text[from..end])?;
        let n = guard.len();
        let fits = n > 0
            && all.len() >= n
            && all[..n - 1] == guard[..n - 1]
            && all[n - 1].0.starts_with(&guard[n - 1].0)
            && (all[n - 1].1, guard[n - 1].1) == (None, None);
        if !fits {
            // This happens for no tokenizer that the rule allows.
            return Err(Failure::Library("the text comes apart where it was cut".into()));
        }
        all.drain(..n - 1);
        all[0].0.drain(..guard[n - 1].0.len());
        Ok(all)
    }

    fn pre_tokens(&self, text: &[u8]) -> Result<Vec<Split>, Failure> {
        let text = String::from_utf8_lossy(text);
        let mut p = self.hf.get_added_vocabulary().extract_and_normalize(self.hf.get_normalizer(), &text);
        if let Some(t) = self.hf.get_pre_tokenizer() {
            t.pre_tokenize(&mut p).map_err(library)?;
        }
        let splits = p.get_splits(OffsetReferential::Normalized, OffsetType::None);
        Ok(splits.into_iter().map(|(s, _, t)| (s.to_string(), t.as_ref().map(|t| t[0].id))).collect())
    }
}
