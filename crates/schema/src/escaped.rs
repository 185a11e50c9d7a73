//! Order-preserving encoding of byte strings with an end: a zero byte becomes `00 ff`, the end is
//! `00 00`. The end sorts below every continuation, so the encodings are ordered as the strings, a
//! prefix first.

use std::mem::take;

const END: [u8; 2] = [0, 0];
const ZERO: [u8; 2] = [0, 0xff];

/// Bytes that [`write_escaped`] writes.
#[inline]
pub(crate) fn escaped_len(bytes: &[u8]) -> usize {
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    bytes.len() + zeros + END.len()
}

/// Writes `bytes` at the front of `row` and moves it behind them; `flip` inverts with `0xff`.
///
/// A row is as long as was measured before, so nothing is ever left out; who measured wrong finds
/// room left at the end.
#[inline]
pub(crate) fn write(row: &mut &mut [u8], bytes: &[u8], flip: u8) {
    let whole = take(row);
    let Some((head, tail)) = whole.split_at_mut_checked(bytes.len()) else {
        debug_assert!(false, "a row was measured too short");
        return;
    };
    head.copy_from_slice(bytes);
    if flip != 0 {
        head.iter_mut().for_each(|byte| *byte ^= flip);
    }
    *row = tail;
}

/// [`write`], escaped and with the end mark.
#[inline]
pub(crate) fn write_escaped(row: &mut &mut [u8], bytes: &[u8], flip: u8) {
    if bytes.contains(&0) {
        for (position, piece) in bytes.split(|byte| *byte == 0).enumerate() {
            if position > 0 {
                write(row, &ZERO, flip);
            }
            write(row, piece, flip);
        }
    } else {
        write(row, bytes, flip);
    }
    write(row, &END, flip);
}

/// Appends the string at the front of `rest` to `out`, and moves `rest` behind its end mark;
/// `None` for what is no escaped string.
#[inline]
pub(crate) fn take_escaped(rest: &mut &[u8], flip: u8, out: &mut Vec<u8>) -> Option<()> {
    loop {
        let zero = rest.iter().position(|byte| *byte == flip)?;
        let (piece, after) = rest.split_at_checked(zero)?;
        if flip == 0 {
            out.extend_from_slice(piece);
        } else {
            out.extend(piece.iter().map(|byte| byte ^ flip));
        }
        let [_, second, tail @ ..] = after else { return None };
        *rest = tail;
        match second ^ flip {
            0 => return Some(()),
            0xff => out.push(0),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(bytes: &[u8], flip: u8) -> Vec<u8> {
        let mut out = vec![7; escaped_len(bytes)];
        let mut row = out.as_mut_slice();
        write_escaped(&mut row, bytes, flip);
        assert!(row.is_empty());
        out
    }

    #[test]
    fn an_end_is_below_every_continuation() {
        let strings: [&[u8]; 8] =
            [b"", b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"a\x01", b"a\xff"];
        for pair in strings.windows(2) {
            // The greatest bytes that may follow.
            let lower = [escaped(pair[0], 0), vec![0xff; 4]].concat();
            assert!(lower < escaped(pair[1], 0), "{pair:?}");
            let upper = [escaped(pair[1], 0xff), vec![0xff; 4]].concat();
            assert!(upper < escaped(pair[0], 0xff), "{pair:?}");
        }
        assert_eq!(escaped(b"a\0b", 0), *b"a\0\xffb\0\0");
    }

    #[test]
    fn strings_come_back_and_others_are_refused() {
        for flip in [0, 0xff] {
            for bytes in [&b""[..], b"\0", b"a\0\0b", b"\xff"] {
                let stored = [escaped(bytes, flip), b"rest".to_vec()].concat();
                let (mut rest, mut out) = (stored.as_slice(), Vec::new());
                assert_eq!(take_escaped(&mut rest, flip, &mut out), Some(()));
                assert_eq!((rest, out.as_slice()), (&b"rest"[..], bytes));
            }
        }
        for wrong in [&b""[..], b"a", b"a\0", b"a\0\x01", b"a\0\xff"] {
            assert_eq!(take_escaped(&mut &*wrong, 0, &mut Vec::new()), None);
        }
    }
}
