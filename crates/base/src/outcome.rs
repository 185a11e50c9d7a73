//! The outcome of a conditional PUT.

/// The four outcomes of "create this object if it is absent" (protocol rule M1). The answer of a
/// store is never sufficient to distinguish them: clients retry a PUT that has landed and then
/// report a conflict with themselves, and some servers answer "conflict" with nothing stored. The
/// attempt id in the bytes, read back, decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutOutcome<T> {
    /// The object exists, and this attempt created it.
    Committed,
    /// Another creator's object has the name. The value is its content.
    Lost(T),
    /// Certainly not stored by this attempt, now or later.
    NotApplied,
    /// Unknown, and perhaps still in flight: the request may land at any later time.
    Unknown,
}
