//! A double-array trie over bytes.
//!
//! It finds the longest vocabulary entry that a byte string starts with, in one pass and one cache
//! line per byte.

/// One state. `check` holds the parent's index plus one (0: free slot); `base + byte` is the child.
#[derive(Clone, Copy)]
struct Node {
    base: u32,
    check: u32,
    /// Vocabulary id of the entry that ends here, or -1.
    value: i32,
}

const FREE: Node = Node { base: 0, check: 0, value: -1 };

/// The start state for a whole word.
pub const ROOT: u32 = 0;

pub struct Trie {
    nodes: Vec<Node>,
}

impl Trie {
    /// Builds from entries in any order; ids must be below 2^31. Later duplicates win.
    pub fn new(entries: impl Iterator<Item = (Vec<u8>, u32)>) -> Trie {
        let mut keys: Vec<(Vec<u8>, u32)> = entries.collect();
        keys.sort();
        let mut t = Trie { nodes: vec![FREE; 1 << 10] };
        // The root's slot is taken, so that no child uses it.
        t.nodes[0].check = u32::MAX;
        let mut first_free = 1usize;
        let mut work = vec![(0usize, keys.len(), 0usize, ROOT)];
        let mut labels: Vec<(u8, usize, usize)> = Vec::new();
        while let Some((mut lo, hi, depth, node)) = work.pop() {
            while lo < hi && keys[lo].0.len() == depth {
                t.nodes[node as usize].value = keys[lo].1 as i32;
                lo += 1;
            }
            if lo == hi {
                continue;
            }
            labels.clear();
            let mut from = lo;
            while from < hi {
                let b = keys[from].0[depth];
                let to = from + keys[from..hi].partition_point(|k| k.0[depth] == b);
                labels.push((b, from, to));
                from = to;
            }
            let base = t.place(&labels, &mut first_free);
            t.nodes[node as usize].base = base as u32;
            for &(b, from, to) in &labels {
                let child = base + b as usize;
                t.nodes[child].check = node + 1;
                work.push((from, to, depth + 1, child as u32));
            }
        }
        // Room for any byte after the last base, so that `step` needs no second comparison.
        let top = t.nodes.iter().map(|n| n.base).max().unwrap_or(0) as usize + 256;
        t.nodes.resize(top.max(t.nodes.len()), FREE);
        t
    }

    /// The first base at which every label's slot is free.
    fn place(&mut self, labels: &[(u8, usize, usize)], first_free: &mut usize) -> usize {
        let lowest = labels[0].0 as usize;
        let mut slot = (*first_free).max(lowest + 1);
        let mut taken = 0usize;
        let start = slot;
        loop {
            if slot + 256 > self.nodes.len() {
                let n = self.nodes.len() * 2;
                self.nodes.resize(n, FREE);
            }
            if self.nodes[slot].check != 0 {
                taken += 1;
                slot += 1;
                continue;
            }
            let base = slot - lowest;
            if labels.iter().all(|l| self.nodes[base + l.0 as usize].check == 0) {
                // Skip regions that are nearly full next time: the build stays linear in practice.
                if taken * 20 >= (slot - start + 1) * 19 {
                    *first_free = slot;
                }
                return base;
            }
            slot += 1;
        }
    }

    #[inline]
    fn step(&self, node: u32, byte: u8) -> Option<u32> {
        let next = self.nodes[node as usize].base as usize + byte as usize;
        let n = self.nodes.get(next)?;
        (n.check == node + 1).then_some(next as u32)
    }

    /// Returns the state that `key` leads to, if some entry starts with it.
    pub fn walk(&self, key: &[u8]) -> Option<u32> {
        key.iter().try_fold(ROOT, |n, &b| self.step(n, b))
    }

    /// Returns the longest entry that `text` starts with, walking from `node`, as (id, length). The
    /// length is never 0.
    #[inline]
    pub fn longest(&self, mut node: u32, text: &[u8]) -> Option<(u32, usize)> {
        let mut best = None;
        for (i, &b) in text.iter().enumerate() {
            match self.step(node, b) {
                Some(n) => node = n,
                None => break,
            }
            let v = self.nodes[node as usize].value;
            if v >= 0 {
                best = Some((v as u32, i + 1));
            }
        }
        best
    }
}

impl Trie {
    /// Calls `f` with (id, length) of every entry that `text` starts with, shortest first.
    #[inline]
    pub fn each(&self, mut node: u32, text: &[u8], mut f: impl FnMut(u32, usize)) {
        for (i, &b) in text.iter().enumerate() {
            match self.step(node, b) {
                Some(n) => node = n,
                None => return,
            }
            let v = self.nodes[node as usize].value;
            if v >= 0 {
                f(v as u32, i + 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_match_equals_a_scan_of_the_vocabulary() {
        let mut words: Vec<Vec<u8>> = Vec::new();
        let mut x = 12345u32;
        for _ in 0..3000 {
            x = x.wrapping_mul(1664525).wrapping_add(1013904223);
            let n = 1 + (x >> 29) as usize;
            words.push((0..n).map(|i| (x >> (i * 3)) as u8 % 5 * 50).collect());
        }
        words.sort();
        words.dedup();
        let t = Trie::new(words.iter().cloned().zip(0u32..));
        for w in &words {
            let mut text = w.clone();
            text.extend_from_slice(&[0, 50, 100, 150]);
            let want = (1..=text.len())
                .rev()
                .find_map(|n| words.binary_search(&text[..n].to_vec()).ok().map(|i| (i as u32, n)));
            assert_eq!(t.longest(ROOT, &text), want);
        }
    }
}
