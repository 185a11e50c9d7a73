//! The error type of the engine: a kind that says what the caller must do, the operation that
//! failed, context, and the cause.
//!
//! An absent key is not an error (reads return `Option`). Decoders return [`ErrorKind::Corruption`]
//! and must never panic.

use std::fmt;
use std::sync::Arc;

/// The required reaction of the caller. There are few kinds, because programs branch on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Another process or transaction changed the state that the call relied on: read again and
    /// retry, or give up.
    Conflict,
    /// A newer writer (or compactor) has taken over: this handle no longer works, open a new one.
    Fenced,
    /// The handle was closed.
    Closed,
    /// The store does not answer correctly at the moment: retry later. No damage is known.
    Unavailable,
    /// The deadline of the call passed. An unfinished write continues and may still succeed.
    Timeout,
    /// A checkpoint or lease that this call relied on is gone: create a new one.
    Expired,
    /// The call itself is wrong: fix the argument named in the text.
    Invalid,
    /// The database (or the object requested by name) does not exist.
    NotFound,
    /// The store refused the credentials or the permission: fix them; retrying does not help.
    Denied,
    /// Stored bytes differ from the bytes that were written: restore from a checkpoint or a copy.
    Corruption,
    /// Written by a newer version, or not implemented: the text names the missing feature.
    Unsupported,
    /// A rule of Siltstone itself was broken: please report it.
    Internal,
}

impl ErrorKind {
    /// Every kind, for tests that check the mapping to another language.
    pub const ALL: [ErrorKind; 12] = [
        ErrorKind::Conflict,
        ErrorKind::Fenced,
        ErrorKind::Closed,
        ErrorKind::Unavailable,
        ErrorKind::Timeout,
        ErrorKind::Expired,
        ErrorKind::Invalid,
        ErrorKind::NotFound,
        ErrorKind::Denied,
        ErrorKind::Corruption,
        ErrorKind::Unsupported,
        ErrorKind::Internal,
    ];

    /// The kind's name, as in messages and in the Python exception hierarchy.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Conflict => "Conflict",
            ErrorKind::Fenced => "Fenced",
            ErrorKind::Closed => "Closed",
            ErrorKind::Unavailable => "Unavailable",
            ErrorKind::Timeout => "Timeout",
            ErrorKind::Expired => "Expired",
            ErrorKind::Invalid => "Invalid",
            ErrorKind::NotFound => "NotFound",
            ErrorKind::Denied => "Denied",
            ErrorKind::Corruption => "Corruption",
            ErrorKind::Unsupported => "Unsupported",
            ErrorKind::Internal => "Internal",
        }
    }

    /// Whether the same call may succeed later without any change by the caller.
    #[must_use]
    pub fn is_transient(self) -> bool {
        matches!(self, ErrorKind::Unavailable | ErrorKind::Timeout)
    }

    /// Whether a request that a store refused with this kind may succeed later: temporary failures,
    /// and a missing permission, which an administrator may grant or a new credential may bring.
    /// Every other refusal is permanent, however often the request is repeated.
    #[must_use]
    pub fn may_pass(self) -> bool {
        self.is_transient() || self == ErrorKind::Denied
    }
}

/// `Result` with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error. It is cheap to clone, because one failure may wake many waiters.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    message: String,
    /// Whether the same request, repeated at once, may succeed if the kind is transient.
    repeatable: bool,
    operation: Option<&'static str>,
    context: Vec<(&'static str, String)>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of `kind` whose `message` names the cause and, if there is one, the remedy.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error(Arc::new(Inner {
            kind,
            message: message.into(),
            repeatable: true,
            operation: None,
            context: Vec::new(),
            source: None,
        }))
    }

    /// Shorthand for [`ErrorKind::Corruption`].
    pub fn corruption(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Corruption, message)
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Invalid, message)
    }

    /// Shorthand for [`ErrorKind::Unsupported`].
    pub fn unsupported(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unsupported, message)
    }

    /// Shorthand for [`ErrorKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Internal, message)
    }

    /// Shorthand for [`ErrorKind::Unavailable`].
    pub fn unavailable(message: impl Into<String>) -> Self {
        Error::new(ErrorKind::Unavailable, message)
    }

    /// The process cannot allocate memory for `purpose`. The kind is Unavailable, because other
    /// memory may be released; [`Error::may_be_repeated`] is false, because waiting releases none.
    #[must_use]
    pub fn no_memory(purpose: &str) -> Self {
        let error = Error::unavailable(format!(
            "no memory for {purpose}: raise the limit of the process (`ulimit -v`, \
             spark.executor.pyspark.memory), or lower `block_cache_bytes` and \
             `metadata_cache_bytes`"
        ));
        error.not_repeated()
    }

    /// The same, for a failure that another attempt of the same call would only meet again:
    /// [`Error::may_be_repeated`] is false.
    #[must_use]
    pub fn not_repeated(mut self) -> Self {
        Arc::make_mut(&mut self.0).repeatable = false;
        self
    }

    /// Whether a repetition of the same request, within the same call, may succeed.
    #[must_use]
    pub fn may_be_repeated(&self) -> bool {
        self.kind().is_transient() && self.0.repeatable
    }

    /// The operation that failed ("open", "read manifest"). The outermost one takes precedence.
    #[must_use]
    pub fn during(mut self, operation: &'static str) -> Self {
        Arc::make_mut(&mut self.0).operation = Some(operation);
        self
    }

    /// Adds a fact: an object, an offset, an epoch.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl fmt::Display) -> Self {
        Arc::make_mut(&mut self.0).context.push((name, value.to_string()));
        self
    }

    /// Attaches the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Arc::make_mut(&mut self.0).source = Some(Arc::new(source));
        self
    }

    /// The kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The operation that failed, if it is known.
    #[must_use]
    pub fn operation(&self) -> Option<&'static str> {
        self.0.operation
    }

    /// The facts added by [`Error::with`], in order.
    #[must_use]
    pub fn context(&self) -> &[(&'static str, String)] {
        &self.0.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operation) = self.0.operation {
            write!(f, "{operation}: ")?;
        }
        f.write_str(&self.0.message)?;
        for (position, (name, value)) in self.0.context.iter().enumerate() {
            let open = if position == 0 { " (" } else { ", " };
            write!(f, "{open}{name}: {value}")?;
        }
        if !self.0.context.is_empty() {
            f.write_str(")")?;
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({self})", self.0.kind.name())
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}
