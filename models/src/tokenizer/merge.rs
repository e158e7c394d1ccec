//! The merge loop shared by the vocabularies that work on raw UTF-8 characters.
//!
//! Symbols form a linked list; a heap holds the pairs that could be merged, best first and
//! leftmost among equals. A pair that has changed since it was pushed is recognised by its
//! length and skipped, so a text of n characters takes O(n log n) whatever it contains.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::text::sequence_length;
use super::vocabulary::Vocabulary;

const NONE: u32 = u32::MAX;

/// Which adjacent symbols merge.
pub(crate) trait MergeRule {
    /// Priority (lower merges first) and id of the token that `left` and `right` form, where
    /// `text` is what both cover. `left` and `right` are ids, `None` for a symbol that is no token.
    fn merge(&self, text: &[u8], left: Option<u32>, right: Option<u32>) -> Option<(u32, u32)>;
}

#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: u32,
    /// 0 once it was merged into its left neighbour.
    length: u32,
    id: u32,
    previous: u32,
    next: u32,
}

/// The order of the fields is the order of merging.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    priority: u32,
    left: u32,
    right: u32,
    length: u32,
    id: u32,
}

/// Merges the characters of `text` by `rule` and hands each remaining symbol to `emit`: its id
/// if it is a token, and its bytes.
pub(crate) fn merge(
    text: &[u8],
    vocabulary: &Vocabulary,
    rule: &impl MergeRule,
    mut emit: impl FnMut(Option<u32>, &[u8]),
) {
    let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
    let mut start = 0;
    while start < text.len() {
        let length = sequence_length(text[start]).min(text.len() - start);
        let index = symbols.len() as u32;
        symbols.push(Symbol {
            start: start as u32,
            length: length as u32,
            id: vocabulary.id(&text[start..start + length]).unwrap_or(NONE),
            previous: index.wrapping_sub(1),
            next: index + 1,
        });
        start += length;
    }
    let Some(last) = symbols.last_mut() else { return };
    last.next = NONE;

    let candidate = |symbols: &[Symbol], left: u32, right: u32| -> Option<Reverse<Pair>> {
        let [a, b] = [symbols.get(left as usize)?, symbols.get(right as usize)?];
        let length = a.length + b.length;
        let covered = &text[a.start as usize..(a.start + length) as usize];
        let token = |symbol: &Symbol| (symbol.id != NONE).then_some(symbol.id);
        let (priority, id) = rule.merge(covered, token(a), token(b))?;
        Some(Reverse(Pair { priority, left, right, length, id }))
    };

    let mut heap: BinaryHeap<_> =
        (1..symbols.len() as u32).filter_map(|right| candidate(&symbols, right - 1, right)).collect();
    while let Some(Reverse(pair)) = heap.pop() {
        let [left, right] = [symbols[pair.left as usize], symbols[pair.right as usize]];
        if left.length == 0 || right.length == 0 || left.length + right.length != pair.length {
            continue;
        }
        symbols[pair.right as usize].length = 0;
        let merged = &mut symbols[pair.left as usize];
        (merged.length, merged.id, merged.next) = (pair.length, pair.id, right.next);
        if let Some(next) = symbols.get_mut(right.next as usize) {
            next.previous = pair.left;
        }
        heap.extend(candidate(&symbols, left.previous, pair.left));
        heap.extend(candidate(&symbols, pair.left, right.next));
    }

    for symbol in symbols.iter().filter(|symbol| symbol.length > 0) {
        let start = symbol.start as usize;
        emit((symbol.id != NONE).then_some(symbol.id), &text[start..start + symbol.length as usize]);
    }
}
