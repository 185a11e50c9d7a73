//! Builds clients from options and environment.

use super::aws_profile;
use super::limits::LimitedConnector;
use crate::option_names;
use crate::options::{Redactor, StoreOptions};
use crate::place::Provider;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, AwsCredentialProvider};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GcpCredential, GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::multipart::MultipartStore;
use object_store::{
    BackoffConfig, Certificate, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig,
    StaticCredentialProvider,
};
use siltstone_base::{Error, ErrorKind, Result};
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

impl Provider {
    /// Prefix of the provider's variables, which are its options in capitals.
    fn variables(self) -> &'static str {
        match self {
            Provider::S3 => "AWS_",
            Provider::Gcs => "GOOGLE_",
            Provider::Azure => "AZURE_",
        }
    }
}

/// The clients of one store, and the secrets that must not appear in their texts.
pub(super) struct Clients {
    pub(super) repeating: Arc<dyn ObjectStore>,
    pub(super) once: Arc<dyn ObjectStore>,
    /// The requests of an upload in parts, by the client that repeats.
    pub(super) parts: Arc<dyn MultipartStore>,
    pub(super) redactor: Redactor,
    /// The access to AWS; only clients of S3 have one.
    pub(super) aws: Option<AwsAccess>,
}

/// The credentials and the client for requests to other services of AWS.
#[derive(Clone)]
pub(super) struct AwsAccess {
    pub(super) credentials: AwsCredentialProvider,
    pub(super) region: Option<String>,
    /// The options of the HTTP client: certificates, proxies, limits.
    pub(super) client: ClientOptions,
}

impl fmt::Debug for Clients {
    /// Shows nothing, because clients would show their credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clients").finish_non_exhaustive()
    }
}

/// The client repeats idempotent requests itself: a retry cures a reset connection in a tenth of a
/// second, without a round of back-off of the caller.
fn repeating() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig { max_backoff: Duration::from_secs(1), ..BackoffConfig::default() },
        max_retries: 3,
        retry_timeout: Duration::from_secs(10),
    }
}

fn never() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Options by the provider's own key type.
struct Settings<K> {
    from_environment: Vec<(K, String)>,
    given: Vec<(K, String)>,
    redactor: Redactor,
    /// Certificates that the client trusts in addition to the roots of the system.
    roots: Vec<Certificate>,
}

impl<K: FromStr + PartialEq> Settings<K> {
    /// # Errors
    /// Invalid for an unknown option, by name; Unsupported for an option of a part that is not
    /// built.
    fn read(
        provider: Provider,
        options: &StoreOptions,
        environment: &[(String, String)],
    ) -> Result<Settings<K>> {
        let mut redactor = Redactor::default();
        let mut given = Vec::new();
        let in_environment = environment.iter().find(|(name, _)| name == CA_BUNDLE_VARIABLE);
        let mut bundle = in_environment
            .filter(|(_, path)| provider == Provider::S3 && !path.is_empty())
            .map(|(name, path)| (name.as_str(), path.as_str()));
        for (name, value) in options.iter() {
            check_text("store option", name, value)?;
            redactor.learn(name, value);
            let lower = name.to_ascii_lowercase();
            if lower == CA_BUNDLE {
                bundle = Some((name, value));
                continue;
            }
            if provider == Provider::S3 && lower == aws_profile::PROFILE {
                continue;
            }
            let key = K::from_str(&lower)
                .map_err(|_| option_names::unknown(name, &format!("{}:", provider.scheme())))?;
            given.push((key, value.to_owned()));
        }
        let mut from_environment = Vec::new();
        for (name, value) in environment {
            // Variables of other programs may have the same prefix, so unknown ones are skipped.
            if name.starts_with(provider.variables())
                && let Ok(key) = K::from_str(&name.to_ascii_lowercase())
            {
                check_text("environment variable", name, value)?;
                redactor.learn(name, value);
                from_environment.push((key, value.clone()));
            }
        }
        let roots = bundle.map(|(name, path)| certificates(name, path)).transpose()?;
        let roots = roots.unwrap_or_default();
        Ok(Settings { from_environment, given, redactor, roots })
    }

    /// The client options before the store options are set.
    fn client_options(&self) -> ClientOptions {
        let roots = self.roots.iter().cloned();
        roots.fold(ClientOptions::new(), ClientOptions::with_root_certificate)
    }

    /// Related options come from one source: if one of `group` is given, none of them is taken from
    /// the environment. A key from one source with a session token from another would fail.
    fn keep_together(&mut self, group: &[K]) {
        if self.given.iter().any(|(key, _)| group.contains(key)) {
            self.from_environment.retain(|(key, _)| !group.contains(key));
        }
    }

    fn refuse(&self, key: &K, text: &str) -> Result<()> {
        match self.given.iter().any(|(given, _)| given == key) {
            true => Err(Error::invalid(text)),
            false => Ok(()),
        }
    }

    /// Whether the endpoint, which `option` names, is an `http://` one that is allowed without an
    /// option: on this machine, where no third party can listen.
    ///
    /// # Errors
    /// Invalid for any other `http://` endpoint, unless `allow_http` is set: a request would fail
    /// with a text that names neither.
    fn may_be_plain(&self, option: &str, endpoints: &[K], allow_http: &K) -> Result<bool> {
        let all = || self.from_environment.iter().chain(&self.given);
        for (_, endpoint) in all().filter(|(key, _)| endpoints.contains(key)) {
            self.check_endpoint(option, endpoint)?;
        }
        let mut plain = all()
            .filter(|(key, value)| endpoints.contains(key) && is_plain(value))
            .map(|(_, value)| value.as_str())
            .peekable();
        // The last given value wins. The client judges any value except the known negative ones.
        let allowed = all().filter(|(key, _)| key == allow_http).last();
        match allowed {
            Some((_, value)) if !is_negative(value) => return Ok(false),
            None if plain.peek().is_some() && plain.clone().all(is_loopback) => return Ok(true),
            _ => {}
        }
        let Some(endpoint) = plain.next() else { return Ok(false) };
        let text = "the endpoint is http://, so neither data nor requests would be encrypted: set \
                    the store option `allow_http=true`, or give an https:// endpoint";
        // Show the endpoint without a user name and a password.
        let shown = endpoint.rsplit_once('@').map_or(endpoint, |(_, place)| place);
        Err(Error::invalid(text).with("endpoint", self.redactor.clean(shown)))
    }

    /// # Errors
    /// Invalid for an endpoint that is not the URL of a server: the client would panic, or fail at
    /// the first request with a text that does not name it.
    fn check_endpoint(&self, option: &str, endpoint: &str) -> Result<()> {
        if is_of_server(endpoint) {
            return Ok(());
        }
        let text = format!(
            "the store option `{option}` is a URL with its scheme, such as \
             https://store.example.com or http://127.0.0.1:9000"
        );
        let shown = endpoint.rsplit_once('@').map_or(endpoint, |(_, place)| place);
        Err(Error::invalid(text).with("endpoint", self.redactor.clean(shown)))
    }

    fn into_parts(self) -> (impl Iterator<Item = (K, String)>, Redactor) {
        (self.from_environment.into_iter().chain(self.given), self.redactor)
    }
}

/// # Errors
/// Invalid for a value with a control character, such as the line end of a file that was read. It
/// would become part of a header, where the client panics.
fn check_text(what: &str, name: &str, value: &str) -> Result<()> {
    match value.chars().any(char::is_control) {
        true => Err(Error::invalid(format!(
            "the value of the {what} `{name}` has a control character, such as a line end: \
             remove it"
        ))),
        false => Ok(()),
    }
}

fn is_plain(url: &str) -> bool {
    url.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://"))
}

/// Whether a text is the URL of a server. The parser accepts `http:host`, and drops or encodes
/// characters that the client refuses.
fn is_of_server(endpoint: &str) -> bool {
    let is_web = |url: Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    endpoint.contains("://")
        && endpoint.chars().all(|each| each.is_ascii_graphic())
        && Url::parse(endpoint).is_ok_and(is_web)
}

/// Whether the endpoint of a service of AWS is an `http://` one. It must be on this machine.
///
/// # Errors
/// Invalid for any other `http://` endpoint, and for one that is not the URL of a server.
pub(super) fn check_plain(endpoint: &str) -> Result<bool> {
    let shown = endpoint.rsplit_once('@').map_or(endpoint, |(_, place)| place);
    if !is_of_server(endpoint) || is_plain(endpoint) && !is_loopback(endpoint) {
        let text = "the endpoint of the transactional store is an https:// URL, or an http:// URL \
                    of this machine";
        return Err(Error::invalid(text).with("endpoint", shown));
    }
    Ok(is_plain(endpoint))
}

/// Whether the client reads the value of a switch as off. It judges all other values.
fn is_negative(value: &str) -> bool {
    ["false", "0", "off", "no", "n"].contains(&value.to_ascii_lowercase().as_str())
}

/// The option with a file of PEM certificates, and the variable that replaces it.
const CA_BUNDLE: &str = "ca_bundle";
const CA_BUNDLE_VARIABLE: &str = "AWS_CA_BUNDLE";

/// The certificates in a file.
///
/// # Errors
/// Invalid if the file cannot be read or has no certificate.
fn certificates(name: &str, path: &str) -> Result<Vec<Certificate>> {
    let invalid = |text: String| {
        Error::invalid(format!("{name} is not a file of PEM certificates: {text}"))
            .with("path", path)
    };
    let text = std::fs::read(path).map_err(|error| invalid(error.to_string()))?;
    let found = Certificate::from_pem_bundle(&text).map_err(|error| invalid(error.to_string()))?;
    if found.is_empty() { Err(invalid("it has no certificate".to_owned())) } else { Ok(found) }
}

/// Whether the host of a URL is this machine: `localhost`, 127.0.0.0/8 or `[::1]`.
fn is_loopback(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if let Some((address, _)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
    }
    let name = host.split_once(':').map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

/// Builds both clients. Makes no request.
///
/// # Errors
/// Invalid for unknown or rejected options; Unsupported as for [`Settings::read`].
pub(super) fn clients(
    provider: Provider,
    bucket: &str,
    options: &StoreOptions,
    environment: &[(String, String)],
    limits: LimitedConnector,
) -> Result<Clients> {
    match provider {
        Provider::S3 => s3(bucket, Settings::read(provider, options, environment)?, limits),
        Provider::Gcs => gcs(bucket, Settings::read(provider, options, environment)?, limits),
        Provider::Azure => azure(bucket, Settings::read(provider, options, environment)?, limits),
    }
}

const BUCKET_IN_URL: &str = "the bucket belongs in the URL, not in a store option";

fn s3(
    bucket: &str,
    mut settings: Settings<AmazonS3ConfigKey>,
    limits: LimitedConnector,
) -> Result<Clients> {
    use AmazonS3ConfigKey as Key;
    settings.refuse(&Key::Bucket, BUCKET_IN_URL)?;
    let conditional = settings.given.iter().find(|(key, _)| *key == Key::ConditionalPut);
    if conditional.is_some_and(|(_, value)| value != "etag") {
        let text = "store option `conditional_put` must be `etag`: processes agree through \
                    conditional writes";
        return Err(Error::invalid(text));
    }
    settings.keep_together(&[Key::AccessKeyId, Key::SecretAccessKey, Key::Token]);
    settings.keep_together(&[Key::Endpoint, Key::S3Endpoint]);
    settings.keep_together(&[Key::Region, Key::DefaultRegion]);
    settings.from_environment.retain(|(key, _)| !matches!(key, Key::Bucket | Key::ConditionalPut));
    let may_be_plain = settings.may_be_plain(
        "endpoint",
        &[Key::Endpoint, Key::S3Endpoint],
        &Key::Client(ClientConfigKey::AllowHttp),
    )?;
    let client = settings.client_options();
    let (configuration, redactor) = settings.into_parts();
    let mut builder = AmazonS3Builder::new()
        .with_client_options(client.clone())
        .with_bucket_name(bucket)
        .with_http_connector(limits);
    let mut base = client;
    for (key, value) in configuration {
        if let Key::Client(key) = key {
            base = base.with_config(key, value.clone());
        }
        builder = builder.with_config(key, value);
    }
    if may_be_plain {
        builder = builder.with_allow_http(true);
    }
    let region = builder.get_config_value(&Key::Region);
    let build = |retry, by_name| {
        builder.clone().with_retry(retry).with_disable_bulk_delete(by_name).build()
    };
    let once = build(never(), false);
    let credentials = once.as_ref().ok().map(|store| Arc::clone(store.credentials()));
    let aws = credentials.map(|credentials| AwsAccess { credentials, region, client: base });
    // Single names are deleted with a request of their own, which every server knows. The caller
    // repeats deletes of many names, because it sees the result of each name.
    Ok(Clients { aws, ..finish(redactor, build(repeating(), true), once)? })
}

fn gcs(
    bucket: &str,
    mut settings: Settings<GoogleConfigKey>,
    limits: LimitedConnector,
) -> Result<Clients> {
    use GoogleConfigKey as Key;
    settings.refuse(&Key::Bucket, BUCKET_IN_URL)?;
    settings.keep_together(&[
        Key::ServiceAccount,
        Key::ServiceAccountKey,
        Key::ApplicationCredentials,
        Key::BearerToken,
    ]);
    settings.keep_together(&[Key::BaseUrl]);
    settings.from_environment.retain(|(key, _)| *key != Key::Bucket);
    let allow_http = Key::Client(ClientConfigKey::AllowHttp);
    let may_be_plain = settings.may_be_plain("base_url", &[Key::BaseUrl], &allow_http)?;
    let mut client = settings.client_options();
    if may_be_plain {
        client = client.with_allow_http(true);
    }
    let (configuration, redactor) = settings.into_parts();
    let mut builder = GoogleCloudStorageBuilder::new()
        .with_client_options(client)
        .with_bucket_name(bucket)
        .with_http_connector(limits);
    for (key, value) in configuration {
        builder = builder.with_config(key, value);
    }
    let unsigned = builder.get_config_value(&Key::SkipSignature);
    if unsigned.is_some_and(|value| !is_negative(&value)) {
        // Without signatures the client asks for a token before each write nevertheless, from the
        // metadata server of the machine. This one is empty, and is not sent.
        let token = GcpCredential { bearer: String::new() };
        builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(token)));
    }
    let build = |retry| builder.clone().with_retry(retry).build();
    finish(redactor, build(repeating()), build(never()))
}

fn azure(
    container: &str,
    mut settings: Settings<AzureConfigKey>,
    limits: LimitedConnector,
) -> Result<Clients> {
    use AzureConfigKey as Key;
    settings.refuse(&Key::ContainerName, BUCKET_IN_URL)?;
    settings.keep_together(&[
        Key::AccessKey,
        Key::ClientId,
        Key::ClientSecret,
        Key::AuthorityId,
        Key::SasKey,
        Key::Token,
        Key::FederatedTokenFile,
    ]);
    settings.keep_together(&[Key::Endpoint]);
    settings.from_environment.retain(|(key, _)| *key != Key::ContainerName);
    let allow_http = Key::Client(ClientConfigKey::AllowHttp);
    let may_be_plain = settings.may_be_plain("endpoint", &[Key::Endpoint], &allow_http)?;
    let client = settings.client_options();
    let (configuration, redactor) = settings.into_parts();
    let mut builder = MicrosoftAzureBuilder::new()
        .with_client_options(client)
        .with_container_name(container)
        .with_http_connector(limits);
    for (key, value) in configuration {
        builder = builder.with_config(key, value);
    }
    if may_be_plain {
        builder = builder.with_allow_http(true);
    }
    let build = |retry| builder.clone().with_retry(retry).build();
    finish(redactor, build(repeating()), build(never()))
}

fn finish<S: ObjectStore + MultipartStore>(
    redactor: Redactor,
    repeating: object_store::Result<S>,
    once: object_store::Result<S>,
) -> Result<Clients> {
    let accepted = |built: object_store::Result<S>| {
        built.map_err(|error| {
            let text = redactor.clean(&error.to_string());
            Error::new(ErrorKind::Invalid, format!("the store options are not accepted: {text}"))
        })
    };
    let (repeating, once) = (Arc::new(accepted(repeating)?), Arc::new(accepted(once)?));
    Ok(Clients { parts: Arc::clone(&repeating) as _, repeating, once, redactor, aws: None })
}

#[cfg(test)]
mod tests {
    use super::super::clients::testing::FrozenClock;
    use super::super::pace::StorePace;
    use super::*;
    use crate::env::Clock;

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn build(
        provider: Provider,
        options: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> Result<Clients> {
        let options = pairs(options).into_iter().collect();
        let clock: Arc<dyn Clock> = Arc::new(FrozenClock);
        let pace = Arc::new(StorePace::new(Arc::clone(&clock)));
        let limits = LimitedConnector::new(clock, pace);
        clients(provider, "quarry", &options, &pairs(environment), limits)
    }

    #[test]
    fn clients_know_every_name_that_may_be_suggested() {
        use option_names::{AZURE, GCS, HTTP, S3};
        for name in S3.iter().chain(HTTP) {
            assert!(AmazonS3ConfigKey::from_str(name).is_ok(), "{name}");
        }
        for name in AZURE.iter().chain(HTTP) {
            assert!(AzureConfigKey::from_str(name).is_ok(), "{name}");
        }
        for name in GCS.iter().chain(HTTP) {
            assert!(GoogleConfigKey::from_str(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn an_endpoint_is_a_url_with_its_scheme() {
        let forms = ["127.0.0.1:9", "localhost", "s3.example.com", "ftp://host", "http://", ""];
        let damaged = ["http://[::1", "http://x:99999", "http://x:port", "http://a b", "http:x"];
        for wrong in forms.into_iter().chain(damaged) {
            let error = build(Provider::S3, &[("endpoint", wrong)], &[]).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}");
            assert!(error.to_string().contains("`endpoint`"), "{error}");
            let named = [("AWS_ENDPOINT_URL", wrong)];
            assert!(build(Provider::S3, &[], &named).is_err(), "{wrong}");
            assert!(build(Provider::Azure, &[("endpoint", wrong)], &[]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wrong_options_are_named() {
        let cases = [
            (Provider::S3, ("regoin", "x"), ErrorKind::Invalid, "`regoin`"),
            (Provider::Gcs, ("access_key_id", "x"), ErrorKind::Invalid, "`access_key_id`"),
            (Provider::S3, ("bucket", "x"), ErrorKind::Invalid, "bucket"),
            (Provider::S3, ("conditional_put", "disabled"), ErrorKind::Invalid, "conditional_put"),
            (Provider::S3, ("secret_access_key", "canary"), ErrorKind::Invalid, "not accepted"),
            (Provider::S3, ("allow_http", "maybe"), ErrorKind::Invalid, "maybe"),
            (Provider::S3, ("session_token", "canary\n"), ErrorKind::Invalid, "`session_token`"),
            (Provider::S3, ("access_key_id", "canary\0"), ErrorKind::Invalid, "control character"),
            (Provider::Azure, ("access_key", "canary"), ErrorKind::Invalid, "not accepted"),
        ];
        for (provider, option, kind, word) in cases {
            let error = build(provider, &[option], &[]).unwrap_err();
            let text = error.to_string();
            assert_eq!(error.kind(), kind, "{option:?}: {text}");
            assert!(text.contains(word), "{option:?}: {text}");
            assert!(!text.contains("canary"), "{text}");
        }
    }

    #[test]
    fn every_provider_builds_with_its_options() {
        let s3 = [("region", "r"), ("access_key_id", "k"), ("secret_access_key", "s")];
        build(Provider::S3, &s3, &[]).unwrap();
        build(Provider::Azure, &[("account_name", "a"), ("skip_signature", "true")], &[]).unwrap();
        build(Provider::Gcs, &[("skip_signature", "true")], &[]).unwrap();
    }

    #[test]
    fn plain_http_needs_leave_unless_it_is_this_machine() {
        let keys = [("access_key_id", "k"), ("secret_access_key", "s")];
        let refused = |provider, endpoint: &str, more: &[(&str, &str)], env: &[(&str, &str)]| {
            let options = [&[("endpoint", endpoint)], more].concat();
            build(provider, &options, env).err()
        };
        for endpoint in ["http://store.lan:9000", "http://10.0.0.1", "HTTP://localhost.evil.org"] {
            let error = refused(Provider::S3, endpoint, &keys, &[]).unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains("`allow_http=true`") && text.contains(endpoint), "{text}");
            assert!(refused(Provider::S3, endpoint, &[("allow_http", "false")], &[]).is_some());
            assert!(refused(Provider::S3, endpoint, &[("allow_http", "true")], &[]).is_none());
            assert!(
                refused(Provider::S3, endpoint, &keys, &[("AWS_ALLOW_HTTP", "true")]).is_none()
            );
        }
        let azure = [("account_name", "a"), ("skip_signature", "true")];
        assert!(refused(Provider::Azure, "http://store.lan/a", &azure, &[]).is_some());
        assert!(refused(Provider::Azure, "http://127.0.0.1:10000/a", &azure, &[]).is_none());
        let far = [("AZURE_ENDPOINT", "http://store.lan")];
        assert!(refused(Provider::Azure, "https://store.lan/a", &azure, &far).is_none());
        for endpoint in [
            "http://localhost:9000",
            "http://127.0.0.1",
            "http://127.9.9.9:1/x",
            "http://[::1]:9000",
        ] {
            assert!(refused(Provider::S3, endpoint, &keys, &[]).is_none(), "{endpoint}");
            assert!(refused(Provider::S3, endpoint, &[("allow_http", "off")], &[]).is_some());
        }
        let environment = [("AWS_ENDPOINT_URL", "http://store.lan:9000")];
        let error = build(Provider::S3, &keys, &environment).unwrap_err().to_string();
        assert!(error.contains("allow_http"), "{error}");
        assert!(refused(Provider::S3, "https://store.lan", &keys, &environment).is_none());
    }

    #[test]
    fn certificates_come_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("roots.pem");
        std::fs::write(&path, "no certificate").unwrap();
        let path = path.to_str().unwrap();
        for wrong in [path, "/no/such/file.pem"] {
            let error = build(Provider::S3, &[("ca_bundle", wrong)], &[]).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("ca_bundle"), "{error}");
            let error = build(Provider::S3, &[], &[("AWS_CA_BUNDLE", wrong)]).map(drop);
            assert!(error.unwrap_err().to_string().contains("AWS_CA_BUNDLE"));
        }
    }

    #[test]
    fn the_time_limit_is_an_option() {
        build(Provider::S3, &[("timeout", "2m 30s")], &[]).unwrap();
        let error = build(Provider::S3, &[("timeout", "soon")], &[]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("`timeout`"), "{error}");
    }

    #[test]
    fn given_options_win_and_credentials_do_not_mix() {
        let environment = [
            ("AWS_ACCESS_KEY_ID", "env-key"),
            ("AWS_SECRET_ACCESS_KEY", "env-secret"),
            ("AWS_SESSION_TOKEN", "env-token"),
            ("AWS_ENDPOINT_URL_S3", "http://env"),
            ("AWS_REGION", "env-region"),
            ("AWS_NO_SUCH_THING", "x"),
            ("HOME", "/root"),
        ];
        let options = pairs(&[("access_key_id", "key"), ("endpoint", "http://given")]);
        let options = options.into_iter().collect();
        let mut settings: Settings<AmazonS3ConfigKey> =
            Settings::read(Provider::S3, &options, &pairs(&environment)).unwrap();
        use AmazonS3ConfigKey as Key;
        settings.keep_together(&[Key::AccessKeyId, Key::SecretAccessKey, Key::Token]);
        settings.keep_together(&[Key::Endpoint, Key::S3Endpoint]);
        let left: Vec<_> = settings.from_environment.iter().map(|(_, value)| value).collect();
        assert_eq!(left, ["env-region"]);
    }
}
