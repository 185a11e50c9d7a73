//! Deletes of a collection, batch by batch. A failed delete never stops the others: it is reported,
//! and the next round repeats it.

use super::report::GcReport;
use crate::manifests::objects::Objects;
use siltstone_base::ObjectName;
use siltstone_store::progress::Progress;
use std::collections::HashMap;

/// Deletes one batch and records the results. Returns which deletes succeeded, in order. `bytes`
/// has the sizes of listed objects.
pub(super) async fn delete_batch(
    objects: &Objects,
    names: Vec<ObjectName>,
    bytes: &HashMap<ObjectName, u64>,
    report: &mut GcReport,
    progress: Option<&Progress>,
) -> Vec<bool> {
    let answers = objects.env.store.delete_many(names.clone()).await;
    let gone: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    if let Some(progress) = progress {
        progress.add(gone.len() as u64);
    }
    for (name, answer) in names.into_iter().zip(answers) {
        report.note_delete(name, bytes.get(&name).copied().unwrap_or_default(), answer);
    }
    gone
}
