//! The C ABI for the Go package. Texts have explicit lengths, calls are batched and give ids, and
//! every failure is reported.
//!
//! The declarations and their contract are in `../sietok.h`.

mod bert;
mod bound;
mod cut;
mod encode;
mod long;
mod stream;
mod template;
mod trie;
mod words;

use bound::Bound;
use encode::{Failure, Model, Plan, Scratch, PAIR};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{ptr, slice};
use tokenizers::models::unigram::Unigram;
use tokenizers::normalizers::BertNormalizer;
use tokenizers::{NormalizerWrapper, Tokenizer};
use words::{Found, Item};

const OK: i32 = 0;
const FAILED: i32 = 1;
const TOO_LONG: i32 = 2;
const NO_ROOM: i32 = 3;
const STOPPED: i32 = 4;

/// Special tokens in a text are text.
const LITERAL: u32 = 1;
/// The scores of a Unigram model are read exactly.
const EXACT: u32 = 2;

#[repr(C)]
pub struct Options {
    max_tokens: u64,
    max_whole: u64,
    piece: u64,
    flags: u32,
}

impl Options {
    fn plan(&self) -> Plan {
        Plan {
            flags: self.flags,
            max_tokens: if self.max_tokens == 0 { usize::MAX } else { self.max_tokens as usize },
            max_whole: self.max_whole as usize,
            piece: self.piece as usize,
        }
    }
}

/// In and out: a call continues where the last one stopped.
#[repr(C)]
pub struct Progress {
    done: u64,
    ids: u64,
    need: u64,
    code: i32,
    message_len: u32,
}

/// A token and its place in the text, in bytes.
#[repr(C)]
pub struct Place {
    id: i32,
    start: u32,
    end: u32,
    special: u32,
}

#[repr(C)]
pub struct Info {
    /// Largest id plus one.
    vocab_size: u32,
    specials: u32,
    pair_specials: u32,
    streaming: u8,
    cuttable: u8,
}

/// Copies as much of the message as fits and returns the number of bytes copied.
unsafe fn put(message: &str, to: *mut u8, cap: usize) -> u32 {
    let mut n = message.len().min(cap);
    while !message.is_char_boundary(n) {
        n -= 1;
    }
    ptr::copy_nonoverlapping(message.as_ptr(), to, n);
    n as u32
}

unsafe fn bytes<'a, T>(p: *const T, n: usize) -> &'a [T] {
    if n == 0 {
        &[]
    } else {
        slice::from_raw_parts(p, n)
    }
}

unsafe fn fail(f: Failure, p: &mut Progress, message: *mut u8, cap: usize) {
    let (code, text) = match f {
        Failure::TooLong(n) => (TOO_LONG, n.to_string()),
        Failure::Stopped => (STOPPED, String::new()),
        Failure::NoRoom(n) => (NO_ROOM, n.to_string()),
        Failure::First(n, room) => (
            FAILED,
            format!("the first text of the pair has {n} tokens or more, and {room} are left for both: only the second is cut"),
        ),
        Failure::Library(s) => (FAILED, s),
    };
    p.code = code;
    p.message_len = put(&text, message, cap);
}

fn guard<T>(f: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|p| {
        let why = p.downcast_ref::<String>().map(String::as_str).or(p.downcast_ref::<&str>().copied());
        Err(Failure::Library(format!("panic: {}", why.unwrap_or("unknown"))))
    })
}

fn load(json: &[u8], bert: [i8; 3]) -> Result<Model, String> {
    let bound = Bound::new(json)?;
    let mut hf = Tokenizer::from_bytes(json).map_err(|e| e.to_string())?;
    if let (true, Some(NormalizerWrapper::BertNormalizer(n))) = (bert[0] >= 0, hf.get_normalizer()) {
        let strip = (bert[2] >= 0).then_some(bert[2] > 0);
        let n = BertNormalizer::new(n.clean_text, bert[1] > 0, strip, bert[0] > 0);
        hf.with_normalizer(Some(n)).map_err(|e| e.to_string())?;
    }
    Model::new(hf, bound)
}

/// # Safety
/// `json` has `len` bytes; `info` and `message[..cap]`, `message_len` are writable.
#[no_mangle]
pub unsafe extern "C" fn sietok_new(
    json: *const u8,
    len: usize,
    lowercase: i8,
    chinese: i8,
    strip_accents: i8,
    info: *mut Info,
    message: *mut u8,
    cap: usize,
    message_len: *mut u32,
) -> *mut Model {
    let made = guard(|| {
        let m = load(bytes(json, len), [lowercase, chinese, strip_accents]).map_err(Failure::Library)?;
        let top = m.hf.get_vocab(true).values().copied().max().map_or(0, |v| v as u64 + 1);
        if top > i32::MAX as u64 {
            return Err(Failure::Library(format!("token id {} is above 2147483646", top - 1)));
        }
        let specials = |flags| m.template(&Plan { flags, max_tokens: 0, max_whole: 0, piece: 0 }).specials as u32;
        let (streaming, cuttable) = m.traits();
        *info = Info {
            vocab_size: top as u32,
            specials: specials(encode::SPECIAL),
            pair_specials: specials(encode::SPECIAL | PAIR),
            streaming: streaming as u8,
            cuttable: cuttable as u8,
        };
        Ok(m)
    });
    match made {
        Ok(m) => Box::into_raw(Box::new(m)),
        Err(f) => {
            let text = match f {
                Failure::Library(s) => s,
                _ => "tokenizer not usable".into(),
            };
            *message_len = put(&text, message, cap);
            ptr::null_mut()
        }
    }
}

/// The scores of a Unigram model, each as it is written in the file.
#[derive(Deserialize)]
struct Scores<'a> {
    #[serde(borrow)]
    model: ScoredModel<'a>,
}

#[derive(Deserialize)]
struct ScoredModel<'a> {
    #[serde(borrow)]
    vocab: Vec<(String, &'a RawValue)>,
    unk_id: Option<usize>,
    #[serde(default)]
    byte_fallback: bool,
}

/// Replaces the scores of a Unigram model by those of `json`, rounded correctly. The library's own
/// reading may be off by one unit in the last place, which decides between paths of equal score.
fn exact_scores(m: &mut Model, json: &[u8]) -> Result<(), String> {
    let file: Scores = serde_json::from_slice(json).map_err(|e| e.to_string())?;
    let mut vocab = Vec::with_capacity(file.model.vocab.len());
    for (i, (token, score)) in file.model.vocab.into_iter().enumerate() {
        let score = score.get().parse().map_err(|e| format!("model.vocab[{i}]: score {}: {e}", score.get()))?;
        vocab.push((token, score));
    }
    let model = Unigram::from(vocab, file.model.unk_id, file.model.byte_fallback).map_err(|e| e.to_string())?;
    m.hf.with_model(model);
    Ok(())
}

/// # Safety
/// `m` came from `sietok_new` with the same `json` and is not used by another call; the sizes are
/// as `sietok.h` says.
#[no_mangle]
pub unsafe extern "C" fn sietok_refine(
    m: *mut Model,
    json: *const u8,
    len: usize,
    flags: u32,
    message: *mut u8,
    cap: usize,
    message_len: *mut u32,
) -> i32 {
    let done = guard(|| {
        if flags & LITERAL != 0 {
            (*m).hf.set_encode_special_tokens(true);
        }
        if flags & EXACT != 0 {
            exact_scores(&mut *m, bytes(json, len)).map_err(Failure::Library)?;
        }
        Ok(())
    });
    match done {
        Ok(()) => OK,
        Err(f) => {
            let text = match f {
                Failure::Library(s) => s,
                _ => "tokenizer not usable".into(),
            };
            *message_len = put(&text, message, cap);
            FAILED
        }
    }
}

/// # Safety
/// `m` came from `sietok_new`, is freed once, and no call uses it.
#[no_mangle]
pub unsafe extern "C" fn sietok_free(m: *mut Model) {
    drop(Box::from_raw(m));
}

/// # Safety
/// Sizes as `sietok.h` says; `m` lives through the call.
#[no_mangle]
pub unsafe extern "C" fn sietok_encode(
    m: *const Model,
    text: *const u8,
    offsets: *const u64,
    count: usize,
    opt: *const Options,
    ids: *mut i32,
    types: *mut i32,
    cap: usize,
    ends: *mut i32,
    cut: *mut u8,
    progress: *mut Progress,
    stop: *const AtomicU32,
    message: *mut u8,
    message_cap: usize,
) {
    let (m, plan, p, stop) = (&*m, (*opt).plan(), &mut *progress, &*stop);
    let per = 1 + (plan.flags & PAIR != 0) as usize;
    let offsets = slice::from_raw_parts(offsets, count * per + 1);
    let part = |i: usize| {
        let (a, b) = (offsets[i] as usize, offsets[i + 1] as usize);
        if a == b {
            &[][..]
        } else {
            slice::from_raw_parts(text.add(a), b - a)
        }
    };
    let template = m.template(&plan);
    let mut scratch = Scratch::default();
    (p.code, p.need, p.message_len) = (OK, 0, 0);
    while (p.done as usize) < count {
        if stop.load(Ordering::Relaxed) != 0 {
            return fail(Failure::Stopped, p, message, message_cap);
        }
        let i = p.done as usize;
        let texts = [part(i * per), if per == 2 { part(i * 2 + 1) } else { &[] }];
        let was_cut = match guard(|| m.encode(texts, &plan, stop, &mut scratch)) {
            Ok(c) => c,
            Err(f) => return fail(f, p, message, message_cap),
        };
        let [a, b] = scratch.ids();
        let n = a.len() + b.len() + template.specials;
        let at = p.ids as usize;
        if n > cap - at {
            // The caller grows its buffers and calls again.
            p.need = n as u64;
            return;
        }
        let to = slice::from_raw_parts_mut(ids.add(at), n);
        let kinds: &mut [i32] =
            if types.is_null() { &mut [] } else { slice::from_raw_parts_mut(types.add(at), n) };
        template.fill([a, b], to, kinds);
        p.ids += n as u64;
        p.done += 1;
        *ends.add(i) = p.ids as i32;
        *cut.add(i) = was_cut as u8;
    }
}

/// # Safety
/// Sizes as `sietok.h` says; `m` lives through the call.
#[no_mangle]
pub unsafe extern "C" fn sietok_words(
    m: *const Model,
    text: *const u8,
    offsets: *const u64,
    given: *const i32,
    items: *const u64,
    count: usize,
    reserved: *const i32,
    reserved_len: usize,
    opt: *const Options,
    ids: *mut i32,
    words: *mut i32,
    cap: usize,
    ends: *mut i32,
    cut: *mut u8,
    progress: *mut Progress,
    stop: *const AtomicU32,
    message: *mut u8,
    message_cap: usize,
) {
    let (m, plan, p) = (&*m, (*opt).plan(), &mut *progress);
    let items = slice::from_raw_parts(items, count + 1);
    let total = items[count] as usize;
    let offsets = slice::from_raw_parts(offsets, total + 1);
    let text = bytes(text, offsets[total] as usize);
    let (before, behind) = m.template(&plan).around();
    let mut found = Found::default();
    (p.code, p.need, p.message_len) = (OK, 0, 0);
    while (p.done as usize) < count {
        let i = p.done as usize;
        let (a, b) = (items[i] as usize, items[i + 1] as usize);
        let item = Item {
            text,
            offsets: &offsets[a..=b],
            given: if given.is_null() { &[] } else { bytes(given.add(a), b - a) },
            reserved: bytes(reserved, reserved_len),
        };
        let was_cut = match guard(|| m.words(&item, &plan, &*stop, &mut found)) {
            Ok(c) => c,
            Err(f) => return fail(f, p, message, message_cap),
        };
        let (at, n) = (p.ids as usize, before.len() + found.ids.len() + behind.len());
        if n > cap - at {
            // The caller grows its buffers and calls again.
            p.need = n as u64;
            return;
        }
        let special = |id: &u32| (*id as i32, -1);
        let own = found.ids.iter().zip(&found.words).map(|(&id, &word)| (id as i32, word));
        for (k, (id, word)) in before.iter().map(special).chain(own).chain(behind.iter().map(special)).enumerate() {
            *ids.add(at + k) = id;
            *words.add(at + k) = word;
        }
        p.ids += n as u64;
        p.done += 1;
        *ends.add(i) = p.ids as i32;
        *cut.add(i) = was_cut as u8;
    }
}

/// # Safety
/// Sizes as `sietok.h` says; `m` lives through the call.
#[no_mangle]
pub unsafe extern "C" fn sietok_places(
    m: *const Model,
    text: *const u8,
    len: usize,
    opt: *const Options,
    tokens: *mut Place,
    cap: usize,
    cut: *mut u8,
    progress: *mut Progress,
    stop: *const AtomicU32,
    message: *mut u8,
    message_cap: usize,
) {
    let (m, plan, p) = (&*m, (*opt).plan(), &mut *progress);
    (p.code, p.need, p.message_len) = (OK, 0, 0);
    let (found, was_cut) = match guard(|| m.places(bytes(text, len), &plan, &*stop)) {
        Ok(done) => done,
        Err(f) => return fail(f, p, message, message_cap),
    };
    if found.len() > cap {
        p.need = found.len() as u64;
        return;
    }
    for (i, t) in found.iter().enumerate() {
        *tokens.add(i) = Place {
            id: t.id as i32,
            start: t.place.0 as u32,
            end: t.place.1 as u32,
            special: t.special as u32,
        };
    }
    p.ids = found.len() as u64;
    p.done = 1;
    *cut = was_cut as u8;
}

/// # Safety
/// `ids` has `len` elements; `out_len` is writable. The result is freed with `sietok_free_text`.
#[no_mangle]
pub unsafe extern "C" fn sietok_decode(
    m: *const Model,
    ids: *const u32,
    len: usize,
    skip_special: bool,
    out_len: *mut usize,
    code: *mut i32,
) -> *mut u8 {
    let decoded =
        guard(|| (*m).hf.decode(bytes(ids, len), skip_special).map_err(|e| Failure::Library(e.to_string())));
    let (text, status) = match decoded {
        Ok(s) => (s, OK),
        Err(Failure::Library(s)) => (s, FAILED),
        Err(_) => (String::new(), FAILED),
    };
    *code = status;
    *out_len = text.len();
    Box::into_raw(text.into_bytes().into_boxed_slice()).cast()
}

/// # Safety
/// `text` and `len` came from `sietok_decode`.
#[no_mangle]
pub unsafe extern "C" fn sietok_free_text(text: *mut u8, len: usize) {
    drop(Box::from_raw(ptr::slice_from_raw_parts_mut(text, len)));
}

/// # Safety
/// `token` has `len` bytes.
#[no_mangle]
pub unsafe extern "C" fn sietok_token_id(m: *const Model, token: *const u8, len: usize) -> i64 {
    std::str::from_utf8(bytes(token, len)).ok().and_then(|t| (*m).hf.token_to_id(t)).map_or(-1, i64::from)
}
