//! The outcome of a conditional PUT.

/// The four outcomes of "create this object if it is absent" (protocol rule M1). A store's own
/// answer is never trusted to tell them apart: clients retry a PUT that had landed and then report
/// a conflict with themselves, and some servers answer "conflict" with nothing stored. The attempt
/// id inside the bytes, read back, decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PutOutcome<T> {
    /// The object is there and it is ours.
    Committed,
    /// Another creator's object has the name. The value is its content.
    Lost(T),
    /// Certainly not stored, now or later by this attempt.
    NotApplied,
    /// Not known, and perhaps still under way: the request may land at any later time.
    Unknown,
}
