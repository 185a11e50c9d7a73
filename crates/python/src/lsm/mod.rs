//! `siltstone.lsm`: the parts of the engine, usable on their own (RFC 0014).
//!
//! | file | holds |
//! | --- | --- |
//! | `memtable`, `reader`, `writer`, `bloom` | one type each |
//! | `merge` | `merge_sorted` |
//! | `target` | the target of a writer and the source of a reader |
//! | `pairs` | keys and values as columns or as sequences |
//! | `info` | the properties of a table |

pub(crate) mod bloom;
mod info;
pub(crate) mod memtable;
pub(crate) mod merge;
pub(crate) mod pairs;
pub(crate) mod reader;
pub(crate) mod target;
pub(crate) mod writer;

use crate::source::Readable;
use siltstone::tables::{MemoryTable, TableFile, View};
use siltstone::{Answer, Keys, Result, Value};

impl Readable for View {
    fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        View::get(self, key)
    }

    fn get_many(&self, keys: Keys) -> Result<Answer<Vec<Option<Value>>>> {
        View::get_many(self, keys)
    }
}

impl Readable for TableFile {
    fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        TableFile::get(self, key)
    }

    fn get_many(&self, keys: Keys) -> Result<Answer<Vec<Option<Value>>>> {
        TableFile::get_many(self, keys)
    }
}

impl Readable for MemoryTable {
    fn get(&self, key: &[u8]) -> Result<Answer<Option<Value>>> {
        MemoryTable::get(self, key)
    }

    fn get_many(&self, keys: Keys) -> Result<Answer<Vec<Option<Value>>>> {
        self.view().get_many(keys)
    }
}
