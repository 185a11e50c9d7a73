//! Checks the settings of a handle, such as its merge operator, against those that the database
//! records.

use crate::cache::fetch::ReadContext;
use crate::manifests::gate::FILTER;
use crate::manifests::missing::check_lives;
use siltstone_base::Result;
use siltstone_manifest::{Manifest, Settings};
use siltstone_merge::built_in;

/// Checks a reader's settings against the recorded ones, and uses the recorded operator if it is
/// built in and the reader has none.
pub(crate) fn check_settings(manifest: &Manifest, context: &ReadContext) -> Result<()> {
    check_lives(manifest)?;
    let brought = Settings {
        filter: FILTER.to_owned(),
        merge_operator: context.operator().map(|operator| operator.name().to_owned()),
        ..Settings::default()
    };
    manifest.settings.check(&brought)?;
    take_up(manifest, context);
    Ok(())
}

/// Adopts the recorded locations of ancestors. If the handle has no operator, adopts the recorded
/// one if it is built in, and its name otherwise.
pub(crate) fn take_up(manifest: &Manifest, context: &ReadContext) {
    context.ancestors.learn(manifest);
    if context.operator().is_some() {
        return;
    }
    let Some(recorded) = manifest.settings.merge_operator.as_deref() else { return };
    // A concurrent call may have set the operator or its name first; it has set the same one.
    match built_in(recorded) {
        Some(operator) => drop(context.operator.known.set(operator)),
        None => drop(context.operator.recorded.set(recorded.into())),
    }
}
