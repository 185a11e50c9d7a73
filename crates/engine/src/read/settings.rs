//! What a handle brings against what the database records.

use crate::cache::fetch::ReadContext;
use crate::manifests::gate::FILTER;
use crate::manifests::missing::check_lives;
use siltstone_base::Result;
use siltstone_manifest::{Manifest, Settings};
use siltstone_merge::built_in;

/// Checks what a reader brings against what the database records, and takes up a built-in operator
/// that was not brought.
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

/// Takes up where ancestors lie, and the operator that the database records, where it is built in
/// and none was brought.
pub(crate) fn take_up(manifest: &Manifest, context: &ReadContext) {
    context.ancestors.learn(manifest);
    let recorded = manifest.settings.merge_operator.as_deref();
    if context.operator().is_none()
        && let Some(operator) = recorded.and_then(built_in)
    {
        // Whoever was quicker took up the same.
        let _ = context.operator.set(operator);
    }
}
