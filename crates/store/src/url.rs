//! Makes stores from URLs.
//!
//! | URL | store |
//! | --- | --- |
//! | `s3://bucket/path` (also `s3a:`) | S3, and stores that speak its protocol |
//! | `gs://bucket/path` | Google Cloud Storage |
//! | `az://container/path` (also `azure:`, `abfs:`) | Azure Blob; the account is an option |
//! | `file:///path`, or a plain path | a local folder |
//! | `memory://name` | memory of this process |

use crate::Store;
use crate::encrypted;
use crate::env::Effects;
use crate::local::LocalStore;
use crate::lone_object::LoneObject;
use crate::memory::MemoryStore;
use crate::options::StoreOptions;
use crate::place::{Provider, StorePlace, absolute_folder, in_bucket, of_folder, place};
use crate::reach::{self, Reach};
use crate::remote::{RemoteObject, RemoteStore};
use crate::separate_log::{LogOption, SeparateLogStore, UrlLogs};
use crate::two_phase::{self, TwoPhaseStore};
use siltstone_base::{Error, Result};
use std::path::Path;
use std::sync::Arc;

/// The store of `url`.
///
/// `environment` has variables by name. Those of the URL's provider (`AWS_*`, `GOOGLE_*`,
/// `AZURE_*`) replace options that are not given. This function does not read the environment of
/// the process itself. It makes no request.
///
/// The option `clone_parents`, or the variable `SILTSTONE_CLONE_PARENTS`, lists further places at
/// which parents of clones are followed, besides those in the same bucket, on the same file system,
/// or in the same process: URLs or paths, separated by commas or white space. A place allows
/// everything below it. Parents in object stores are reached with the same options if their
/// provider is that of the URL, or if the URL's store takes no options; all others with the
/// environment.
///
/// The option `transactional_store`, or the variable `SILTSTONE_TRANSACTIONAL_STORE`, is the URL of
/// a transactional store that commits creates, for stores without conditional creates. DynamoDB
/// takes the keys and the region of `options` if the URL's store is S3, and otherwise those of the
/// environment.
///
/// The option `encryption_key`, or the variable `SILTSTONE_ENCRYPTION_KEY`, gives the keys of an
/// encrypted database.
///
/// The option `wal_url`, or the variable `SILTSTONE_WAL_URL`, is the URL of a separate store of the
/// log. It takes the same options if its provider is that of the URL, or if the URL's store takes
/// none. Options that begin with `wal_`, as in `wal_region`, are for that store alone.
///
/// # Errors
/// Invalid for an unknown scheme, a missing bucket, a bad path, and for unknown or rejected
/// options, by name.
pub fn parse(
    url: &str,
    options: &StoreOptions,
    environment: impl IntoIterator<Item = (String, String)>,
    effects: &Effects,
) -> Result<Arc<dyn Store>> {
    let environment: Vec<_> = environment.into_iter().collect();
    let (keys, others) = encrypted::read_option(options, &environment)?;
    let (records_url, others) = two_phase::read_option(&others, &environment);
    let (allowed, others) = Reach::read(&others, &environment)?;
    let others = others.selected(without_own_options);
    let (log, options) = LogOption::read(others, &environment);
    // Options that a folder does not take belong to its parents, or to its log.
    let is_elsewhere = allowed.as_ref().is_some_and(Reach::has_remote)
        || log.as_ref().is_some_and(|log| is_remote(&log.url));
    let own = match !is_remote(url) && is_elsewhere {
        true => StoreOptions::default(),
        false => options.clone(),
    };
    let store = store_at(url, &own, &environment, effects)?;
    let records = records_url.map(|records| {
        let keys = if is_s3(url) { options.clone() } else { StoreOptions::default() };
        two_phase::records_at(&records, &keys, &environment, effects)
    });
    let records = records.transpose()?;
    let log = log.map(|log| -> Result<UrlLogs> {
        let own = log.options(is_remote(&log.url) && shares_options(url, &log.url));
        let base = store_at(&log.url, &own, &environment, effects);
        // The URL itself may hold a secret, for which it is refused.
        let base = base.map_err(|error| error.with("store option", "wal_url"))?;
        let (records, keys) = (records.clone(), keys.clone());
        Ok(UrlLogs { base, records, keys, effects: effects.clone() })
    });
    let log = log.transpose()?;
    let store = match allowed {
        None => store,
        Some(allowed) => {
            let of = in_bucket(url).map(|(provider, ..)| provider);
            allowed.reaching(store, (of, options), environment, effects.clone())
        }
    };
    let store = match records {
        None => store,
        Some(records) => TwoPhaseStore::new(store, records, effects.clone()),
    };
    let store = match keys {
        None => store,
        Some(keys) => keys.over(store, effects.clone()),
    };
    let random = Arc::clone(&effects.random);
    Ok(match log {
        None => store,
        Some(log) => SeparateLogStore::new(store, Arc::new(log), random),
    })
}

/// The store of `url` alone, with its own options.
fn store_at(
    url: &str,
    options: &StoreOptions,
    environment: &[(String, String)],
    effects: &Effects,
) -> Result<Arc<dyn Store>> {
    Ok(match place(url, options)? {
        StorePlace::Local(path) => LocalStore::new(Path::new(path.as_ref()), effects.clone())?,
        StorePlace::Memory(name) => MemoryStore::named(name),
        StorePlace::Remote(provider, bucket, root) => {
            RemoteStore::new(provider, bucket, &root, options, environment, effects.clone())?
        }
    })
}

/// The options that clients know. A renewal gives all options again.
fn without_own_options(options: StoreOptions) -> StoreOptions {
    let names = [encrypted::OPTION, two_phase::OPTION, reach::OPTION];
    names.iter().fold(options, |options, name| options.without(name).1)
}

/// Whether the options of `url` are also those of the store of its log at `log`.
fn shares_options(url: &str, log: &str) -> bool {
    let [url, log] = [url, log].map(|url| in_bucket(url).map(|(provider, ..)| provider));
    url.is_none() || url == log
}

/// The URL by which another process finds the store of `url`: paths are absolute, and scheme
/// aliases are resolved.
///
/// # Errors
/// As [`parse`].
pub fn location(url: &str) -> Result<String> {
    match place(url, &StoreOptions::default())? {
        StorePlace::Local(path) => absolute_folder(&path).and_then(|path| {
            let no_text = || Error::invalid("the path is not valid UTF-8 and has no URL");
            of_folder(&path).ok_or_else(no_text)
        }),
        StorePlace::Memory(name) => Ok(format!("memory://{name}")),
        StorePlace::Remote(provider, bucket, root) => {
            Ok(format!("{}://{bucket}/{root}", provider.scheme()))
        }
    }
}

/// The object of `url`, outside of any database: the path of a file, or a URL as for [`parse`]
/// whose path is that of the object. Makes no request.
///
/// # Errors
/// As [`parse`]; Invalid for a URL with a bucket and without an object.
pub fn parse_object(
    url: &str,
    options: &StoreOptions,
    environment: impl IntoIterator<Item = (String, String)>,
    effects: &Effects,
) -> Result<LoneObject> {
    let (_, options) = options.without(two_phase::OPTION);
    let (_, options) = options.without(encrypted::OPTION);
    match place(url, &options)? {
        StorePlace::Local(path) => LoneObject::file(Path::new(path.as_ref()), effects),
        StorePlace::Memory(name) => Ok(LoneObject::in_memory(name)),
        StorePlace::Remote(provider, bucket, root) => {
            if root.is_empty() {
                let text = "the URL names no object; it looks like s3://bucket/path/name.sst";
                return Err(Error::invalid(text));
            }
            let environment: Vec<_> = environment.into_iter().collect();
            let effects = effects.clone();
            let object =
                RemoteObject::new(provider, bucket, &root, &options, &environment, effects)?;
            Ok(LoneObject::of(object))
        }
    }
}

fn is_s3(url: &str) -> bool {
    in_bucket(url).is_some_and(|(provider, ..)| provider == Provider::S3)
}

fn is_remote(url: &str) -> bool {
    in_bucket(url).is_some()
}
