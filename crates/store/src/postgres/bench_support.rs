//! For the benchmark only: the statements of one transition, and the settings of a lane's connection. Raw transitions
//! must use exactly these.

pub use super::{
    command::{INSERT as INSERT_COMMAND, STATUS as SAVE_COMMAND_STATUS, UPDATE as UPDATE_COMMAND},
    connection::SETTINGS,
    save::{INSERT_EVENT, UPDATE_WORK},
};
use super::{connect::Connector, migrate};
use crate::{Error, Options};

/// Creates a ledger's tables in an empty database.
pub async fn create_schema(url: &str) -> Result<(), Error> {
    let options = Options { allow_weak_settings: true, ..Options::default() };
    let mut session = Connector::new(url, &options)?.session().await?;
    migrate::migrate(&mut session.client).await.map(|_key| ())
}
