//! Numbers as bytes of a fixed width that are ordered as the numbers: big-endian, with the sign
//! encoded in order.

/// A number of `N` bytes.
pub(crate) trait Ordered<const N: usize>: Copy {
    /// Bytes that compare as the numbers do.
    fn to_ordered(self) -> [u8; N];

    /// The number that these bytes are; `None` for bytes that [`Ordered::to_ordered`] never gives.
    fn from_ordered(bytes: [u8; N]) -> Option<Self>;
}

/// Two's complement puts what is below zero behind the rest: the sign bit, flipped, before it.
macro_rules! signed {
    ($($number:ident: $bytes:literal;)*) => {
        $(impl Ordered<$bytes> for $number {
            #[inline]
            fn to_ordered(self) -> [u8; $bytes] {
                (self ^ $number::MIN).to_be_bytes()
            }

            #[inline]
            fn from_ordered(bytes: [u8; $bytes]) -> Option<Self> {
                Some($number::from_be_bytes(bytes) ^ $number::MIN)
            }
        })*
    };
}

/// Floats are a sign and a magnitude: below zero every bit is flipped, so that a larger magnitude
/// comes first; from zero on the sign bit alone. The one NaN, positive, is behind infinity.
macro_rules! float {
    ($($number:ident, $bits:ident: $bytes:literal, $nan:literal;)*) => {
        $(impl Ordered<$bytes> for $number {
            #[inline]
            fn to_ordered(self) -> [u8; $bytes] {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let bits = if self.is_nan() {
                    $nan
                } else if self == 0.0 {
                    0
                } else {
                    self.to_bits()
                };
                let ordered = if bits & SIGN == 0 { bits ^ SIGN } else { !bits };
                ordered.to_be_bytes()
            }

            #[inline]
            fn from_ordered(bytes: [u8; $bytes]) -> Option<Self> {
                const SIGN: $bits = 1 << ($bits::BITS - 1);
                let ordered = $bits::from_be_bytes(bytes);
                let bits = if ordered & SIGN == 0 { !ordered } else { ordered ^ SIGN };
                let number = $number::from_bits(bits);
                (number.to_ordered() == bytes).then_some(number)
            }
        })*
    };
}

/// Below nothing there is nothing.
macro_rules! unsigned {
    ($($number:ident: $bytes:literal;)*) => {
        $(impl Ordered<$bytes> for $number {
            #[inline]
            fn to_ordered(self) -> [u8; $bytes] {
                self.to_be_bytes()
            }

            #[inline]
            fn from_ordered(bytes: [u8; $bytes]) -> Option<Self> {
                Some($number::from_be_bytes(bytes))
            }
        })*
    };
}

signed! {
    i8: 1;
    i16: 2;
    i32: 4;
    i64: 8;
    i128: 16;
}

unsigned! {
    u8: 1;
    u16: 2;
    u32: 4;
    u64: 8;
}

float! {
    f32, u32: 4, 0x7fc0_0000;
    f64, u64: 8, 0x7ff8_0000_0000_0000;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_one_zero_and_one_nan() {
        let numbers = [f64::NEG_INFINITY, -2.5, -f64::MIN_POSITIVE, -5e-324, 0.0, 5e-324, 1.0];
        let numbers = [&numbers[..], &[f64::MAX, f64::INFINITY, f64::NAN]].concat();
        for pair in numbers.windows(2) {
            assert!(pair[0].to_ordered() < pair[1].to_ordered(), "{pair:?}");
        }
        assert_eq!((-0.0f64).to_ordered(), 0.0f64.to_ordered());
        assert_eq!((-f64::NAN).to_ordered(), f64::NAN.to_ordered());
        assert_eq!(f64::from_bits(0x7ff0_0000_0000_0001).to_ordered(), f64::NAN.to_ordered());
        // A negative zero, and two other NaN.
        assert_eq!(f64::from_ordered(0x7fff_ffff_ffff_ffffu64.to_be_bytes()), None);
        assert_eq!(f64::from_ordered([0xff; 8]), None);
        assert_eq!(f64::from_ordered([0; 8]), None);
    }
}
