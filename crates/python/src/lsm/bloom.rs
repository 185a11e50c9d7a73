//! `BloomFilter`.

use crate::array;
use crate::bytes::{BytesArg, refuse_one, row};
use crate::column::Column;
use crate::error::{self, exception};
use crate::frames::is_arrow_column;
use crate::range::count;
use arrow_array::BooleanArray;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use siltstone::Error;
use siltstone::tables::{Bloom, BloomBuilder, key_hash};
use std::sync::Arc;

/// Default bits per key: about 1 % false positives.
const DEFAULT_BITS_PER_KEY: u32 = 10;
/// Maximum bits per key that have an effect.
const MAX_BITS_PER_KEY: u32 = 64;

/// The filter that tables carry: it tells which keys are certainly not in a set. It is
/// immutable.
///
/// :param keys: the keys of the set. Nulls of an Arrow array are ignored.
/// :param bits_per_key: 1 to 64; 10 by default, which gives a false positive rate of about 1 %.
#[pyclass(frozen, module = "siltstone.lsm")]
pub(crate) struct BloomFilter {
    bloom: Bloom,
}

#[pymethods]
impl BloomFilter {
    /// Builds the filter of `keys`.
    #[new]
    #[pyo3(signature = (keys, *, bits_per_key=None))]
    fn new(
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        bits_per_key: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        let bits = match bits_per_key {
            None => DEFAULT_BITS_PER_KEY,
            Some(bits) => match u32::try_from(count(&bits, "bits_per_key", 1)?) {
                Ok(bits) if bits <= MAX_BITS_PER_KEY => bits,
                _ => {
                    let text = format!("bits_per_key must be 1 to {MAX_BITS_PER_KEY}, not {bits}");
                    return Err(error::invalid(py, text));
                }
            },
        };
        let mut builder = BloomBuilder::new(bits);
        if is_arrow_column(keys)? {
            let column = Column::from_python(keys, "keys")?;
            py.detach(|| column.rows().flatten().for_each(|key| builder.add(key_hash(key))));
        } else {
            refuse_one(keys, "keys")?;
            for (position, key) in keys.try_iter()?.enumerate() {
                builder.add(key_hash(row(&key?, "keys", position)?.as_ref()));
            }
        }
        let encoded = py.detach(|| builder.finish());
        BloomFilter::from_bytes(py, BytesArg::Borrowed(&encoded))
    }

    /// Returns the filter from the result of `to_bytes`.
    ///
    /// :raises Corruption: if the bytes are not a filter.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, data: BytesArg<'_>) -> PyResult<Self> {
        let bloom = Bloom::decode(data.as_ref()).map_err(|error| {
            let text = "these bytes are not a filter of Siltstone";
            exception(py, &Error::corruption(text).caused_by(error))
        })?;
        Ok(BloomFilter { bloom })
    }

    /// The stored form, which tables also contain.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.bloom.encode())
    }

    /// Whether `key` may be in the set. False is certain.
    fn may_contain(&self, key: BytesArg<'_>) -> bool {
        self.bloom.may_contain(key_hash(key.as_ref()))
    }

    fn __contains__(&self, key: BytesArg<'_>) -> bool {
        self.may_contain(key)
    }

    /// `may_contain` for each key, in the order of `keys`.
    ///
    /// For an Arrow array of keys the result is an Arrow array of bool, with a null for a null.
    fn may_contain_many<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if is_arrow_column(keys)? {
            let column = Column::from_python(keys, "keys")?;
            let ask = |key: Option<&[u8]>| key.map(|key| self.bloom.may_contain(key_hash(key)));
            let answers: BooleanArray = py.detach(|| column.rows().map(ask).collect());
            return array::wrap(py, keys, Arc::new(answers));
        }
        let answers = PyList::empty(py);
        refuse_one(keys, "keys")?;
        for (position, key) in keys.try_iter()?.enumerate() {
            answers.append(self.may_contain(row(&key?, "keys", position)?))?;
        }
        Ok(answers.into_any())
    }

    /// Size of the stored form in bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.bloom.encoded_len()
    }

    /// Expected rate of false positives, computed from the bits that are set.
    #[getter]
    fn false_positive_rate(&self) -> f64 {
        self.bloom.false_positive_rate()
    }

    /// Pickles the encoded filter.
    fn __reduce__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyBytes>,))> {
        let again = py.get_type::<BloomFilter>().getattr("from_bytes")?;
        Ok((again, (self.to_bytes(py),)))
    }

    fn __repr__(&self) -> String {
        let (bytes, rate) = (self.nbytes(), self.false_positive_rate());
        format!("<siltstone.lsm.BloomFilter of {bytes} bytes, {rate:.2e} false positives>")
    }
}
