//! Places of clones' parents that are followed besides those of a store's own kind and bucket (rule
//! K3, RFC 0029). The opener of a clone allows them with a store option or an environment variable.
//! A manifest may come from anywhere and must not decide this.

use crate::env::Effects;
use crate::local::LocalStore;
use crate::memory::MemoryStore;
use crate::options::StoreOptions;
use crate::place::{self, Provider, StorePlace};
use crate::remote::RemoteStore;
use crate::{CopyAnswer, Neighbours, Store, passed_on};
use parking_lot::Mutex;
use siltstone_base::{Error, ObjectName, Result};
use std::fmt;
use std::path::{Component, PathBuf};
use std::sync::Arc;

/// The option that allows places.
pub(crate) const OPTION: &str = "clone_parents";
/// The variable that replaces the option.
const VARIABLE: &str = "SILTSTONE_CLONE_PARENTS";

/// Allowed places, including everything below them.
pub(crate) struct Reach(Vec<AllowedPlace>);

/// One allowed place.
enum AllowedPlace {
    Folder(PathBuf),
    Memory(String),
    Remote(Provider, String, String),
}

impl AllowedPlace {
    fn parse(text: &str) -> Result<AllowedPlace> {
        Ok(match place::place(text, &StoreOptions::default())? {
            StorePlace::Local(path) => AllowedPlace::Folder(place::absolute_folder(&path)?),
            StorePlace::Memory(name) => AllowedPlace::Memory(name.to_owned()),
            StorePlace::Remote(provider, bucket, root) => {
                AllowedPlace::Remote(provider, bucket.to_owned(), root)
            }
        })
    }

    fn holds(&self, place: &StorePlace<'_>) -> bool {
        match (self, place) {
            (AllowedPlace::Folder(folder), StorePlace::Local(path)) => {
                let path = PathBuf::from(path.as_ref());
                // A path with `..` may lead anywhere.
                path.starts_with(folder) && path.components().all(|one| one != Component::ParentDir)
            }
            (AllowedPlace::Memory(above), StorePlace::Memory(name)) => is_below(name, above),
            (
                AllowedPlace::Remote(provider, bucket, above),
                StorePlace::Remote(of, other, root),
            ) => provider == of && bucket == other && is_below(root, above),
            _ => false,
        }
    }
}

/// Whether `path` equals `above` or lies below it, by path components.
fn is_below(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    above.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl Reach {
    /// Returns the places of the option, or else of the variable, and all other options. `None` if
    /// no place is allowed.
    ///
    /// # Errors
    /// Invalid for a text that is not a place.
    pub(crate) fn read(
        options: &StoreOptions,
        environment: &[(String, String)],
    ) -> Result<(Option<Reach>, StoreOptions)> {
        let (text, others) = options.take(OPTION, VARIABLE, environment);
        let text = text.unwrap_or_default();
        let places = text.split(|end: char| end == ',' || end.is_whitespace());
        let places = places.filter(|place| !place.is_empty()).map(|place| {
            AllowedPlace::parse(place)
                .map_err(|error| error.with("store option", OPTION).with("variable", VARIABLE))
        });
        let places: Vec<AllowedPlace> = places.collect::<Result<_>>()?;
        Ok(((!places.is_empty()).then_some(Reach(places)), others))
    }

    /// Whether there is a remote place.
    pub(crate) fn has_remote(&self) -> bool {
        self.0.iter().any(|place| matches!(place, AllowedPlace::Remote(..)))
    }

    fn allows(&self, location: &str) -> bool {
        let place = place::place(location, &StoreOptions::default());
        place.is_ok_and(|place| self.0.iter().any(|allowed| allowed.holds(&place)))
    }

    /// `store` extended by these places. `options` are those of the stores of one provider, or of
    /// any provider.
    pub(crate) fn reaching(
        self,
        store: Arc<dyn Store>,
        options: (Option<Provider>, StoreOptions),
        environment: Vec<(String, String)>,
        effects: Effects,
    ) -> Arc<dyn Store> {
        let clients = Mutex::default();
        let stores = ParentStores { reach: self, options, environment, effects, clients };
        Arc::new(ReachingStore { home: Arc::clone(&store), store, stores: Arc::new(stores) })
    }
}

/// Stores of the allowed places.
struct ParentStores {
    reach: Reach,
    options: (Option<Provider>, StoreOptions),
    environment: Vec<(String, String)>,
    effects: Effects,
    /// One store per bucket; its clients serve all databases there.
    clients: Mutex<Vec<Arc<dyn Store>>>,
}

impl ParentStores {
    fn allows(&self, location: &str) -> bool {
        self.reach.allows(location)
    }

    /// The store at `location`, which is allowed.
    fn store(&self, location: &str) -> Result<Arc<dyn Store>> {
        match place::place(location, &StoreOptions::default())? {
            StorePlace::Local(path) => {
                Ok(LocalStore::new(&PathBuf::from(&*path), self.effects.clone())?)
            }
            StorePlace::Memory(name) => Ok(MemoryStore::named(name)),
            StorePlace::Remote(provider, bucket, root) => {
                let mut clients = self.clients.lock();
                if let Some(store) =
                    clients.iter().find_map(|one| one.neighbours().neighbour(location).ok())
                {
                    return Ok(store);
                }
                let options = match self.options.0 {
                    Some(other) if other != provider => &StoreOptions::default(),
                    _ => &self.options.1,
                };
                let (environment, effects) = (&self.environment, self.effects.clone());
                let store =
                    RemoteStore::new(provider, bucket, &root, options, environment, effects);
                let store: Arc<dyn Store> =
                    store.map_err(|error: Error| error.with("ancestor", location))?;
                clients.push(Arc::clone(&store));
                Ok(store)
            }
        }
    }
}

/// A store from which further places are followed.
struct ReachingStore {
    /// The store of the opener. Its places are followed from every other store.
    home: Arc<dyn Store>,
    store: Arc<dyn Store>,
    stores: Arc<ParentStores>,
}

impl fmt::Debug for ReachingStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

impl Store for ReachingStore {
    passed_on!(store: objects, reads, facts);

    fn neighbours(&self) -> &dyn Neighbours {
        self
    }
}

impl Neighbours for ReachingStore {
    fn follows(&self, location: &str) -> Result<()> {
        let own = self.store.neighbours().follows(location);
        let allowed =
            || self.home.neighbours().follows(location).is_ok() || self.stores.allows(location);
        if own.is_err() && allowed() { Ok(()) } else { own }
    }

    fn neighbour(&self, location: &str) -> Result<Arc<dyn Store>> {
        self.follows(location)?;
        let near = [&self.store, &self.home]
            .into_iter()
            .find(|one| one.neighbours().follows(location).is_ok());
        let store = match near {
            Some(near) => near.neighbours().neighbour(location)?,
            None => self.stores.store(location)?,
        };
        let (home, stores) = (Arc::clone(&self.home), Arc::clone(&self.stores));
        Ok(Arc::new(ReachingStore { home, store, stores }))
    }

    fn copy_from(&self, location: &str, from: ObjectName, to: ObjectName) -> CopyAnswer<'_> {
        self.store.neighbours().copy_from(location, from, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::tokio_effects;
    use siltstone_base::ErrorKind;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn parse(
        url: &str,
        options: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> Result<Arc<dyn Store>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let options = pairs(options).into_iter().collect();
        crate::url::parse(
            url,
            &options,
            pairs(environment),
            &tokio_effects(runtime.handle().clone()),
        )
    }

    const KEYS: [(&str, &str); 3] =
        [("access_key_id", "k"), ("secret_access_key", "canary"), ("region", "r")];

    #[test]
    fn a_place_allows_itself_and_what_lies_below() {
        let allowed = "s3://prod/live, memory://shelf gs://all\n/data/parents";
        let (reach, _) = Reach::read(&pairs(&[(OPTION, allowed)]).into_iter().collect(), &[])
            .map(|(reach, others)| (reach.unwrap(), others))
            .unwrap();
        for inside in [
            "s3://prod/live",
            "s3a://prod/live/a/b",
            "gs://all",
            "gs://all/x",
            "memory://shelf",
            "memory://shelf/one",
            "file:///data/parents/a%20b",
        ] {
            assert!(reach.allows(inside), "{inside}");
        }
        for outside in [
            "s3://prod",
            "s3://prod/lively",
            "s3://prod/live/../secret",
            "s3://production/live",
            "gs://prod/live",
            "memory://shelfs",
            "file:///data/parents/../secret",
            "file:///data/parentsecret",
            "file:///data",
            "nonsense://x",
        ] {
            assert!(!reach.allows(outside), "{outside}");
        }
    }

    #[test]
    fn a_place_that_is_not_allowed_is_told_with_the_option() {
        for (url, parent) in [
            ("s3://dev/try", "s3://prod/live"),
            ("s3://dev/try", "file:///data/live"),
            ("memory://try", "s3://prod/live"),
        ] {
            let options = if url.starts_with("s3") { KEYS.as_slice() } else { &[] };
            let plain = parse(url, options, &[]).unwrap();
            let elsewhere = [options, &[(OPTION, "s3://other, memory://x")]].concat();
            for store in [plain, parse(url, &elsewhere, &[]).unwrap()] {
                for refused in [
                    store.neighbours().follows(parent),
                    store.neighbours().neighbour(parent).map(drop),
                ] {
                    let refused = refused.unwrap_err();
                    assert_eq!(refused.kind(), ErrorKind::Unsupported);
                    let text = refused.to_string();
                    assert!(text.contains("`clone_parents`") && text.contains(parent), "{text}");
                }
            }
        }
    }

    #[test]
    fn allowed_places_are_reached_and_reach_the_same() {
        let given = [KEYS.as_slice(), &[(OPTION, "s3://prod memory://x")]].concat();
        let by_option = parse("s3://dev/try", &given, &[]).unwrap();
        let variable = [(VARIABLE, "s3://prod memory://x")];
        let by_variable = parse("s3://dev/try", &KEYS, &variable).unwrap();
        // A folder takes no options, so they apply to the parents.
        let of_a_folder = parse("/data/try", &given, &[]).unwrap();
        for store in [by_option, by_variable, of_a_folder] {
            let parent = store.neighbours().neighbour("s3://prod/live").unwrap();
            assert_eq!(parent.place().location().as_deref(), Some("s3://prod/live"));
            let other = parent.neighbours().neighbour("memory://x/y").unwrap();
            assert_eq!(other.place().location().as_deref(), Some("memory://x/y"));
            assert!(other.neighbours().follows("s3://prod/else").is_ok());
            // Places that are followed from the first store are followed from every other store.
            let home = store.place().location().unwrap();
            assert_eq!(other.neighbours().neighbour(&home).unwrap().place().location(), Some(home));
            assert!(store.neighbours().follows("s3://elsewhere/live").is_err());
        }
    }

    #[test]
    fn wrong_options_are_named() {
        let bad = parse("memory://a", &[(OPTION, "s4://x")], &[]).map(drop).unwrap_err();
        assert_eq!(bad.kind(), ErrorKind::Invalid);
        assert!(bad.to_string().contains(OPTION), "{bad}");
        // No store takes these options.
        let unused = [("region", "r"), (OPTION, "memory://x")];
        let idle = parse("memory://a", &unused, &[]).map(drop).unwrap_err();
        assert!(idle.to_string().contains("`region`"), "{idle}");
        let unknown = [("regoin", "r"), (OPTION, "s3://prod")];
        let store = parse("memory://a", &unknown, &[]).unwrap();
        let unknown = store.neighbours().neighbour("s3://prod/live").map(drop).unwrap_err();
        assert!(unknown.to_string().contains("`regoin`"), "{unknown}");
        // Options of one provider do not apply to another.
        let other = [KEYS.as_slice(), &[(OPTION, "gs://prod")]].concat();
        let skip = [("GOOGLE_SKIP_SIGNATURE", "true")];
        parse("s3://dev/try", &other, &skip)
            .unwrap()
            .neighbours()
            .neighbour("gs://prod/live")
            .unwrap();
    }

    #[test]
    fn a_place_has_one_url() {
        for (url, canonical) in [
            ("s3a://b/a/", "s3://b/a"),
            ("azure://c/p", "az://c/p"),
            ("memory://x", "memory://x"),
            ("/a b/c", "file:///a%20b/c"),
            ("file:///a%20b/c", "file:///a%20b/c"),
        ] {
            assert_eq!(crate::url::location(url).unwrap(), canonical);
        }
        assert!(crate::url::location("here").unwrap().starts_with("file:///"));
        assert!(crate::url::location("s4://x").is_err());
    }
}
