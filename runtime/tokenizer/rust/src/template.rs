//! Knows the places of special tokens around one text or a pair, and how a pair shares a limit.

use tokenizers::{Encoding, Token, Tokenizer};

#[derive(Clone, Copy)]
enum Part {
    /// Ids of the first (0) or second (1) text, with their type.
    Text(usize, i32),
    Special(u32, i32),
}

/// The post-processor of a tokenizer, as data.
pub struct Template {
    parts: Vec<Part>,
    /// Number of special tokens.
    pub specials: usize,
}

impl Template {
    /// Finds the template by running the post-processor on marker ids.
    pub fn new(hf: &Tokenizer, pair: bool, special: bool) -> Result<Template, String> {
        const MARK: [u32; 2] = [u32::MAX - 1, u32::MAX - 2];
        let text =
            |i: usize| Encoding::from_tokens(vec![Token::new(MARK[i], String::new(), (0, 0))], i as u32);
        let done = hf
            .post_process(text(0), pair.then(|| text(1)), special)
            .map_err(|e| format!("post_processor: {e}"))?;
        let parts: Vec<Part> = done
            .get_ids()
            .iter()
            .zip(done.get_type_ids())
            .map(|(&id, &kind)| match MARK.iter().position(|&m| m == id) {
                Some(i) => Part::Text(i, kind as i32),
                None => Part::Special(id, kind as i32),
            })
            .collect();
        for i in 0..1 + pair as usize {
            let n = parts.iter().filter(|p| matches!(p, Part::Text(t, _) if *t == i)).count();
            if n != 1 {
                return Err(format!("post_processor: text {i} appears {n} times in its template, want once"));
            }
        }
        let specials = parts.len() - 1 - pair as usize;
        Ok(Template { parts, specials })
    }

    /// Returns the special tokens before and after a single text.
    pub fn around(&self) -> (Vec<u32>, Vec<u32>) {
        let at = self.parts.iter().position(|p| matches!(p, Part::Text(..))).unwrap_or(0);
        let ids = |parts: &[Part]| -> Vec<u32> {
            parts.iter().filter_map(|p| if let Part::Special(id, _) = p { Some(*id) } else { None }).collect()
        };
        (ids(&self.parts[..at]), ids(&self.parts[at..]))
    }

    /// Writes the ids of the texts with the special tokens around them, and returns their number.
    /// `types` may be empty. The caller has made room for all.
    pub fn fill(&self, texts: [&[u32]; 2], ids: &mut [i32], types: &mut [i32]) -> usize {
        let mut n = 0;
        for part in &self.parts {
            let (kind, len) = match *part {
                Part::Special(id, kind) => {
                    ids[n] = id as i32;
                    (kind, 1)
                }
                Part::Text(i, kind) => {
                    for (to, &id) in ids[n..].iter_mut().zip(texts[i]) {
                        *to = id as i32;
                    }
                    (kind, texts[i].len())
                }
            };
            if !types.is_empty() {
                types[n..n + len].fill(kind);
            }
            n += len;
        }
        n
    }
}

/// Returns how many ids of each text a pair keeps under `room` ids. The longer text is cut first;
/// then both are cut to half, and the odd id goes to the longer one (to the second when they are
/// equal).
pub fn longest_first(first: usize, second: usize, room: usize) -> (usize, usize) {
    if first + second <= room {
        return (first, second);
    }
    let (short, long) = if first > second { (second, first) } else { (first, second) };
    let (mut a, mut b) = (short, if short > room { short } else { short.max(room - short) });
    if a + b > room {
        a = room / 2;
        b = a + room % 2;
    }
    let (a, b) = (a.min(short), b.min(long));
    if first > second {
        (b, a)
    } else {
        (a, b)
    }
}
