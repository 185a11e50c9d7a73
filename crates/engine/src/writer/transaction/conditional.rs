//! Conditional writes: read one key, and write it if it meets the condition and no other commit has
//! changed it meanwhile (RFC 0025, O6).

use super::Registration;
use super::footprint::Footprint;
use crate::read::answer::Answer;
use crate::read::value::Value;
use crate::read::{Pin, get};
use crate::writer::accept::Accept;
use crate::writer::commit::Commit;
use crate::writer::state::Writer;
use futures::future::BoxFuture;
use siltstone_base::{Error, ErrorKind, Result};
use std::sync::Arc;

/// The condition on the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key is absent.
    Absent,
    /// The key has this value.
    Value(Vec<u8>),
    /// The key is present. If it is absent, nothing is written.
    Present,
}

/// The result: the value that was present, and the commit. The commit is `None` if the key had to
/// be present and is absent.
pub(crate) type ConditionOutcome = (Option<Value>, Option<Commit>);

/// One conditional write.
pub(crate) struct Conditional {
    writer: Arc<Writer>,
    key: Vec<u8>,
    /// A batch of one operation on the key.
    bytes: Arc<[u8]>,
    condition: Condition,
    /// Called with the length of the value before it is deleted; an error keeps it.
    reserve: fn(usize) -> Result<()>,
    footprint: Footprint,
}

/// The view at which the key is read.
struct ReadMoment {
    pin: Pin,
    registered: Registration,
}

enum ConditionStep {
    Done(ConditionOutcome),
    /// Another commit wrote the key meanwhile.
    Overtaken,
    /// There is no room: await the future, then read again.
    Waits(BoxFuture<'static, Result<()>>),
}

impl Conditional {
    pub(crate) fn new(
        writer: &Arc<Writer>,
        key: &[u8],
        bytes: Arc<[u8]>,
        condition: Condition,
    ) -> Conditional {
        let (writer, key, footprint) = (Arc::clone(writer), key.to_vec(), Footprint::of_key(key));
        Conditional { writer, key, bytes, condition, reserve: |_| Ok(()), footprint }
    }

    /// The same, which calls `reserve` with the length of the value before the write.
    pub(crate) fn reserving(self, reserve: fn(usize) -> Result<()>) -> Conditional {
        Conditional { reserve, ..self }
    }

    /// Reads, compares and writes. Completes immediately if memory has the key and there is room.
    ///
    /// # Errors
    /// Conflict if the condition does not hold; errors of a read and of a write.
    pub(crate) fn run(self) -> Result<Answer<ConditionOutcome>> {
        loop {
            let moment = self.moment()?;
            match self.read(&moment)? {
                Answer::Ready(found) => match self.settle(&moment, found)? {
                    ConditionStep::Done(outcome) => return Ok(Answer::Ready(outcome)),
                    ConditionStep::Overtaken => {}
                    ConditionStep::Waits(room) => {
                        drop(moment);
                        return Ok(Answer::Pending(Box::pin(async move {
                            room.await?;
                            self.again().await
                        })));
                    }
                },
                Answer::Pending(read) => {
                    return Ok(Answer::Pending(Box::pin(async move {
                        let found = read.await?;
                        let settled = self.settle(&moment, found)?;
                        drop(moment);
                        match settled {
                            ConditionStep::Done(outcome) => return Ok(outcome),
                            ConditionStep::Overtaken => {}
                            ConditionStep::Waits(room) => room.await?,
                        }
                        self.again().await
                    })));
                }
            }
        }
    }

    async fn again(self) -> Result<ConditionOutcome> {
        loop {
            let moment = self.moment()?;
            let found = self.read(&moment)?.wait().await?;
            let settled = self.settle(&moment, found)?;
            drop(moment);
            match settled {
                ConditionStep::Done(outcome) => return Ok(outcome),
                ConditionStep::Overtaken => {}
                ConditionStep::Waits(room) => room.await?,
            }
        }
    }

    fn moment(&self) -> Result<ReadMoment> {
        let (pin, registered) = self.writer.register(|writer| writer.pin_accepted())?;
        Ok(ReadMoment { pin, registered })
    }

    fn read(&self, moment: &ReadMoment) -> Result<Answer<Option<Value>>> {
        get(&self.writer.context, moment.pin.clone(), &self.key)
    }

    fn settle(&self, moment: &ReadMoment, found: Option<Value>) -> Result<ConditionStep> {
        if self.condition == Condition::Present && found.is_none() {
            return Ok(ConditionStep::Done((None, None)));
        }
        self.holds(found.as_deref())?;
        if let Some(value) = &found {
            (self.reserve)(value.len())?;
        }
        let seq = moment.registered.seq;
        let read = moment.pin.tree.below();
        let accepted = self.writer.accept_if(Arc::clone(&self.bytes), 1, |window| {
            window
                .check(seq, &self.footprint)
                .and_then(|()| self.writer.check_behind(read, &self.footprint))
        });
        match accepted {
            Ok(Accept::Accepted(commit)) => Ok(ConditionStep::Done((found, Some(commit)))),
            Ok(Accept::Pressure(room)) => Ok(ConditionStep::Waits(room)),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(ConditionStep::Overtaken),
            Err(error) => Err(error),
        }
    }

    /// Checks the condition.
    fn holds(&self, found: Option<&[u8]>) -> Result<()> {
        let text = match (&self.condition, found) {
            (Condition::Absent, Some(_)) => "the key exists, and the condition is if_absent",
            (Condition::Value(_), None) => "the key is absent, and the condition is if_value",
            (Condition::Value(value), Some(found)) if *value != found => {
                "the key has a different value than the condition if_value"
            }
            _ => return Ok(()),
        };
        let error = Error::new(ErrorKind::Conflict, text);
        Err(error.with("key", self.key.escape_ascii()))
    }
}
