//! Credentials and settings of a store: kept from every text.

use siltstone_base::{Error, Result, UnixMillis};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What stands in a text where a secret was.
const REDACTED: &str = "<redacted>";
/// Values shorter than this are no secrets: replacing them would garble every text.
const SHORTEST_SECRET: usize = 6;

/// The option that says when the others end, in seconds since 1970.
const EXPIRES_AT: &str = "expires_at";

/// A function that gives store options, and may be asked for newer ones.
pub trait OptionsSource: Send + Sync {
    /// The options now. May block.
    ///
    /// # Errors
    /// Whatever the function fails with.
    fn store_options(&self) -> Result<StoreOptions>;
}

/// Store options by name, as the `object_store` crate names them (`region`, `endpoint`,
/// `access_key_id`, …). Debug and Display show names only.
#[derive(Clone, Default)]
pub struct StoreOptions {
    values: BTreeMap<String, String>,
    source: Option<Arc<dyn OptionsSource>>,
}

/// Where options come from does not count.
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
    /// The same options; newer ones come from `source`.
    #[must_use]
    pub fn renewed_by(self, source: Arc<dyn OptionsSource>) -> StoreOptions {
        StoreOptions { source: Some(source), ..self }
    }

    /// Where newer ones come from.
    pub(super) fn source(&self) -> Option<Arc<dyn OptionsSource>> {
        self.source.clone()
    }

    /// When they end; `None` where they do not say.
    ///
    /// # Errors
    /// Invalid where that is no number of seconds.
    pub(super) fn expires_at(&self) -> Result<Option<UnixMillis>> {
        let Some(text) = self.values.get(EXPIRES_AT) else { return Ok(None) };
        let seconds = text.parse().ok().filter(|seconds: &f64| seconds.is_finite());
        let seconds = seconds.filter(|seconds| *seconds >= 0.0).ok_or_else(|| {
            let text = "store option `expires_at` is a moment in seconds since 1970";
            Error::invalid(text)
        })?;
        Ok(Some(UnixMillis((seconds * 1000.0) as u64)))
    }

    /// Every name with its value. Values are for the store's builder alone.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        let others = self.values.iter().filter(|(name, _)| *name != EXPIRES_AT);
        others.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The value of `name`, if it is given, and all other options.
    pub(super) fn without(&self, name: &str) -> (Option<String>, StoreOptions) {
        let mut others = self.clone();
        (others.values.remove(name), others)
    }

    /// The name of the first option that `other` has not, or has otherwise.
    #[must_use]
    pub fn first_unlike(&self, other: &StoreOptions) -> Option<&str> {
        self.iter()
            .find(|(name, value)| other.values.get(*name).is_none_or(|has| has != value))
            .map(|(name, _)| name)
    }

    /// Refuses every option: for stores that have none.
    pub(super) fn expect_none(&self, scheme: &str) -> Result<()> {
        match self.iter().next() {
            None => Ok(()),
            Some((name, _)) => {
                Err(Error::invalid(format!("store option `{name}` is not known for {scheme}")))
            }
        }
    }
}

/// Takes secrets out of texts that others wrote.
#[derive(Clone, Default)]
pub(super) struct Redactor {
    secrets: Vec<String>,
}

impl Redactor {
    /// Remembers the value of an option or variable whose name tells that it is a secret. Files
    /// that hold secrets are named in texts: the path helps, and is none.
    pub(super) fn learn(&mut self, name: &str, value: &str) {
        let name = name.to_ascii_lowercase();
        let telling = ["key", "secret", "token", "sas", "password", "credential", "authorization"];
        let is_place = ["_file", "_path", "_uri", "_url", "_endpoint", "_type", "key_id"];
        let is_secret = telling.iter().any(|word| name.contains(word))
            && !is_place.iter().any(|end| name.ends_with(end))
            && value.len() >= SHORTEST_SECRET;
        if is_secret {
            self.secrets.push(value.to_owned());
            // A longer secret may contain a shorter one, and must go first.
            self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        }
    }

    /// Remembers what the other one does.
    pub(super) fn extend(&mut self, other: Redactor) {
        self.secrets.extend(other.secrets);
        self.secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.secrets.dedup();
    }

    /// `text` without secrets, and without the queries of URLs: signatures stand there.
    pub(super) fn clean(&self, text: &str) -> String {
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
        assert!(!format!("{redactor:?}").contains("canary"));
    }
}
