//! A store whose objects are encrypted on this side (RFC 0054): keys and values, indexes, filters,
//! manifests and the log. Names, lengths and times of objects are not.
//!
//! This module must never hand plain bytes to the store below, and never decrypt with another key
//! than that of the object's name.

mod cipher;
pub mod form;
mod keys;
mod upload;

use crate::env::Effects;
use crate::options::StoreOptions;
use crate::profile::Profile;
use crate::{Listed, Neighbours, PutAnswer, Store, Upload, check_range, passed_on, too_short};
use bytes::{Bytes, BytesMut};
use cipher::{MAGIC, ObjectKey, PIECE, STORED_PIECE, is_table};
use futures::FutureExt;
use futures::future::BoxFuture;
pub(crate) use keys::OPTION;
use keys::{Keyring, WrappingKeys};
use parking_lot::RwLock;
use siltstone_base::{Error, JobId, ObjectName, Result, envelope};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use upload::EncryptedUpload;

/// A store that encrypts. Cheap to clone.
pub struct EncryptedStore {
    /// The store below, which passes its facts on.
    store: Arc<dyn Store>,
    shared: Arc<EncryptedShared>,
}

struct EncryptedShared {
    store: Arc<dyn Store>,
    given: Arc<WrappingKeys>,
    effects: Effects,
    keyring: RwLock<Option<Arc<Keyring>>>,
    /// Held while keys are loaded, so that one task does it.
    loading: tokio::sync::Mutex<()>,
}

/// The encryption keys from the options or the environment, if there are any, and all other
/// options.
///
/// # Errors
/// Invalid for a key that cannot be read.
pub(crate) fn read_option(
    options: &StoreOptions,
    environment: &[(String, String)],
) -> Result<(Option<EncryptionKeys>, StoreOptions)> {
    let (keys, others) = WrappingKeys::read(options, environment)?;
    Ok((keys.map(|keys| EncryptionKeys(Arc::new(keys))), others))
}

/// The keys of the user.
#[derive(Clone)]
pub(crate) struct EncryptionKeys(Arc<WrappingKeys>);

impl EncryptionKeys {
    /// `store`, encrypted with these keys.
    pub(crate) fn over(self, store: Arc<dyn Store>, effects: Effects) -> Arc<dyn Store> {
        EncryptedStore::new(store, self.0, effects)
    }
}

impl fmt::Debug for EncryptedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl EncryptedStore {
    fn new(
        store: Arc<dyn Store>,
        given: Arc<WrappingKeys>,
        effects: Effects,
    ) -> Arc<EncryptedStore> {
        let (keyring, loading) = (RwLock::default(), tokio::sync::Mutex::default());
        let below = Arc::clone(&store);
        let shared = EncryptedShared { store: below, given, effects, keyring, loading };
        Arc::new(EncryptedStore { store, shared: Arc::new(shared) })
    }
}

impl EncryptedShared {
    fn known(&self) -> Option<Arc<Keyring>> {
        self.keyring.read().clone()
    }

    /// The keys of the database; `None` where there is no database.
    async fn keys(&self) -> Result<Option<Arc<Keyring>>> {
        if let Some(known) = self.known() {
            return Ok(Some(known));
        }
        let _loading = self.loading.lock().await;
        if let Some(known) = self.known() {
            return Ok(Some(known));
        }
        let found = Keyring::load(&*self.store, &self.given).await?.map(Arc::new);
        self.keyring.write().clone_from(&found);
        Ok(found)
    }

    /// The keys for writing `name`. For rows, the newest one is wrapped by the first key of the
    /// option, and is created if need be. The lease of a reader, or a checkpoint, is no reason to
    /// rotate the keys of a database that other processes use with another key.
    async fn keys_for_writing(&self, name: ObjectName) -> Result<Arc<Keyring>> {
        let rotates = is_table(name) || matches!(name, ObjectName::Wal(_));
        let fits = |known: &Keyring| known.is_current || !rotates;
        if let Some(known) = self.known().filter(|known| fits(known)) {
            return Ok(known);
        }
        let _loading = self.loading.lock().await;
        if let Some(known) = self.known().filter(|known| fits(known)) {
            return Ok(known);
        }
        let keyring = Keyring::load_or_create(&*self.store, &self.given, rotates).await?;
        let keyring = Arc::new(keyring);
        *self.keyring.write() = Some(Arc::clone(&keyring));
        Ok(keyring)
    }

    /// The key of an object whose pieces have the data key `number`. Another process may have
    /// created it since the keys were loaded.
    async fn key_of(&self, name: ObjectName, number: u32) -> Result<ObjectKey> {
        for is_last in [false, true] {
            if let Some(keyring) = self.keys().await?
                && let Some(key) = keyring.key(number)
            {
                return ObjectKey::new(key, name);
            }
            if !is_last {
                *self.keyring.write() = None;
            }
        }
        Err(lacks_key(number).with("object", name))
    }

    /// The plain form of stored pieces, from piece `first` on.
    async fn open_pieces(&self, name: ObjectName, first: u64, stored: &[u8]) -> Result<BytesMut> {
        let mut plain = BytesMut::with_capacity(stored.len());
        let mut key: Option<(u32, ObjectKey)> = None;
        for (index, piece) in (first..).zip(stored.chunks(STORED_PIECE as usize)) {
            let number = cipher::key_number(piece).ok_or_else(|| cut(name))?;
            let current = match key.take() {
                Some((of, current)) if of == number => current,
                _ => self.key_of(name, number).await?,
            };
            plain.extend_from_slice(&current.open(index, piece)?);
            key = Some((number, current));
        }
        Ok(plain)
    }

    async fn open_whole(&self, name: ObjectName, stored: &Bytes) -> Result<Bytes> {
        let Some(sealed) = stored.strip_prefix(MAGIC.as_slice()) else {
            // Every plain object begins with an envelope. Other bytes are damage.
            let error = if stored.starts_with(envelope::MAGIC) {
                Error::unsupported(
                    "the object is not encrypted, and the database is opened with a key: open it \
                     without the store option `encryption_key`",
                )
            } else {
                begins_otherwise()
            };
            return Err(error.with("object", name));
        };
        let number = cipher::key_number(sealed).ok_or_else(|| cut(name))?;
        Ok(Bytes::from(self.key_of(name, number).await?.open(0, sealed)?))
    }

    async fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Option<Bytes>> {
        // The store below writes it, not encrypted.
        if name == ObjectName::TwoPhaseNamespace {
            return self.store.get(name, range).await;
        }
        check_range(range.as_ref())?;
        let (Some(range), true) = (range.clone(), is_table(name)) else {
            let Some(stored) = self.store.get(name, None).await? else { return Ok(None) };
            let plain = if is_table(name) {
                self.open_pieces(name, 0, &stored).await?.freeze()
            } else {
                self.open_whole(name, &stored).await?
            };
            return within(name, plain, 0, range).map(Some);
        };
        let (first, last) = (range.start / PIECE, (range.end - 1) / PIECE);
        let stored = first * STORED_PIECE..(last + 1) * STORED_PIECE;
        let Some(stored) = self.store.get_clamped(name, stored).await? else { return Ok(None) };
        let plain = self.open_pieces(name, first, &stored).await?.freeze();
        within(name, plain, first * PIECE, Some(range)).map(Some)
    }

    async fn create(&self, name: ObjectName, bytes: Bytes) -> PutAnswer {
        let sealed = async {
            let keyring = self.keys_for_writing(name).await?;
            let key = ObjectKey::new(keyring.newest(), name)?;
            let seal = if is_table(name) { cipher::seal_table } else { cipher::seal_whole };
            seal(&key, &*self.effects.random, &bytes)
        };
        match sealed.await {
            Ok(sealed) => self.store.put_if_absent(name, sealed).await,
            Err(error) => PutAnswer::Refused(error),
        }
    }

    fn plain(&self, mut listed: Vec<Listed>) -> Vec<Listed> {
        for object in &mut listed {
            object.bytes = cipher::plain_bytes(object.name, object.bytes);
        }
        listed
    }
}

fn cut(name: ObjectName) -> Error {
    Error::corruption("an encrypted object ends in the middle of a piece").with("object", name)
}

fn lacks_key(number: u32) -> Error {
    Error::corruption("the key of an encrypted object does not exist").with("key", number)
}

fn begins_otherwise() -> Error {
    Error::corruption("an encrypted object is cut short, or begins with other bytes")
}

/// The bytes of `range`, from plain bytes that begin at `start`.
fn within(name: ObjectName, plain: Bytes, start: u64, range: Option<Range<u64>>) -> Result<Bytes> {
    let Some(range) = range else { return Ok(plain) };
    let end = start + plain.len() as u64;
    if range.start < start || range.end > end {
        return Err(too_short(name, &range, end));
    }
    Ok(plain.slice((range.start - start) as usize..(range.end - start) as usize))
}

impl Store for EncryptedStore {
    passed_on!(
        store: names, deletes, sweep, ensure_conditions, at_rest, unanswered, observed, place
    );

    fn get(
        &self,
        name: ObjectName,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<Bytes>>> {
        self.shared.read(name, range).boxed()
    }

    fn put_if_absent(&self, name: ObjectName, bytes: Bytes) -> BoxFuture<'_, PutAnswer> {
        self.shared.create(name, bytes).boxed()
    }

    fn upload(&self, name: ObjectName) -> BoxFuture<'_, Result<Box<dyn Upload>>> {
        let shared = &self.shared;
        async move {
            let keyring = shared.keys_for_writing(name).await?;
            let key = ObjectKey::new(keyring.newest(), name)?;
            let below = shared.store.upload(name).await?;
            let random = Arc::clone(&shared.effects.random);
            let upload: Box<dyn Upload> = Box::new(EncryptedUpload::new(name, key, random, below));
            Ok(upload)
        }
        .boxed()
    }

    fn list(
        &self,
        prefix: &'static str,
        after: Option<ObjectName>,
    ) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let shared = &self.shared;
        async move { Ok(shared.plain(shared.store.list(prefix, after).await?)) }.boxed()
    }

    fn list_job(&self, job: JobId) -> BoxFuture<'_, Result<Vec<Listed>>> {
        let shared = &self.shared;
        async move { Ok(shared.plain(shared.store.list_job(job).await?)) }.boxed()
    }

    fn profile(&self) -> Profile {
        Profile { is_encrypted: true, ..self.store.profile() }
    }

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl Neighbours for EncryptedStore {
    fn follows(&self, location: &str) -> Result<()> {
        self.store.neighbours().follows(location)
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        let store = self.store.neighbours().neighbour(location)?;
        let (given, effects) = (Arc::clone(&self.shared.given), self.shared.effects.clone());
        Ok(EncryptedStore::new(store, given, effects))
    }
}
