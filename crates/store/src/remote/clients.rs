//! The clients of one store. They are created anew when the credentials are renewed.
//!
//! Store options may come from a function ([`OptionsSource`]), and credentials from a profile of
//! AWS ([`aws_profile`]). Both are read again before the credentials expire, if the options
//! (`expires_at`) or the profile's process give the time, and when the store refuses a request. A
//! refusal counts as temporary for [`REFUSED_FOR`]: a repetition of the request is signed with the
//! new credentials. After that it is final, until other credentials are given.

use super::aws_profile::{self, AwsProfile};
use super::build::{self, AwsAccess};
use super::limits::LimitedConnector;
use super::pace::StorePace;
use crate::env::{Clock, Effects};
use crate::options::{OptionsSource, Redactor, StoreOptions};
use crate::place::Provider;
use object_store::ObjectStore;
use object_store::multipart::MultipartStore;
use parking_lot::{Mutex, RwLock};
use siltstone_base::{Result, UnixMillis};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Log target of lines about the store.
const TARGET: &str = "siltstone.store";

/// For this time after the first refusal, further refusals are attributed to the old credentials.
const REFUSED_FOR: Duration = Duration::from_secs(2);
/// After this time without a refusal the next one counts as the first again.
const REFUSALS_FORGOTTEN: Duration = Duration::from_secs(60);
/// The least time between two calls of the function.
const BETWEEN_CALLS: Duration = Duration::from_millis(200);
/// The least time between two calls while the store refuses what the function gives.
const BETWEEN_CALLS_IN_VAIN: Duration = Duration::from_secs(5);
/// A function that has run for so long is called again beside its first call.
const HUNG: Duration = Duration::from_secs(60);
/// Credentials are renewed at most this long before they expire.
const MOST_MARGIN: Duration = Duration::from_secs(300);

/// The settings from which clients are made.
pub(super) struct ClientSettings {
    pub(super) provider: Provider,
    pub(super) bucket: String,
    pub(super) environment: Vec<(String, String)>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) pace: Arc<StorePace>,
}

/// The variables with credentials. A profile with credentials replaces all of them: every store
/// refuses a key from one source with the session token of another.
const CREDENTIAL_VARIABLES: [&str; 5] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
];

/// Clients, and how long their credentials are valid.
struct BuiltClients {
    clients: build::Clients,
    expires_at: Option<UnixMillis>,
    /// Whether another build may give other credentials with the same options.
    is_renewable: bool,
    /// A hash of all settings, which tells whether two builds have the same credentials.
    fingerprint: u64,
}

fn fingerprint(options: &StoreOptions, environment: &[(String, String)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    options.iter().for_each(|option| option.hash(&mut hasher));
    environment.hash(&mut hasher);
    hasher.finish()
}

impl ClientSettings {
    /// Builds the clients. Makes no request, but may read the shared files of AWS and run a
    /// profile's process.
    ///
    /// # Errors
    /// As [`build::clients`] and [`aws_profile::read`].
    fn build(&self, options: &StoreOptions) -> Result<BuiltClients> {
        let profile = match self.provider {
            Provider::S3 => aws_profile::read(options, &self.environment)?,
            Provider::Gcs | Provider::Azure => AwsProfile::default(),
        };
        let replaced = |name: &str| profile.has_credentials && CREDENTIAL_VARIABLES.contains(&name);
        let kept = self.environment.iter().filter(|(name, _)| !replaced(name)).cloned();
        let environment: Vec<_> = kept.chain(profile.variables).collect();
        let limits = LimitedConnector::new(Arc::clone(&self.clock), Arc::clone(&self.pace));
        let fingerprint = fingerprint(options, &environment);
        Ok(BuiltClients {
            fingerprint,
            clients: build::clients(self.provider, &self.bucket, options, &environment, limits)?,
            expires_at: options.expires_at()?.or(profile.expires_at),
            is_renewable: profile.has_credentials,
        })
    }
}

/// Fixed options; the credentials of their profile may change in its files.
struct ProfileOptions(StoreOptions);

impl OptionsSource for ProfileOptions {
    fn store_options(&self) -> Result<StoreOptions> {
        Ok(self.0.clone())
    }
}

/// The current clients.
pub(super) struct RemoteClients {
    settings: Arc<ClientSettings>,
    current: RwLock<CurrentClients>,
    redactor: RwLock<Redactor>,
    renewal: Option<Renewal>,
}

/// The clients of the current credentials.
struct CurrentClients {
    repeating: Arc<dyn ObjectStore>,
    once: Arc<dyn ObjectStore>,
    parts: Arc<dyn MultipartStore>,
    aws: Option<AwsAccess>,
}

impl CurrentClients {
    fn new(built: build::Clients) -> (CurrentClients, Redactor) {
        let build::Clients { repeating, once, parts, redactor, aws } = built;
        (CurrentClients { repeating, once, parts, aws }, redactor)
    }
}

/// The renewal of credentials.
struct Renewal {
    source: Arc<dyn OptionsSource>,
    /// Held by the running renewal, so that there is one at a time.
    turn: tokio::sync::Mutex<()>,
    state: Arc<Mutex<RenewalState>>,
}

struct RenewalState {
    /// Time of the last call of the function. It is set when the call begins: a request that waits
    /// for the call may be given up, and the next one must not call the function a second time.
    called: Duration,
    /// When the function was called, while it runs.
    awaited: Option<Duration>,
    /// Time from which the credentials have to be renewed.
    due: Option<UnixMillis>,
    /// The [`BuiltClients::fingerprint`] of the current clients.
    fingerprint: u64,
    /// Times of the first and the last refusal of the current credentials.
    refused: Option<(Duration, Duration)>,
    /// Whether there was a refusal since the last call.
    is_stale: bool,
}

impl RemoteClients {
    /// Makes no request.
    ///
    /// # Errors
    /// As [`build::clients`].
    pub(super) fn new(settings: ClientSettings, options: &StoreOptions) -> Result<RemoteClients> {
        let built = settings.build(options)?;
        let (now, wall) = (settings.clock.monotonic(), settings.clock.now());
        let state = RenewalState {
            called: now,
            awaited: None,
            due: due(built.expires_at, wall),
            fingerprint: built.fingerprint,
            refused: None,
            is_stale: false,
        };
        let profile = || -> Option<Arc<dyn OptionsSource>> {
            built.is_renewable.then(|| Arc::new(ProfileOptions(options.clone())) as _)
        };
        let renewal = options.source().or_else(profile).map(|source| Renewal {
            source,
            turn: tokio::sync::Mutex::new(()),
            state: Arc::new(Mutex::new(state)),
        });
        let (clients, redactor) = CurrentClients::new(built.clients);
        Ok(RemoteClients {
            settings: Arc::new(settings),
            current: RwLock::new(clients),
            redactor: RwLock::new(redactor),
            renewal,
        })
    }

    /// A client that repeats failed requests a few times: reads, listings, deletes, uploads.
    pub(super) fn repeating(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.current.read().repeating)
    }

    /// A client that sends every request once: conditional creates, and deletes of many names.
    pub(super) fn once(&self) -> Arc<dyn ObjectStore> {
        Arc::clone(&self.current.read().once)
    }

    /// A client for the requests of an upload in parts, which repeats them like
    /// [`RemoteClients::repeating`].
    pub(super) fn parts(&self) -> Arc<dyn MultipartStore> {
        Arc::clone(&self.current.read().parts)
    }

    /// The credentials for other services of AWS; `None` of other providers.
    pub(super) fn aws(&self) -> Option<AwsAccess> {
        self.current.read().aws.clone()
    }

    /// A text without secrets, including those of earlier credentials.
    pub(super) fn clean(&self, text: &str) -> String {
        self.redactor.read().clean(text)
    }

    /// Renews the credentials if that is due. A failure is only logged: the store decides about the
    /// request.
    pub(super) async fn refresh(&self, effects: &Effects) {
        let Some(renewal) = &self.renewal else { return };
        if !renewal.is_due(&*effects.clock) {
            return;
        }
        let _turn = renewal.turn.lock().await;
        // Another request may have renewed them meanwhile.
        if !renewal.is_due(&*effects.clock) {
            return;
        }
        let began = effects.clock.monotonic();
        {
            let mut state = renewal.state.lock();
            (state.called, state.awaited) = (began, Some(began));
        }
        let (source, settings) = (Arc::clone(&renewal.source), Arc::clone(&self.settings));
        let state = Arc::clone(&renewal.state);
        let build = move || {
            let given = source.store_options();
            state.lock().awaited = None;
            settings.build(&given?)
        };
        let built = effects.blocking("store options", build).await;
        let renewed = built.flatten().map(|built| {
            let (clients, redactor) = CurrentClients::new(built.clients);
            self.redactor.write().extend(redactor);
            *self.current.write() = clients;
            (built.expires_at, built.fingerprint)
        });
        let mut state = renewal.state.lock();
        (state.called, state.is_stale) = (effects.clock.monotonic(), false);
        match renewed {
            Ok((expires_at, fingerprint)) => {
                state.due = due(expires_at, effects.clock.now());
                // Other credentials have not been refused yet.
                if std::mem::replace(&mut state.fingerprint, fingerprint) != fingerprint {
                    state.refused = None;
                }
            }
            Err(error) => {
                let (kind, text) = (error.kind().name(), self.clean(&error.to_string()));
                log::warn!(target: TARGET, "event=renewal_fails kind={kind} error={text:?}");
            }
        }
    }

    /// The function of the store options, if it has run for a second or more, as text.
    pub(super) fn unanswered(&self) -> Option<String> {
        let awaited = self.renewal.as_ref()?.state.lock().awaited?;
        let waited = self.settings.clock.monotonic().saturating_sub(awaited);
        (waited >= Duration::from_secs(1)).then(|| {
            let seconds = waited.as_secs_f64();
            format!("the function of the store options, called {seconds:.1} s ago")
        })
    }

    /// Records that the store has refused the credentials. Returns whether a repetition may
    /// succeed, because the credentials are renewed before it.
    pub(super) fn refused(&self) -> bool {
        let Some(renewal) = &self.renewal else { return false };
        let now = self.settings.clock.monotonic();
        let mut state = renewal.state.lock();
        let forgotten = |last: Duration| now.saturating_sub(last) > REFUSALS_FORGOTTEN;
        let first = match state.refused {
            Some((first, last)) if !forgotten(last) => first,
            _ => now,
        };
        let passes = now.saturating_sub(first) < REFUSED_FOR;
        state.refused = Some((first, if passes { now } else { first }));
        state.is_stale |= passes || now.saturating_sub(state.called) >= BETWEEN_CALLS_IN_VAIN;
        passes
    }
}

impl Renewal {
    fn is_due(&self, clock: &dyn Clock) -> bool {
        let state = self.state.lock();
        let runs = |since: Duration| clock.monotonic().saturating_sub(since) < HUNG;
        let wants = state.is_stale || state.due.is_some_and(|due| due <= clock.now());
        wants
            && !state.awaited.is_some_and(runs)
            && clock.monotonic().saturating_sub(state.called) >= BETWEEN_CALLS
    }
}

/// The time at which credentials that expire at `expires_at` are renewed: after three quarters of
/// their time at the earliest, and at most [`MOST_MARGIN`] before their end.
fn due(expires_at: Option<UnixMillis>, now: UnixMillis) -> Option<UnixMillis> {
    let most = MOST_MARGIN.as_millis() as u64;
    expires_at.map(|end| UnixMillis(end.0 - (end.0.saturating_sub(now.0) / 4).min(most)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_renewed_before_they_end() {
        let (now, hour) = (UnixMillis(1_000_000), 3_600_000);
        assert_eq!(due(None, now), None);
        assert_eq!(due(Some(UnixMillis(now.0 + hour)), now), Some(UnixMillis(now.0 + 3_300_000)));
        assert_eq!(due(Some(UnixMillis(now.0 + 400)), now), Some(UnixMillis(now.0 + 300)));
        assert_eq!(due(Some(UnixMillis(5)), now), Some(UnixMillis(5)));
    }
}

#[cfg(test)]
pub(super) mod testing {
    use super::*;
    use futures::future::BoxFuture;

    /// A clock that does not move; no request is made.
    pub(in crate::remote) struct FrozenClock;

    impl Clock for FrozenClock {
        fn now(&self) -> UnixMillis {
            UnixMillis(0)
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }

        fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
            Box::pin(futures::future::pending())
        }
    }

    /// Clients of S3 that make no request.
    pub(in crate::remote) fn clients(options: &[(&str, &str)]) -> Arc<RemoteClients> {
        let clock: Arc<dyn Clock> = Arc::new(FrozenClock);
        let settings = ClientSettings {
            provider: Provider::S3,
            bucket: "quarry".to_owned(),
            environment: Vec::new(),
            pace: Arc::new(StorePace::new(Arc::clone(&clock))),
            clock,
        };
        let text = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let options = options.iter().map(text).collect();
        Arc::new(RemoteClients::new(settings, &options).unwrap())
    }
}
