//! A database as it tells of itself.

use tenure_api::wire as w;
use tenure_store::{Diagnosis, Setting};

use super::at;

pub(crate) fn database(told: Diagnosis) -> w::Database {
    let setting = |setting: Setting| w::Setting {
        name: setting.name.to_owned(),
        value: setting.value,
        wanted: setting.wanted.to_owned(),
        safe: setting.safe,
    };
    w::Database {
        engine: told.engine.to_owned(),
        version: told.version,
        schema: told.schema.map(|schema| w::Schema { known: schema.known, applied: schema.applied }),
        settings: told.settings.into_iter().map(setting).collect(),
        wal: told.wal.map(|wal| w::Wal { bytes: wal.bytes, checkpointed_at: wal.checkpointed_at.map(at) }),
    }
}
