//! The choice of the eight bytes of each key that are stored as a number.
//!
//! Keys of one database often have a common prefix (`order/2026-…`), so the first eight bytes do
//! not distinguish them. A window skips the common prefix:
//!
//! ```text
//! common = "order/2026-"
//! prefix("order/2026-11-21…") = the 8 bytes "11-21…"
//! prefix("order/2025-…")      = 0                      below all keys with the common part
//! prefix("user/…")            = 2^64 - 1               above it
//! ```
//! For every window, prefixes are ordered as their keys: unequal prefixes decide a comparison,
//! equal ones do not. So a badly chosen window costs comparisons of bytes, but never changes the
//! order.

use siltstone_base::prefix::{head, shared_prefix};

/// A window, given by the bytes that it skips.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    common: Vec<u8>,
}

impl Window {
    /// The window for keys from `least` to `greatest`.
    pub(crate) fn between(least: &[u8], greatest: &[u8]) -> Self {
        let common = least.get(..shared_prefix(least, greatest)).unwrap_or_default();
        Window { common: common.to_vec() }
    }

    /// The number for `key`.
    pub(crate) fn prefix(&self, key: &[u8]) -> u64 {
        match key.strip_prefix(self.common.as_slice()) {
            Some(rest) => head(rest),
            None if key < self.common.as_slice() => 0,
            None => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop::sample::select(vec![0u8, 1, b'a', 0xff]), 0..most)
    }

    proptest! {
        #[test]
        fn prefixes_order_as_keys_do(mut keys in prop::collection::vec(bytes(12), 2..20),
                                     common in bytes(4)) {
            keys.sort();
            let window = Window { common };
            for pair in keys.windows(2) {
                prop_assert!(window.prefix(&pair[0]) <= window.prefix(&pair[1]), "{pair:?}");
            }
        }
    }

    #[test]
    fn a_common_prefix_is_passed_over() {
        let window = Window::between(b"order/01", b"order/93");
        assert_eq!(window.common, b"order/");
        assert_eq!(window.prefix(b"order/abcdefghij"), u64::from_be_bytes(*b"abcdefgh"));
        assert_eq!(window.prefix(b"order/a"), u64::from(b'a') << 56);
        assert_eq!((window.prefix(b"order"), window.prefix(b"p")), (0, u64::MAX));
        assert_eq!(Window::default().prefix(b"abcdefghi"), u64::from_be_bytes(*b"abcdefgh"));
    }
}
