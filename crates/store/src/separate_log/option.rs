//! The option `wal_url`, and the stores of logs below that URL.

use super::LogStores;
use crate::Store;
use crate::encrypted::EncryptionKeys;
use crate::env::Effects;
use crate::options::StoreOptions;
use crate::two_phase::TwoPhaseStore;
use crate::two_phase::records::RecordStore;
use siltstone_base::{DatabaseId, Result};
use std::sync::Arc;

/// The option that names the store of logs.
const OPTION: &str = "wal_url";
/// The variable that replaces the option.
const VARIABLE: &str = "SILTSTONE_WAL_URL";
/// Other options with this prefix belong to the store of logs alone.
const PREFIX: &str = "wal_";

/// The place of logs, and all options.
pub(crate) struct LogOption {
    pub(crate) url: String,
    all: StoreOptions,
}

impl LogOption {
    /// The option, if the options or the environment give a URL, and the options of the main
    /// store.
    pub(crate) fn read(
        all: StoreOptions,
        environment: &[(String, String)],
    ) -> (Option<LogOption>, StoreOptions) {
        let (url, others) = all.take(OPTION, VARIABLE, environment);
        let Some(url) = url else { return (None, others) };
        let options = all.clone().selected(|all| all.prefixed(PREFIX).1);
        (Some(LogOption { url, all }), options)
    }

    /// The options of the store of logs: its own ones, and the others if it `shares` them.
    pub(crate) fn options(&self, shares: bool) -> StoreOptions {
        self.all.clone().selected(move |all| {
            let (own, others) = all.without(OPTION).1.prefixed(PREFIX);
            if shares { others.overridden_by(&own) } else { own }
        })
    }
}

/// The stores of logs below one URL.
pub(crate) struct UrlLogs {
    pub(crate) base: Arc<dyn Store>,
    pub(crate) records: Option<Arc<dyn RecordStore>>,
    pub(crate) keys: Option<EncryptionKeys>,
    pub(crate) effects: Effects,
}

impl LogStores for UrlLogs {
    fn base(&self) -> &dyn Store {
        &*self.base
    }

    fn of(&self, database: DatabaseId) -> Result<Arc<dyn Store>> {
        let base = self.base.place().location().unwrap_or_default();
        let place = format!("{}/{:032x}", base.trim_end_matches('/'), database.0);
        let store = self.base.neighbours().neighbour(&place)?;
        let store = match &self.records {
            None => store,
            Some(records) => {
                TwoPhaseStore::new(store, Arc::clone(records), self.effects.clone()) as _
            }
        };
        Ok(match &self.keys {
            None => store,
            Some(keys) => keys.clone().over(store, self.effects.clone()),
        })
    }
}
