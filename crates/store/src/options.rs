//! Credentials and settings of a store. They must not appear in any text.

use crate::option_names;
use siltstone_base::{Error, Result, UnixMillis};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Replaces secrets in texts.
const REDACTED: &str = "<redacted>";
/// Shorter values do not count as secrets, because replacing them would garble every text.
const SHORTEST_SECRET: usize = 6;

/// The option with the expiry of the other options, in seconds since 1970.
const EXPIRES_AT: &str = "expires_at";

/// A function that returns store options, and newer ones when called again.
pub trait OptionsSource: Send + Sync {
    /// The current options. May block.
    ///
    /// # Errors
    /// Errors of the function.
    fn store_options(&self) -> Result<StoreOptions>;
}

/// A part of the options of another source.
struct SelectedOptions<F> {
    source: Arc<dyn OptionsSource>,
    select: F,
}

impl<F: Fn(StoreOptions) -> StoreOptions + Send + Sync> OptionsSource for SelectedOptions<F> {
    fn store_options(&self) -> Result<StoreOptions> {
        Ok((self.select)(self.source.store_options()?))
    }
}

/// Store options by the names of the `object_store` crate (`region`, `endpoint`, `access_key_id`,
/// …). Debug and Display show names only.
#[derive(Clone, Default)]
pub struct StoreOptions {
    values: BTreeMap<String, String>,
    source: Option<Arc<dyn OptionsSource>>,
}

/// The source of the options is not compared.
impl PartialEq for StoreOptions {
    fn eq(&self, other: &StoreOptions) -> bool {
        self.values == other.values
    }
}

impl Eq for StoreOptions {}

impl From<BTreeMap<String, String>> for StoreOptions {
    fn from(values: BTreeMap<String, String>) -> Self {
        StoreOptions { values, source: None }
    }
}

impl FromIterator<(String, String)> for StoreOptions {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(values: I) -> Self {
        StoreOptions { values: values.into_iter().collect(), source: None }
    }
}

impl fmt::Display for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, name) in self.values.keys().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{name}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for StoreOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreOptions({self})")
    }
}

impl StoreOptions {
    /// The same options, renewed from `source`.
    #[must_use]
    pub fn renewed_by(self, source: Arc<dyn OptionsSource>) -> StoreOptions {
        StoreOptions { source: Some(source), ..self }
    }

    /// The source of newer options.
    pub(crate) fn source(&self) -> Option<Arc<dyn OptionsSource>> {
        self.source.clone()
    }

    /// When the options expire; `None` if they do not say.
    ///
    /// # Errors
    /// Invalid if the value is not a number of seconds.
    pub(crate) fn expires_at(&self) -> Result<Option<UnixMillis>> {
        let Some(text) = self.values.get(EXPIRES_AT) else { return Ok(None) };
        let seconds = text.parse().ok().filter(|seconds: &f64| seconds.is_finite());
        let seconds = seconds.filter(|seconds| *seconds >= 0.0).ok_or_else(|| {
            let text = "store option `expires_at` is a moment in seconds since 1970";
            Error::invalid(text)
        })?;
        Ok(Some(UnixMillis((seconds * 1000.0) as u64)))
    }

    /// All names with their values. Only the store's builder may see the values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let others = self.values.iter().filter(|(name, _)| *name != EXPIRES_AT);
        others.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of `name`, if it is given, and all other options, also after each renewal.
    pub(crate) fn without(&self, name: &'static str) -> (Option<String>, StoreOptions) {
        let others = self.clone().selected(move |mut all| {
            all.values.remove(name);
            all
        });
        (self.values.get(name).cloned(), others)
    }

    /// The value of `name`, or else of the environment variable `variable`, if one is given, and
    /// all other options. An empty text counts as none.
    pub(crate) fn take(
        &self,
        name: &'static str,
        variable: &str,
        environment: &[(String, String)],
    ) -> (Option<String>, StoreOptions) {
        let (given, others) = self.without(name);
        let value = environment.iter().find(|(each, _)| each == variable);
        let text = given.or_else(|| value.map(|(_, value)| value.clone()));
        (text.filter(|text| !text.is_empty()), others)
    }

    /// The options whose names begin with `prefix`, without it, and all other options.
    pub(crate) fn prefixed(&self, prefix: &str) -> (StoreOptions, StoreOptions) {
        let (mut own, mut others) = (StoreOptions::default(), self.clone());
        others.values.retain(|name, value| {
            let short = name.strip_prefix(prefix);
            own.values.extend(short.map(|short| (short.to_owned(), value.clone())));
            short.is_none()
        });
        (own, others)
    }

    /// The same, except for the options that `own` has.
    pub(crate) fn overridden_by(mut self, own: &StoreOptions) -> StoreOptions {
        self.values.extend(own.values.clone());
        self
    }

    /// The options after `select`, which is also applied to those of every renewal.
    pub(crate) fn selected(
        self,
        select: impl Fn(StoreOptions) -> StoreOptions + Send + Sync + 'static,
    ) -> StoreOptions {
        let StoreOptions { values, source } = self;
        let values = select(StoreOptions::from(values)).values;
        let select = move |source| Arc::new(SelectedOptions { source, select }) as _;
        StoreOptions { values, source: source.map(select) }
    }

    /// The name of the first option that `other` lacks or has with another value.
    #[must_use]
    pub fn first_unlike(&self, other: &StoreOptions) -> Option<&str> {
        self.iter()
            .find(|(name, value)| other.values.get(*name).is_none_or(|has| has != value))
            .map(|(name, _)| name)
    }

    /// Refuses all options, for stores that take none.
    pub(crate) fn expect_none(&self, scheme: &str) -> Result<()> {
        match self.iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(option_names::unknown(name, scheme)),
        }
    }
}

/// Removes secrets from texts of other libraries.
#[derive(Clone, Default)]
pub(crate) struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// Remembers the value of an option or variable if its name shows that it is a secret. Paths of
    /// files with secrets are kept, because they help and are not secret.
    pub(crate) fn learn(&mut self, name: &str, value: &str) {
        let name = name.to_ascii_lowercase();
        let telling = ["key", "secret", "token", "sas", "password", "credential", "authorization"];
        let is_place = ["_file", "_path", "_uri", "_url", "_endpoint", "_type", "kms_key_id"];
        let is_secret = telling.iter().any(|word| name.contains(word))
            && !is_place.iter().any(|end| name.ends_with(end))
            && value.len() >= SHORTEST_SECRET;
        if is_secret {
            self.secrets.push(value.to_owned());
            // A longer secret may contain a shorter one, so it is replaced first.
            self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// Remembers the secrets of `other` too.
    pub(crate) fn extend(&mut self, other: Redactor) {
        self.secrets.extend(other.secrets);
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.secrets.dedup();
    }

    /// `text` without secrets, and without the users and queries of URLs: the former may have
    /// passwords, the latter signatures.
    pub(crate) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret.as_str(), REDACTED);
        }
        let mut clean = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(at) = rest.find("://") {
            let (before, url) = rest.split_at(at + 3);
            clean.push_str(before);
            let end = url.find(|c: char| c.is_whitespace() || "\"'<>)".contains(c));
            let (url, after) = url.split_at(end.unwrap_or(url.len()));
            let host = url.find('/').unwrap_or(url.len());
            let url = match url.get(..host).and_then(|host| host.rfind('@')) {
                Some(at) => {
                    clean.push_str(REDACTED);
                    url.get(at..).unwrap_or_default()
                }
                None => url,
            };
            match url.split_once('?') {
                Some((place, _)) => {
                    clean.push_str(place);
                    clean.push('?');
                    clean.push_str(REDACTED);
                }
                None => clean.push_str(url),
            }
            rest = after;
        }
        clean.push_str(rest);
        clean
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_show_names_only() {
        let options: StoreOptions = [("region", "mars-1"), ("secret_access_key", "canary-7")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into_iter()
            .collect();
        assert_eq!(format!("{options}"), "region, secret_access_key");
        assert_eq!(format!("{options:?}"), "StoreOptions(region, secret_access_key)");
    }

    /// The client of a store refuses options that it does not know. A renewal that brought one back
    /// would fail, and the store with it once the first credentials expire.
    #[test]
    fn an_option_that_was_taken_out_stays_out_of_renewals() {
        struct Given;
        impl OptionsSource for Given {
            fn store_options(&self) -> Result<StoreOptions> {
                let given = [("encryption_key", "env:KEY"), ("region", "mars-1")];
                Ok(given
                    .map(|(name, value)| (name.to_owned(), value.to_owned()))
                    .into_iter()
                    .collect())
            }
        }
        let options = Given.store_options().unwrap().renewed_by(Arc::new(Given));
        let (given, others) = options.without("encryption_key");
        assert_eq!(given.as_deref(), Some("env:KEY"));
        assert_eq!(format!("{others}"), "region");
        assert_eq!(others.source().unwrap().store_options().unwrap(), others);
    }

    #[test]
    fn secrets_and_queries_leave_texts() {
        let mut redactor = Redactor::default();
        redactor.learn("AWS_SECRET_ACCESS_KEY", "canary");
        redactor.learn("azure_storage_sas_token", "canary-long");
        redactor.learn("region", "eu-north-1");
        redactor.learn("token", "abc");
        redactor.learn("aws_web_identity_token_file", "/run/secrets/token");
        let text = "GET http://h/b?sig=xyz&x=1 said \"canary-long, canary\" (eu-north-1, abc) in \
                    https://other/path, /run/secrets/token";
        let expected = "GET http://h/b?<redacted> said \"<redacted>, <redacted>\" (eu-north-1, \
                        abc) in https://other/path, /run/secrets/token";
        assert_eq!(redactor.clean(text), expected);
        // Credentials that were swapped, and those of a URL.
        redactor.learn("access_key_id", "canary-secret");
        redactor.learn("sse_kms_key_id", "key-7");
        let text = "no key canary-secret at http://me:hidden@h:1/b@c, key-7";
        assert_eq!(redactor.clean(text), "no key <redacted> at http://<redacted>@h:1/b@c, key-7");
        assert!(!format!("{redactor:?}").contains("canary"));
    }
}
