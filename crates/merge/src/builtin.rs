//! The built-in merge operators (RFC 0023). Databases record their names, so neither the names nor
//! the results may ever change.

use siltstone_base::{Error, MergeOperator, Result};
use std::sync::Arc;

/// The built-in operator with that name.
#[must_use]
pub fn built_in(name: &str) -> Option<Arc<dyn MergeOperator>> {
    ALL.into_iter().find(|one| one.name() == name).map(|one| Arc::new(one) as _)
}

/// The names of the built-in operators.
pub fn built_in_names() -> impl Iterator<Item = &'static str> {
    ALL.into_iter().map(BuiltIn::text)
}

const ALL: [BuiltIn; 3] = [BuiltIn::SumI64, BuiltIn::Max, BuiltIn::Append];

#[derive(Clone, Copy)]
enum BuiltIn {
    /// Adds numbers of 8 bytes, little-endian, two's complement. Wraps: a saturating sum would
    /// depend on the order in which compactions add operands.
    SumI64,
    /// The larger value, compared by bytes.
    Max,
    /// Concatenation.
    Append,
}

impl BuiltIn {
    fn text(self) -> &'static str {
        match self {
            BuiltIn::SumI64 => "sum_i64",
            BuiltIn::Max => "max",
            BuiltIn::Append => "append",
        }
    }

    fn apply<'a>(self, all: impl Iterator<Item = &'a [u8]>) -> Result<Vec<u8>> {
        match self {
            BuiltIn::SumI64 => {
                let mut sum = 0i64;
                for bytes in all {
                    sum = sum.wrapping_add(number(bytes)?);
                }
                Ok(sum.to_le_bytes().to_vec())
            }
            BuiltIn::Max => Ok(all.max().unwrap_or_default().to_vec()),
            BuiltIn::Append => Ok(all.flatten().copied().collect()),
        }
    }
}

fn number(bytes: &[u8]) -> Result<i64> {
    <[u8; 8]>::try_from(bytes).map(i64::from_le_bytes).map_err(|_| {
        let text = "sum_i64 takes numbers of 8 bytes, little-endian; put such a number at the key, \
                    or delete it";
        Error::invalid(text).with("bytes", bytes.len())
    })
}

impl MergeOperator for BuiltIn {
    fn name(&self) -> &str {
        self.text()
    }

    fn check(&self, operand: &[u8]) -> Result<()> {
        match self {
            BuiltIn::SumI64 => number(operand).map(drop),
            BuiltIn::Max | BuiltIn::Append => Ok(()),
        }
    }

    fn is_repeatable(&self) -> bool {
        true
    }

    fn fold(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>> {
        self.apply(base.into_iter().chain(operands.iter().copied()))
    }

    fn fold_operands(&self, _key: &[u8], operands: &[&[u8]]) -> Result<Option<Vec<u8>>> {
        self.apply(operands.iter().copied()).map(Some)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn names_find_their_operators() {
        for name in built_in_names() {
            assert_eq!(built_in(name).unwrap().name(), name);
        }
        assert!(built_in("sum").is_none());
    }

    #[test]
    fn sums_wrap_and_refuse_what_is_no_number() {
        let sum = built_in("sum_i64").unwrap();
        let one = 1i64.to_le_bytes();
        let max = i64::MAX.to_le_bytes();
        let folded = sum.fold(b"k", Some(&max), &[&one, &one]).unwrap();
        assert_eq!(folded, (i64::MIN + 1).to_le_bytes());
        assert_eq!(sum.fold(b"k", None, &[]).unwrap(), 0i64.to_le_bytes());
        assert!(sum.fold(b"k", Some(b"12"), &[&one]).is_err());
        assert!(sum.check(b"1234567").is_err());
        assert!(sum.check(&one).is_ok());
    }

    proptest! {
        #[test]
        fn folding_early_changes_nothing(
            base in prop::option::of(any::<i64>()),
            operands in vec(any::<i64>(), 1..9),
            cut in any::<prop::sample::Index>(),
        ) {
            let base = base.map(i64::to_le_bytes);
            let base = base.as_ref().map(|bytes| &bytes[..]);
            let operands: Vec<_> = operands.into_iter().map(i64::to_le_bytes).collect();
            let operands: Vec<&[u8]> = operands.iter().map(|bytes| &bytes[..]).collect();
            let (early, late) = operands.split_at(cut.index(operands.len() + 1));
            for operator in ALL {
                let whole = operator.fold(b"k", base, &operands).unwrap();
                let first = operator.fold(b"k", base, early).unwrap();
                let first = (base.is_some() || !early.is_empty()).then_some(&first[..]);
                prop_assert_eq!(&operator.fold(b"k", first, late).unwrap(), &whole);
                let one = operator.fold_operands(b"k", &operands).unwrap().unwrap();
                prop_assert_eq!(&operator.fold(b"k", base, &[&one]).unwrap(), &whole);
            }
        }
    }
}
