//! The data keys of a database, wrapped by a key of the user.
//!
//! ```text
//! encryption/<20 digits>.key   "SLTKEY1\n" | id of the wrapping key 16 | nonce 12 |
//!                              data key 32 | tag 16
//! id of the wrapping key       the first 16 bytes of SHA-256("siltstone key id" | key)
//! ```
//! The newest data key encrypts; all of them decrypt. A database that is opened for writing with
//! another wrapping key in first place gets a new data key under it: objects that are written from
//! then on, by compaction too, are encrypted by it.

use super::cipher::{MAGIC, failed};
use crate::options::StoreOptions;
use crate::{PutAnswer, Store};
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::digest;
use bytes::Bytes;
use siltstone_base::name::prefix;
use siltstone_base::{Error, ErrorKind, ObjectName, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The store option with the wrapping keys.
pub(crate) const OPTION: &str = "encryption_key";
/// The variable that stands in for it.
const VARIABLE: &str = "SILTSTONE_ENCRYPTION_KEY";

const HEAD: &[u8; 8] = b"SLTKEY1\n";
const ID: usize = 16;
const KEY: usize = 32;
const TAG: usize = 16;
/// Tries to create a key while other processes do.
const TRIES: usize = 4;

/// A key that encrypts objects.
#[derive(Clone)]
pub(super) struct DataKey {
    number: u32,
    bytes: [u8; KEY],
}

impl DataKey {
    pub(super) fn new(number: u32, bytes: [u8; KEY]) -> DataKey {
        DataKey { number, bytes }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DataKey({})", self.number)
    }
}

/// A key of the user, which wraps data keys.
struct WrappingKey {
    id: [u8; ID],
    key: LessSafeKey,
}

/// The keys of the option, the current one first.
pub(super) struct WrappingKeys(Vec<WrappingKey>);

impl fmt::Debug for WrappingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WrappingKeys({})", self.0.len())
    }
}

impl WrappingKeys {
    /// The keys that the option or the variable gives, if any, and all other options.
    ///
    /// # Errors
    /// Invalid for a source that has no key; the text never shows one.
    pub(super) fn read(
        options: &StoreOptions,
        environment: &[(String, String)],
    ) -> Result<(Option<WrappingKeys>, StoreOptions)> {
        let (given, others) = options.without(OPTION);
        let of_name = |name: &str| {
            environment.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
        };
        // An empty text is no key, and not the absence of the option: a variable that was lost on
        // the way here must not make a database without encryption.
        let (text, of) = match (given, of_name(VARIABLE)) {
            (Some(given), _) => (given, OPTION),
            (None, Some(variable)) => (variable, VARIABLE),
            (None, None) => return Ok((None, others)),
        };
        let keys = text.split(',').map(|source| WrappingKey::read(source.trim(), &of_name));
        let keys = keys.collect::<Result<_>>().map_err(|error: Error| error.with("source", of))?;
        Ok((Some(WrappingKeys(keys)), others))
    }

    fn of_id(&self, id: &[u8]) -> Option<&WrappingKey> {
        self.0.iter().find(|key| key.id == id)
    }
}

impl WrappingKey {
    fn read(source: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<WrappingKey> {
        let wrong = |text: &str| {
            Error::invalid(format!(
                "{text}: store option `{OPTION}` is 64 hexadecimal digits, env:NAME with a \
                 variable that holds them, or file:PATH with a file of them or of 32 bytes"
            ))
        };
        let bytes = if let Some(name) = source.strip_prefix("env:") {
            let text = variable(name)
                .ok_or_else(|| wrong("the variable is not set").with("variable", name))?;
            from_hex(text.trim()).ok_or_else(|| wrong("the variable holds no key"))?
        } else if let Some(path) = source.strip_prefix("file:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            let read = std::fs::read(path).map_err(|error| {
                wrong("the file cannot be read").with("path", path).caused_by(error)
            })?;
            let text = std::str::from_utf8(&read).ok().and_then(|text| from_hex(text.trim()));
            let key = text.or_else(|| read.as_slice().try_into().ok());
            key.ok_or_else(|| wrong("the file holds no key").with("path", path))?
        } else {
            from_hex(source).ok_or_else(|| wrong("the option holds no key"))?
        };
        WrappingKey::new(&bytes)
    }

    fn new(bytes: &[u8; KEY]) -> Result<WrappingKey> {
        let mut hash = digest::Context::new(&digest::SHA256);
        hash.update(b"siltstone key id");
        hash.update(bytes);
        let hash = hash.finish();
        let id = hash.as_ref().first_chunk().copied().ok_or_else(failed)?;
        let key = UnboundKey::new(&AES_256_GCM, bytes).map_err(|_| failed())?;
        Ok(WrappingKey { id, key: LessSafeKey::new(key) })
    }

    /// The stored form of `key`.
    fn wrap(&self, key: &DataKey, nonce: [u8; NONCE_LEN]) -> Result<Bytes> {
        let mut wrapped = key.bytes.to_vec();
        let name = ObjectName::EncryptionKey(u64::from(key.number)).to_string();
        let nonce_of = Nonce::assume_unique_for_key(nonce);
        let sealed = self.key.seal_in_place_append_tag(nonce_of, Aad::from(name), &mut wrapped);
        sealed.map_err(|_| failed())?;
        Ok(Bytes::from([HEAD.as_slice(), &self.id, &nonce, &wrapped].concat()))
    }

    fn unwrap(&self, number: u32, nonce: [u8; NONCE_LEN], wrapped: &[u8]) -> Option<DataKey> {
        let mut text = wrapped.to_vec();
        let name = ObjectName::EncryptionKey(u64::from(number)).to_string();
        let nonce = Nonce::assume_unique_for_key(nonce);
        let bytes = self.key.open_in_place(nonce, Aad::from(name), &mut text).ok()?;
        Some(DataKey { number, bytes: (&*bytes).try_into().ok()? })
    }
}

fn from_hex(text: &str) -> Option<[u8; KEY]> {
    let mut key = [0; KEY];
    hex::decode_to_slice(text, &mut key).ok()?;
    Some(key)
}

fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| {
        Error::unavailable("the system gives no random bytes, which a new key needs")
    })?;
    Ok(bytes)
}

/// A stored key, in parts.
pub(super) struct StoredKey {
    pub(super) number: u32,
    id: [u8; ID],
    nonce: [u8; NONCE_LEN],
    wrapped: Vec<u8>,
}

impl StoredKey {
    pub(super) fn decode(number: u64, bytes: &[u8]) -> Result<StoredKey> {
        let damaged = || {
            Error::corruption("not a wrapped key").with("object", ObjectName::EncryptionKey(number))
        };
        let rest = bytes.strip_prefix(HEAD.as_slice()).ok_or_else(damaged)?;
        let (id, rest) = rest.split_first_chunk().ok_or_else(damaged)?;
        let (nonce, wrapped) = rest.split_first_chunk().ok_or_else(damaged)?;
        if wrapped.len() != KEY + TAG {
            return Err(damaged());
        }
        let number = u32::try_from(number).map_err(|_| damaged())?;
        Ok(StoredKey { number, id: *id, nonce: *nonce, wrapped: wrapped.to_vec() })
    }
}

/// The data keys of one database.
#[derive(Clone, Debug)]
pub(super) struct Keyring {
    keys: BTreeMap<u32, Arc<DataKey>>,
    newest: Arc<DataKey>,
    /// Whether the newest one is wrapped by the first key of the option.
    pub(super) is_current: bool,
}

impl Keyring {
    pub(super) fn newest(&self) -> &Arc<DataKey> {
        &self.newest
    }

    pub(super) fn key(&self, number: u32) -> Option<&Arc<DataKey>> {
        self.keys.get(&number)
    }

    /// The keys in `store`; `None` where there is no database.
    ///
    /// # Errors
    /// Denied for keys that none of `given` opens; Unsupported for a database without encryption;
    /// Corruption for an encrypted one whose data keys are gone; errors of the store.
    pub(super) async fn load(store: &dyn Store, given: &WrappingKeys) -> Result<Option<Keyring>> {
        let mut keys = BTreeMap::new();
        let mut newest = None;
        for name in store.names(prefix::ENCRYPTION, None).await? {
            let ObjectName::EncryptionKey(number) = name else { continue };
            let Some(bytes) = store.get(name, None).await? else { continue };
            let stored = StoredKey::decode(number, &bytes)?;
            let wrapping = given.of_id(&stored.id);
            let key = wrapping
                .and_then(|key| key.unwrap(stored.number, stored.nonce, &stored.wrapped))
                .ok_or_else(|| wrong_key(name, &stored.id))?;
            let key = Arc::new(key);
            keys.insert(stored.number, Arc::clone(&key));
            let is_current = given.0.first().is_some_and(|first| first.id == stored.id);
            newest = Some((key, is_current));
        }
        if let Some((newest, is_current)) = newest {
            return Ok(Some(Keyring { keys, newest, is_current }));
        }
        let Some(manifest) = store.names(prefix::MANIFEST, None).await?.pop() else {
            return Ok(None);
        };
        let begin = store.get_clamped(manifest, 0..MAGIC.len() as u64).await?;
        if begin.is_some_and(|begin| begin == MAGIC.as_slice()) {
            return Err(Error::corruption(
                "the data keys of the encrypted database are gone, and without them nothing in it \
                 can be read: restore their objects from a backup or from older versions in the \
                 bucket",
            )
            .with("missing object", ObjectName::EncryptionKey(1)));
        }
        Err(Error::unsupported(format!(
            "the database is not encrypted: open it without the store option `{OPTION}`, or \
             export it and import it into a place with that option"
        )))
    }

    /// The keys; the first one of a database is created. If `rotates`, the newest is one that the
    /// first key of the option wraps, and is created if need be.
    ///
    /// # Errors
    /// As [`Keyring::load`].
    pub(super) async fn load_or_create(
        store: &dyn Store,
        given: &WrappingKeys,
        rotates: bool,
    ) -> Result<Keyring> {
        let first = given.0.first().ok_or_else(failed)?;
        for _ in 0..TRIES {
            let found = Keyring::load(store, given).await?;
            let next = match found {
                Some(keyring) if keyring.is_current || !rotates => return Ok(keyring),
                Some(keyring) => keyring.newest.number + 1,
                None => 1,
            };
            let bytes = first.wrap(&DataKey::new(next, random()?), random()?)?;
            store.ensure_conditions().await?;
            let name = ObjectName::EncryptionKey(u64::from(next));
            match store.put_if_absent(name, bytes).await {
                // The object is read back below, also if another process created it first.
                PutAnswer::Created | PutAnswer::Exists | PutAnswer::Ambiguous(_) => {}
                PutAnswer::Refused(error) => return Err(error.with("object", name)),
            }
        }
        Err(Error::unavailable("a key of the database cannot be created"))
    }
}

fn wrong_key(name: ObjectName, id: &[u8]) -> Error {
    Error::new(
        ErrorKind::Denied,
        "none of the given keys opens a key of the database: give the key that it was written \
         with, after the current one, separated by a comma",
    )
    .with("store option", OPTION)
    .with("object", name)
    .with("id of the missing key", hex::encode(id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;
    use futures::FutureExt;

    fn given(keys: &[u8]) -> WrappingKeys {
        WrappingKeys(keys.iter().map(|byte| WrappingKey::new(&[*byte; KEY]).unwrap()).collect())
    }

    fn now<T>(work: impl Future<Output = T>) -> T {
        work.now_or_never().unwrap()
    }

    #[test]
    fn a_database_keeps_its_key_and_a_new_first_key_gets_a_new_one() {
        let store = MemoryStore::unnamed();
        let load = |keys: &[u8]| now(Keyring::load(&*store, &given(keys)));
        assert!(load(&[1]).unwrap().is_none());
        let first = now(Keyring::load_or_create(&*store, &given(&[1]), true)).unwrap();
        let again = now(Keyring::load_or_create(&*store, &given(&[1]), true)).unwrap();
        assert_eq!(first.newest().bytes(), again.newest().bytes());
        let refused = load(&[2]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Denied);

        let rotated = now(Keyring::load_or_create(&*store, &given(&[2, 1]), true)).unwrap();
        assert_eq!(rotated.newest().number(), 2);
        assert_ne!(rotated.newest().bytes(), first.newest().bytes());
        assert_eq!(rotated.key(1).unwrap().bytes(), first.newest().bytes());
        // The old one alone no longer opens it, both in any order do.
        assert_eq!(load(&[1]).unwrap_err().kind(), ErrorKind::Denied);
        assert!(!load(&[1, 2]).unwrap().unwrap().is_current);
    }

    #[test]
    fn sources_of_keys_are_read_and_never_shown() {
        let digits = "ab".repeat(KEY);
        let environment = [("MY_KEY".to_owned(), digits.clone())];
        let read = |text: &str| {
            let options = [(OPTION.to_owned(), text.to_owned())].into_iter().collect();
            WrappingKeys::read(&options, &environment)
                .map(|(keys, _)| keys.map(|keys| keys.0.len()))
        };
        assert!(WrappingKeys::read(&StoreOptions::default(), &environment).unwrap().0.is_none());
        assert_eq!(read(&digits).unwrap(), Some(1));
        assert_eq!(read(&format!("env:MY_KEY, {digits}")).unwrap(), Some(2));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [7; KEY]).unwrap();
        assert_eq!(read(&format!("file:{}", file.path().display())).unwrap(), Some(1));
        for bad in [&digits[1..], "env:NO_KEY", "file:/nowhere/at/all", "canary-key", "", ","] {
            let error = read(bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(!error.to_string().contains(&digits[1..]), "{error}");
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }

    #[test]
    fn damaged_keys_are_told() {
        let good = WrappingKey::new(&[1; KEY]).unwrap();
        let bytes = good.wrap(&DataKey::new(1, [9; KEY]), [0; NONCE_LEN]).unwrap();
        assert_eq!(StoredKey::decode(1, &bytes).unwrap().number, 1);
        for at in 0..bytes.len() {
            assert!(StoredKey::decode(1, &bytes[..at]).is_err());
        }
    }
}
