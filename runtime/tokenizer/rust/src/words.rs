//! Items that are split into words: each word is tokenized on its own, and each token knows its
//! word.

use crate::bert;
use crate::encode::{library, Failure, Model, Plan, LEFT};
use std::sync::atomic::{AtomicU32, Ordering};
use tokenizers::{Model as _, NormalizedString, Normalizer, OffsetType, PreTokenizedString, PreTokenizer};

/// The words of one item.
pub struct Item<'a> {
    pub text: &'a [u8],
    /// Where the words begin, and where the last one ends.
    pub offsets: &'a [u64],
    /// By word: an id that stands for it, or a negative number for one that is tokenized. Empty:
    /// all are.
    pub given: &'a [i32],
    /// Ids that no word may be tokenized to.
    pub reserved: &'a [i32],
}

/// Buffers that one call reuses for each item.
#[derive(Default)]
pub struct Found {
    word: bert::Word,
    pub ids: Vec<u32>,
    /// By id, the number of its word.
    pub words: Vec<i32>,
}

impl Model {
    /// Tokenizes the words of an item into `found`, without special tokens, cut to the plan's
    /// limit. Returns whether anything was cut off.
    pub fn words(&self, item: &Item, plan: &Plan, stop: &AtomicU32, found: &mut Found) -> Result<bool, Failure> {
        let specials = self.template(plan).specials;
        let room = match plan.max_tokens {
            usize::MAX => usize::MAX,
            n => n.checked_sub(specials).ok_or(Failure::NoRoom(specials))?,
        };
        let Found { word, ids, words } = found;
        (ids.clear(), words.clear());
        let left = plan.flags & LEFT != 0;
        for (i, place) in item.offsets.windows(2).enumerate() {
            if i % 64 == 0 && stop.load(Ordering::Relaxed) != 0 {
                return Err(Failure::Stopped);
            }
            match item.given.get(i) {
                Some(&id) if id >= 0 => ids.push(id as u32),
                _ => self.word(&item.text[place[0] as usize..place[1] as usize], i, item.reserved, plan, stop, word, ids)?,
            }
            words.resize(ids.len(), i as i32);
            if ids.len() > room && !left {
                break;
            }
        }
        let over = ids.len().saturating_sub(room);
        if left {
            (ids.drain(..over), words.drain(..over));
        }
        ids.truncate(room);
        words.truncate(room);
        Ok(over > 0)
    }

    /// Appends the ids of a word. Where a token that it may not have is written in it, its
    /// characters are text.
    #[allow(clippy::too_many_arguments)]
    fn word(
        &self,
        text: &[u8],
        number: usize,
        reserved: &[i32],
        plan: &Plan,
        stop: &AtomicU32,
        word: &mut bert::Word,
        ids: &mut Vec<u32>,
    ) -> Result<(), Failure> {
        let from = ids.len();
        let first = |ids: &[u32]| ids.iter().copied().find(|&id| reserved.contains(&(id as i32)));
        self.ids(text, usize::MAX, plan, stop, word, ids)?;
        if first(&ids[from..]).is_none() {
            return Ok(());
        }
        ids.truncate(from);
        self.literal(text, ids)?;
        match first(&ids[from..]) {
            None => Ok(()),
            Some(id) => Err(Failure::Library(format!("word {number} is the reserved token {id} even as text"))),
        }
    }

    /// Appends the ids of a text in which added tokens are text like any other.
    fn literal(&self, text: &[u8], ids: &mut Vec<u32>) -> Result<(), Failure> {
        let mut normalized = NormalizedString::from(String::from_utf8_lossy(text).as_ref());
        if let Some(n) = self.hf.get_normalizer() {
            n.normalize(&mut normalized).map_err(library)?;
        }
        let mut split = PreTokenizedString::from(normalized);
        if let Some(p) = self.hf.get_pre_tokenizer() {
            p.pre_tokenize(&mut split).map_err(library)?;
        }
        split.tokenize(|part| self.hf.get_model().tokenize(part.get())).map_err(library)?;
        let encoding = split.into_encoding(None, 0, OffsetType::None).map_err(library)?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}
