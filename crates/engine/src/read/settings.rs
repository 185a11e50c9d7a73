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

/// Adopts the recorded locations of ancestors, and the recorded operator if it is built in and the
/// handle has none.
pub(crate) fn take_up(manifest: &Manifest, context: &ReadContext) {
    context.ancestors.learn(manifest);
    let recorded = manifest.settings.merge_operator.as_deref();
    if context.operator().is_none()
        && let Some(operator) = recorded.and_then(built_in)
    {
        // A concurrent call may have set the operator first; it has set the same one.
        let _ = context.operator.set(operator);
    }
}
